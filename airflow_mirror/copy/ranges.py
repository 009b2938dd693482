"""What to copy: a range of one partition, and how ranges are dealt out to tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.topology import id_of

IDENTICAL, MAPPED = "identical", "mapped"


@dataclass(frozen=True, kw_only=True)
class CopyRange:
    """Offsets [start_offset, end_offset) of one source partition, to be copied to one partition of ``target_topic``.

    :param start_offset: first offset that an empty target gets; otherwise the target's log end decides.
    :param end_offset: where to stop; None follows the source forever.
    :param source_topic_id: the source topic's id when this was planned; a re-created topic has another. None: unknown.
    :param target_topic_id: the target topic's id when it was known to be this mirror's, likewise. Empty: it has none.
    :param mode: ``identical`` (every record keeps its offset) or ``mapped`` (an offset map tells where it is).
    :param target_partition: None means the same partition; another one only with ``key_partitions``.
    :param key_partitions: partition count of the target topic, with key partitioning: only records whose keys belong to
        ``target_partition`` are copied. One source partition then has one range per target partition.
    """

    source_topic: str
    target_topic: str
    partition: int
    start_offset: int
    end_offset: int | None = None
    source_topic_id: str | None = None
    target_topic_id: str | None = None
    mode: str = IDENTICAL
    target_partition: int | None = None
    key_partitions: int | None = None

    # Cached, because the loop reads both once per turn for each of its partitions.
    @cached_property
    def source(self) -> TopicPartition:
        """The partition that is read."""
        return TopicPartition(self.source_topic, self.partition)

    @cached_property
    def target(self) -> TopicPartition:
        """The partition that is written."""
        there = self.partition if self.target_partition is None else self.target_partition
        return TopicPartition(self.target_topic, there)

    @cached_property
    def source_id(self) -> bytes:
        """The source topic's id as requests carry it; empty: not known."""
        return id_of(self.source_topic_id).bytes if self.source_topic_id else b""

    @property
    def is_mapped(self) -> bool:
        """True if offsets change on the way."""
        return self.mode == MAPPED

    @property
    def map_key(self) -> str:
        """Name of the offset map of this flow of records, unique within a Mirror."""
        if self.key_partitions is None:
            return f"{self.target_topic}/{self.partition}"
        return f"{self.target_topic}/{self.partition}-to-{self.target.partition}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; ``CopyRange(**d)`` is its inverse."""
        return asdict(self)


def deal(ranges: Iterable[CopyRange], tasks: int, weight: Mapping[TopicPartition, int]) -> list[list[CopyRange]]:
    """Deal ranges out to at most ``tasks`` lists of about equal weight; a partition is never split (order).

    Heaviest first, to the lightest list so far: within 4/3 of the best possible split (Graham 1969).

    :param weight: per source partition, the cost of its copy (bytes, or records); missing counts as 0.
    """
    heap: list[tuple[int, int]] = [(0, i) for i in range(max(tasks, 1))]
    lists: list[list[CopyRange]] = [[] for _ in heap]
    for one in sorted(ranges, key=lambda r: (-weight.get(r.source, 0), r.source)):
        load, index = heapq.heappop(heap)
        lists[index].append(one)
        # The 1 spreads empty partitions, which still cost requests.
        heapq.heappush(heap, (load + weight.get(one.source, 0) + 1, index))
    return [part for part in lists if part]


def total_offsets(ranges: Sequence[CopyRange]) -> int:
    """Return the number of offsets that bounded ranges span."""
    return sum(max(0, (r.end_offset or r.start_offset) - r.start_offset) for r in ranges)
