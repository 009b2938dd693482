"""One broker of a cluster."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.ports import ReservedPort
from sandbox.program import Installed, Program
from sandbox.settings import to_properties

_TOOL_HEAP_MB = 128


class Node(Program):
    """One broker process; with KRaft it is a controller too.

    :param node_id: Kafka's ``node.id``, from 1.
    :param directory: holds ``data``, ``server.properties`` and ``kafka.log``.
    :param settings: the content of ``server.properties``.
    :param ports: the reserved ports that the node listens on.
    :param heap_mb: maximum heap in MB.
    :param jaas: the login file of a release that takes logins from a file alone; usually None.
    :param options: more options of the JVM.
    """

    def __init__(
        self, cluster: str, node_id: int, directory: Path, settings: Mapping[str, str], ports: Sequence[ReservedPort],
        installed: Installed, heap_mb: int, jaas: str | None = None, options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(cluster, f"node {node_id}", directory, ports, installed)
        self.node_id, self._settings, self._heap_mb, self._jaas = node_id, settings, heap_mb, jaas
        self._options = options
        self._properties, self._login = directory / "server.properties", directory / "jaas.conf"

    def write(self) -> None:
        """Write the files that :meth:`start` reads."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(to_properties(self._settings), encoding="utf-8")
        if self._jaas is not None:
            self._login.write_text(self._jaas, encoding="utf-8")

    def format(self, cluster_id: str) -> None:
        """Write KRaft's metadata files into an empty data directory; a formatted one is left as it is.

        :raises NodeFailed, DiskFull, PortInUse: with the last lines of the log.
        """
        # A tool's run is too short for the second compiler.
        tool = self.java(
            _TOOL_HEAP_MB, ["-XX:TieredStopAtLevel=1"], "kafka.tools.StorageTool",
            "format", "-t", cluster_id, "-c", str(self._properties), "--ignore-formatted",
        )  # fmt: skip
        status = tool.wait(240)
        if status != 0:
            tool.kill()
            raise self.failure(status if status is not None else -signal.SIGKILL)

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        # Without the second the broker would look in the login file for a login at ZooKeeper, too.
        login = [f"-Djava.security.auth.login.config={self._login}", "-Dzookeeper.sasl.client=false"]
        options = [*self._options, *(login if self._jaas is not None else [])]
        self.child = self.java(self._heap_mb, options, "kafka.Kafka", str(self._properties))
