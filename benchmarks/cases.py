"""What is copied. Values only: nothing is started or read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MERGE_BELOW = 65_536  # bytes; the Mirror's default
_MANY = 100
TOPIC_SETTINGS: Mapping[str, str] = {
    # Nothing may expire while it is copied, and no record's timestamp may be refused.
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


@dataclass(frozen=True)
class Case:
    """One topic and the clusters between which it is copied.

    :param records: how many, at ``--scale 1``; rounded up to whole batches in every partition.
    :param record_bytes: key and value of a record.
    :param per_batch: records of a source batch.
    :param world: ``plain``, ``tls`` (both ends) or ``three`` (the target has three nodes, RF 3).
    :param passes: its batches pass as they are, so that producing them from memory is the limit.
    :param compacted: the source's log cleaner removes records before anybody copies.
    :param offsets: our ``--offsets``; MirrorMaker 2 has one way only.
    :param ring_batches: so many different batches are made and written again and again; 0: every batch is different.
    :param as_files: written as the broker's own files, because producing so many batches would take longer than all runs.
    :param tuned_as: the class of MirrorMaker 2's tuning (:mod:`benchmarks.tuning`), the case's own name if empty.
    """

    name: str
    title: str
    records: int
    record_bytes: int
    per_batch: int
    codec: str
    partitions: int = 8
    world: str = "plain"
    passes: bool = True
    compacted: bool = False
    offsets: str = "identical"
    ring_batches: int = 64
    settings: Mapping[str, str] = field(default_factory=dict)
    as_files: bool = False
    tuned_as: str = ""

    @property
    def merged(self) -> bool:
        """Whether the engine merges batches of this size where they wait (``merge_below``)."""
        return self.per_batch * self.record_bytes < MERGE_BELOW

    def batches(self, scale: float) -> int:
        """Return the number of batches of each partition."""
        return max(2, round(self.records * scale / self.partitions / self.per_batch))

    def total(self, scale: float) -> int:
        """Return how many records are written to the source."""
        return self.batches(scale) * self.per_batch * self.partitions

    @property
    def topic(self) -> str:
        """The source's topic."""
        return f"bench-{self.name}"


# As many records as MirrorMaker 2 needs for 30 s of warm-up and for some 30 s or more behind it, on two cores.
# Batches of close to a megabyte as they are stored: what a producer sends that was tuned for throughput. One of 16 KB is
# what a producer sends that was not: batch.size is 16,384 by default.
CASES: tuple[Case, ...] = (
    Case("big", "1 KB, lz4, batches of 1 MB", 8_000_000, 1024, 1600, "lz4"),
    Case("small-records", "100 B, zstd, batches of 1 MB", 21_000_000, 100, 15_000, "zstd", ring_batches=16),
    Case(
        "small-batches", "300 B, batches of 3 KB, 32 partitions", 10_000_000, 300, 10, "none", partitions=32,
        ring_batches=4000,
    ),
    Case(
        "medium-batches", "300 B, batches of 16 KB, 64 partitions", 12_000_000, 300, 52, "none", partitions=64,
        ring_batches=1000, tuned_as="small-batches",
    ),
    Case("single", "200 B, one record a batch", 8_000_000, 200, 1, "none", ring_batches=20_000, as_files=True),
    Case(
        "compacted", "200 B, lz4, half of it removed by the log cleaner", 12_000_000, 200, 500, "lz4", passes=False,
        compacted=True, offsets="mapped", ring_batches=0, tuned_as="log-append-time",
    ),
    Case(
        "log-append-time", "200 B, lz4, LogAppendTime", 6_000_000, 200, 4000, "lz4", passes=False,
        settings={"message.timestamp.type": "LogAppendTime"},
    ),
    Case("tls", "1 KB, lz4, TLS on both sides", 2_400_000, 1024, 1600, "lz4", world="tls", tuned_as="big"),
    Case(
        "three-nodes", "1 KB, lz4, three nodes, RF 3, acks=all", 3_500_000, 1024, 1600, "lz4", world="three",
        tuned_as="big",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Tail:
    """One topic that is followed, probe by probe, and what else the same mirror has to do.

    :param partitions: of the topic with the probes; the first ``hot`` of them get some.
    :param load_mb_s: MB a second that go into a second topic of the mirror meanwhile.
    :param tuned_as: as of :class:`Case`.
    """

    name: str
    title: str
    partitions: int = 8
    hot: int = 8
    load_mb_s: float = 0.0
    tuned_as: str = ""

    @property
    def probes(self) -> Case:
        """The topic with the probes."""
        # Files of an index are allocated in full: 2 x 10 MB a partition by default.
        small = {"segment.index.bytes": str(256 << 10)} if self.partitions > _MANY else {}
        return Case(self.name, self.title, 0, 200, 1, "none", self.partitions, settings=small)

    @property
    def load(self) -> Case:
        """The topic with the load: batches as a producer with default settings fills them."""
        return Case(f"{self.name}-load", "", 0, 1024, 15, "none")

    @property
    def pattern(self) -> str:
        """A regex of both topics."""
        return f"{self.probes.topic}(-load)?"


TAILS: tuple[Tail, ...] = (
    Tail("latency", "tail"),
    Tail("latency-busy", "tail, beside 20 MB/s", load_mb_s=20.0),
    Tail("latency-many", "tail, 1,000 partitions, 50 of them hot", 1000, 50, tuned_as="latency"),
    # The load's eight partitions belong to the thousand, and to the fifty.
    Tail(
        "latency-many-busy", "tail, 1,000 partitions, 50 of them hot, beside 20 MB/s", 992, 42, 20.0,
        tuned_as="latency-busy",
    ),
)  # fmt: skip
