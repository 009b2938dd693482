"""A Java program of a cluster: start it, end it, and say why it ended."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sandbox import jars
from sandbox.errors import DiskFull, NodeFailed, PortInUse
from sandbox.java import java_for
from sandbox.ports import ReservedPort
from sandbox.process import Child
from sandbox.versions import Release

_LOG_TAIL = 12  # lines of the log that an error quotes


@dataclass(frozen=True)
class Installed:
    """A release of Kafka on this machine: the Java that runs it, and its jars as a class path."""

    release: Release
    java: Path
    classpath: str


def install(release: Release, progress: TextIO | None = None, *, kerberos: bool = False) -> Installed:
    """Fetch what is missing of ``release`` and the Java for it.

    :param kerberos: brokers accept logins by Kerberos.
    :raises JavaNotFound, OldJavaUnavailable, JarsUnavailable, KerberosUnavailable: what needs the user's hands.
    """
    java = java_for(release, progress, kerberos=kerberos)
    return Installed(release, java, jars.classpath("broker", version=release.version, progress=progress))


class Program:
    """A process of a cluster that may be started and ended many times.

    :param cluster: the cluster's name, for errors.
    :param part: what it is, for errors: ``node 1``.
    :param directory: holds its log and its temporary files.
    :param ports: the reserved ports that it listens on.
    """

    def __init__(
        self, cluster: str, part: str, directory: Path, ports: Sequence[ReservedPort], installed: Installed
    ) -> None:
        self.cluster, self.part, self.directory, self.ports, self.installed = cluster, part, directory, ports, installed
        self.log = directory / "kafka.log"
        self.child: Child | None = None

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
        return NodeFailed(self.cluster, self.part, status, log)

    def log_tail(self) -> list[str]:
        """Return the last lines of the log that say something."""
        return log_lines(self.log, _LOG_TAIL)

    def java(self, heap_mb: int, options: Sequence[str], *main: str) -> Child:
        """Start a main class with its arguments; ``options`` are the JVM's."""
        temporary = self.directory / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        command = [
            str(self.installed.java), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC",
            # Without these two a SIGKILL leaves files in the system's temporary directory.
            "-XX:-UsePerfData", f"-Djava.io.tmpdir={temporary}", f"-XX:ErrorFile={self.directory}/jvm-crash.log",
            "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true",
            *self._logging(), f"-Dkafka.logs.dir={self.directory}", *options, "-cp", self.installed.classpath, *main,
        ]  # fmt: skip
        return Child(command, self.log, self.directory)

    def _logging(self) -> list[str]:
        if self.installed.release.number >= (4,):
            settings = Path(__file__).with_name("log4j2.properties")
            return [f"-Dlog4j2.configurationFile={settings}", "-Dlog4j2.disableJmx=true"]
        return [f"-Dlog4j.configuration={Path(__file__).with_name('log4j.properties').as_uri()}"]


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
