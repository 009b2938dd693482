"""What is copied. Values only: nothing is started or read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
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


# Batches of close to a megabyte as they are stored: what a producer sends that was tuned for throughput.
CASES: tuple[Case, ...] = (
    Case("big", "1 KB, lz4, batches of 1 MB", 2_800_000, 1024, 1600, "lz4"),
    Case("small-records", "100 B, zstd, batches of 1 MB", 18_000_000, 100, 15_000, "zstd", ring_batches=16),
    Case(
        "small-batches", "300 B, batches of 3 KB, 32 partitions", 1_600_000, 300, 10, "none", partitions=32,
        ring_batches=4000,
    ),
    Case("single", "200 B, one record a batch", 300_000, 200, 1, "none", ring_batches=20_000),
    Case(
        "compacted", "200 B, lz4, half of it removed by the log cleaner", 2_400_000, 200, 500, "lz4", passes=False,
        compacted=True, offsets="mapped", ring_batches=0,
    ),
    Case(
        "log-append-time", "200 B, lz4, LogAppendTime", 1_600_000, 200, 4000, "lz4", passes=False,
        settings={"message.timestamp.type": "LogAppendTime"},
    ),
    Case("tls", "1 KB, lz4, TLS on both sides", 1_000_000, 1024, 1600, "lz4", world="tls"),
    Case("three-nodes", "1 KB, lz4, three nodes, RF 3, acks=all", 700_000, 1024, 1600, "lz4", world="three"),
)  # fmt: skip

LATENCY = "latency"
LATENCY_TITLE = "tail: 200 records of 200 B a second, 8 partitions"
