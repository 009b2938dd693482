"""Which releases of Kafka the sandbox starts, and what is different about each."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mirror.errors import InputError

DEFAULT_VERSION = "4.4.0"
TOOLS_VERSION = "4.3.1"  # of the Java tools: MirrorMaker 2 (connect-mirror) is not published for 4.4.0
HADOOP_VERSION = "3.5.0"  # that of the Hadoop jars which come with PySpark
APICURIO_VERSION = "3.0.9"  # the last one seen on Java 17: 3.3.3 needs 21


@dataclass(frozen=True)
class Release:
    """One release of Kafka.

    :param version: as its jars are named, for example ``2.1.1``.
    :param scala: the Scala release in the name of its main jar.
    :param java: the first and the last Java that it is started on; None for no last one.
    """

    version: str
    scala: str
    java: tuple[int, int | None]

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers, so that 2.10 is later than 2.9."""
        return tuple(int(part) for part in self.version.split("."))

    @property
    def needs_zookeeper(self) -> bool:
        """Whether it can't do without ZooKeeper; before 3.3 KRaft was a preview."""
        return self.number < (3, 3)

    @property
    def knows_zookeeper(self) -> bool:
        """Whether it can use ZooKeeper; 4.0 removed it."""
        return self.number < (4,)

    def runs_on(self, java: int) -> bool:
        """Say whether it runs on Java ``java``."""
        first, last = self.java
        return first <= java and (last is None or java <= last)


# Up to 2.3 the ZooKeeper client fails on Java 14 and later. Before 4.0, SASL logins ask for the access controller's
# subject, which Java 24 refuses.
RELEASES = {
    release.version: release
    for release in (
        Release("0.11.0.3", "2.12", (8, 13)),
        Release("1.1.1", "2.12", (8, 13)),
        Release("2.1.1", "2.12", (8, 13)),
        Release("2.8.2", "2.13", (8, 17)),
        Release("3.4.1", "2.13", (8, 17)),
        Release("3.9.1", "2.13", (8, 23)),
        Release(TOOLS_VERSION, "2.13", (17, None)),
        Release(DEFAULT_VERSION, "2.13", (17, None)),
    )
}


def release(version: str) -> Release:
    """Return the release of ``version``.

    :raises InputError: when the sandbox has no such version.
    """
    found = RELEASES.get(version)
    if found is None:
        raise InputError(f"the sandbox has no Kafka {version!r}; it has {', '.join(RELEASES)}.")
    return found
