"""The ZooKeeper of a cluster whose brokers need one: a single server that listens on 127.0.0.1 only."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from sandbox import ready
from sandbox.ports import HOST, ReservedPort
from sandbox.program import Installed, Program
from sandbox.settings import to_properties

_HEAP_MB = 128
_TIMEOUT_S = 2.0


class ZooKeeper(Program):
    """One ZooKeeper server out of the jars of the release that uses it.

    :param directory: holds ``data``, ``zoo.cfg`` and ``zookeeper.log``.
    """

    def __init__(self, cluster: str, directory: Path, port: ReservedPort, installed: Installed) -> None:
        super().__init__(cluster, "ZooKeeper", directory, [port], installed)
        self.log = directory / "zookeeper.log"
        self.address, self._port = port.address, port.number

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self._port),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            # Sessions end on a multiple of this, and a killed broker may come back only when its session has ended.
            "tickTime": "500",
            "maxSessionTimeout": "600000",  # whatever a broker's own setting asks for
            "admin.enableServer": "false",  # it would listen on all addresses
            "4lw.commands.whitelist": "srvr,dump",
        }
        config = self.directory / "zoo.cfg"
        config.write_text(to_properties(settings), encoding="utf-8")
        # Its JMX beans need a log4j that is not there. No fsync: a killed process loses nothing that it wrote.
        options = ["-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.forceSync=no", "-XX:TieredStopAtLevel=1"]
        self.child = self.java(_HEAP_MB, options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))

    def wait_ready(self, timeout_s: float, cancel: threading.Event) -> None:
        """Return when it serves clients.

        :raises NodeFailed, DiskFull, PortInUse, NodeNotReady, StartCancelled: see :func:`sandbox.ready.until`.
        """
        ready.until(self, lambda: "" if "Mode:" in self._ask("srvr") else "it does not answer", timeout_s, cancel)

    def wait_forgotten(self, node_id: int, timeout_s: float, cancel: threading.Event) -> None:
        """Return when the last session of a broker has ended.

        A broker that was killed is registered until then, and a new process under its id would be refused.

        :raises NodeFailed, DiskFull, PortInUse, NodeNotReady, StartCancelled: see :func:`sandbox.ready.until`.
        """
        ready.until(self, lambda: self._still_registered(node_id), timeout_s, cancel)

    def _still_registered(self, node_id: int) -> str:
        sessions = self._ask("dump")
        if not sessions:
            return "it does not answer"
        path = f"/brokers/ids/{node_id}"
        registered = path in (line.strip() for line in sessions.splitlines())
        return f"the last session of node {node_id} has not ended" if registered else ""

    def _ask(self, command: str) -> str:
        """Send a four-letter command and return the answer; empty when there is none."""
        try:
            with socket.create_connection((HOST, self._port), timeout=_TIMEOUT_S) as connection:
                connection.sendall(command.encode())
                with connection.makefile("rb") as answer:
                    return answer.read().decode("utf-8", "replace")
        except OSError:
            return ""
