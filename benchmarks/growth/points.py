"""What is measured: copies that differ in one thing. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import Case

_RECORD = 300  # bytes
_MB = 1 << 20
_SMALL_INDEX = {"segment.index.bytes": str(64 << 10)}  # allocated in full, twice a partition: 2 x 10 MB by default
_RING_MB = 24

BATCH, PARTITIONS, SIZE, TASKS, CHECK = "batch size", "partitions", "size", "tasks", "check"


@dataclass(frozen=True)
class Point:
    """One copy.

    :param of: which question it belongs to; those of ``CHECK`` are predicted and not fitted.
    :param batch: bytes of a source batch, about. :param partitions: that are copied. :param mb: of all batches.
    :param tasks: processes that copy at the same time, each its part of the partitions.
    """

    of: str
    batch: int
    partitions: int
    mb: int
    tasks: int = 1

    @property
    def case(self) -> Case:
        """The topic: half text and half noise, not compressed, as the cheapest batch to pass and to merge."""
        per_batch = max(1, self.batch // _RECORD)
        ring = max(16, min(4000, _RING_MB * _MB // self.batch // 2))
        return Case(
            f"growth-{self.batch}-{self.partitions}-{self.mb}", "", self.mb * _MB // _RECORD, _RECORD, per_batch,
            "none", self.partitions, ring_batches=ring, settings=_SMALL_INDEX if self.partitions > 64 else {},
        )  # fmt: skip


POINTS = (
    Point(BATCH, 300, 32, 60),
    Point(BATCH, 3_000, 32, 300),
    Point(BATCH, 18_000, 32, 700),
    Point(BATCH, 64_000, 32, 1_000),
    Point(BATCH, 256_000, 32, 1_500),
    Point(BATCH, 1_000_000, 32, 2_000),
    Point(PARTITIONS, 64_000, 8, 1_000),
    Point(PARTITIONS, 64_000, 128, 1_000),
    Point(PARTITIONS, 64_000, 512, 1_000),
    Point(PARTITIONS, 64_000, 2_048, 1_000),
    Point(SIZE, 1_000_000, 8, 500),
    Point(SIZE, 1_000_000, 8, 1_000),
    Point(SIZE, 1_000_000, 8, 2_000),
    Point(SIZE, 1_000_000, 8, 4_000),
    Point(TASKS, 256_000, 32, 2_000, 1),
    Point(TASKS, 256_000, 32, 2_000, 2),
    Point(CHECK, 8_000, 256, 500, 2),
    Point(CHECK, 32_000, 1_024, 1_000, 1),
    Point(CHECK, 512_000, 16, 3_000, 2),
)
