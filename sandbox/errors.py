"""What can go wrong with a local cluster, in the branches of :mod:`airflow_mirror.errors`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from airflow_mirror.errors import InputError, TryAgain


class PortInUse(InputError):
    """A port that was asked for belongs to somebody else."""

    def __init__(self, port: int, cluster: str) -> None:
        self.port, self.cluster = port, cluster
        super().__init__(
            f"cluster {cluster!r}: port {port} on 127.0.0.1 is in use. Stop what listens there (ss -ltnp 'sport = "
            f":{port}' names it), ask for another port, or ask for none: free ports are the default."
        )


class DiskFull(TryAgain):
    """The file system of a data directory has no room."""

    def __init__(self, path: Path, free_mb: int, needed_mb: int, log: Sequence[str] = ()) -> None:
        self.path, self.free_mb, self.needed_mb, self.log = path, free_mb, needed_mb, list(log)
        super().__init__(
            f"no space for Kafka's data in {path}: {free_mb} MB free, {needed_mb} MB needed. Free some space, or point "
            f"data_dir (or TMPDIR) at another disk.{_quoted(log)}"
        )


class JarsUnavailable(TryAgain):
    """The jars of the broker could not be fetched, or are not the recorded ones."""

    def __init__(self, jar_set: str, cause: str, output: Sequence[str] = ()) -> None:
        self.jar_set, self.cause, self.output = jar_set, cause, list(output)
        super().__init__(
            f"Kafka's jars (set {jar_set!r}): {cause}. Nothing was kept. Check the network and try again; behind a "
            f"company's repository, name an Ivy settings file in AIRFLOW_MIRROR_IVY_SETTINGS.{_quoted(output)}"
        )


class OldJavaUnavailable(TryAgain):
    """An old broker needs an old Java, and it could not be fetched."""

    def __init__(self, version: str, java: str, cause: str, output: Sequence[str] = ()) -> None:
        self.version, self.java, self.cause, self.output = version, java, cause, list(output)
        super().__init__(
            f"Kafka {version} runs on Java {java}, and the wheel that has one {cause}. Nothing was kept. Try again, or "
            f"set JAVA_HOME to such a Java; what needs Java 17 then takes it from PATH.{_quoted(output)}"
        )


class KerberosUnavailable(TryAgain):
    """A part of Kerberos is missing on this machine (a KDC, headers, a Java that has it), and could not be fetched."""

    def __init__(self, cause: str, output: Sequence[str] = ()) -> None:
        self.cause, self.output = cause, list(output)
        super().__init__(
            f"Kerberos for the sandbox: {cause}. Nothing was kept. Check the network and apt's sources, or install it "
            "yourself: KDC, its administration, client programs, headers, a Java, a C compiler (Debian: apt-get install "
            "krb5-kdc krb5-admin-server krb5-user libkrb5-dev default-jre-headless gcc)."
            f"{_quoted(output)}"
        )


class NodeFailed(TryAgain):
    """A process of a cluster ended although nobody asked it to; ``part`` is ``node <id>`` or ``ZooKeeper``."""

    def __init__(self, cluster: str, part: str, status: int, log: Sequence[str]) -> None:
        self.cluster, self.part, self.status, self.log = cluster, part, status, list(log)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        super().__init__(f"cluster {cluster!r}, {part} {how} before it was ready.{_quoted(log)}")


class NodeNotReady(TryAgain):
    """A process of a cluster is alive but did not become ready in time."""

    def __init__(self, cluster: str, part: str, timeout_s: float, seen: str, log: Sequence[str]) -> None:
        self.cluster, self.part, self.timeout_s, self.log = cluster, part, timeout_s, list(log)
        super().__init__(
            f"cluster {cluster!r}, {part} was not ready after {timeout_s:g} s ({seen}). A slow machine may need "
            f"a longer ready_timeout_s.{_quoted(log)}"
        )


class StartCancelled(TryAgain):
    """The cluster was stopped while it started."""

    def __init__(self, cluster: str, part: str) -> None:
        self.cluster, self.part = cluster, part
        super().__init__(f"cluster {cluster!r} was stopped while {part} was starting; start it again.")


def without_addresses(lines: Iterable[str]) -> list[str]:
    """Return ``lines`` with addresses cut out: they may hold a company's user name and token."""
    return [re.sub(r"\S+://\S+", "<address>", line.strip()) for line in lines]


def _quoted(lines: Sequence[str]) -> str:
    return "".join(f"\n  | {line}" for line in lines)
