"""One node: format its directory, start it, end it, and say why it ended."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from airflow_mirror.jobs.runner.java import find_java
from sandbox.errors import DiskFull, NodeFailed, PortInUse
from sandbox.ports import ReservedPort
from sandbox.process import Child
from sandbox.settings import to_properties

_LOG4J = Path(__file__).with_name("log4j2.properties")
_LOG_TAIL = 12  # lines of the log that an error quotes


class Node:
    """One broker-and-controller process of a cluster.

    :param node_id: Kafka's ``node.id``, from 1.
    :param directory: holds ``data``, ``server.properties`` and ``kafka.log``.
    :param settings: the content of ``server.properties``.
    :param ports: the reserved ports that the node listens on.
    :param classpath: Kafka's jars.
    :param heap_mb: maximum heap in MB.
    """

    def __init__(
        self,
        cluster: str,
        node_id: int,
        directory: Path,
        settings: Mapping[str, str],
        ports: list[ReservedPort],
        classpath: str,
        heap_mb: int,
    ) -> None:
        self.cluster, self.node_id, self.directory = cluster, node_id, directory
        self.ports, self._settings, self._classpath, self._heap_mb = ports, settings, classpath, heap_mb
        self.log = directory / "kafka.log"
        self.child: Child | None = None

    def format(self, cluster_id: str) -> None:
        """Write Kafka's metadata files into an empty data directory; a formatted one is left as it is.

        :raises NodeFailed, DiskFull, PortInUse: with the last lines of the log.
        """
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text(to_properties(self._settings), encoding="utf-8")
        tool = self._java(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties), "--ignore-formatted"
        )
        status = tool.wait(240)
        if status != 0:
            tool.kill()
            raise self.failure(status if status is not None else -signal.SIGKILL)

    def start(self) -> None:
        """Start the process; it is not ready yet."""
        self.child = self._java("kafka.Kafka", str(self.directory / "server.properties"))

    def end(self, timeout_s: float) -> None:
        """End the process: in order within ``timeout_s`` seconds, then (at once for 0) with SIGKILL."""
        if self.child is not None:
            if timeout_s > 0:
                self.child.terminate(timeout_s)
            self.child.kill()
            self.child = None

    def ask_to_end(self, signal_number: int) -> None:
        """Send SIGTERM or SIGKILL without waiting; a paused process is woken to hear it."""
        self.send(signal_number)
        self.send(signal.SIGCONT)

    def send(self, signal_number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.child is not None:
            self.child.send(signal_number)

    def pid(self) -> int | None:
        """Return the process id, or None when it is down."""
        return self.child.pid if self.child is not None and self.child.alive() else None

    def alive(self) -> bool:
        """Whether the process runs; a paused one does."""
        return self.child is not None and self.child.alive()

    def failure(self, status: int) -> Exception:
        """Return the error that says why the process ended, as far as its log tells."""
        log = self.log_tail()
        text = "\n".join(log_lines(self.log, 400))
        free_mb = shutil.disk_usage(self.directory).free // 2**20
        if "No space left on device" in text or free_mb < 1:  # on a full disk the log can't say it either
            return DiskFull(self.directory, free_mb, 1, log)
        if "Address already in use" in text:
            taken = [port.number for port in self.ports if f":{port.number}" in text]
            return PortInUse((taken or [self.ports[0].number])[0], self.cluster)
        return NodeFailed(self.cluster, self.node_id, status, log)

    def log_tail(self) -> list[str]:
        """Return the last lines of the log that say something."""
        return log_lines(self.log, _LOG_TAIL)

    def _java(self, main_class: str, *arguments: str) -> Child:
        temporary = self.directory / "tmp"
        small = main_class != "kafka.Kafka"
        command = [
            str(find_java().executable), f"-Xmx{128 if small else self._heap_mb}m", "-XX:+UseSerialGC",
            # Class data sharing is on by default ("auto") and makes up half a second; a tool's run is too short for C2.
            *(["-XX:TieredStopAtLevel=1"] if small else []),
            # Without these two a SIGKILL leaves files in the system's temporary directory.
            "-XX:-UsePerfData", f"-Djava.io.tmpdir={temporary}", f"-XX:ErrorFile={self.directory}/jvm-crash.log",
            "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_LOG4J}", "-Dlog4j2.disableJmx=true", f"-Dkafka.logs.dir={self.directory}",
            "-cp", self._classpath, main_class, *arguments,
        ]  # fmt: skip
        return Child(command, self.log, self.directory)


def log_lines(path: Path, count: int) -> list[str]:
    """Return the last ``count`` lines of a file, stack frames left out; none when it does not exist."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 256 * 1024))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return lines[-count:]
