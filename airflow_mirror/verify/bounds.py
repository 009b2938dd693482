"""Compare the bounds of two logs, and select the offsets to read. Pure."""

from __future__ import annotations

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.verify.result import (
    Difference,
    LogBounds,
    PartitionPair,
)
from airflow_mirror.wire.cluster import WireCluster


def window(pair: PartitionPair, source_log: LogBounds, target_log: LogBounds) -> tuple[int, int]:
    """Return the requested offsets [start, end) that both sides hold; an empty range has start == end."""
    start = max(source_log.start, target_log.start, pair.start_offset or 0)
    end = min(source_log.stable, target_log.stable)
    if pair.end_offset is not None:
        end = min(end, pair.end_offset)
    return start, max(start, end)


def unseen(pair: PartitionPair, source_log: LogBounds, target_log: LogBounds) -> int:
    """Return how many offsets that the target should hold and the source has lie before the target's log start."""
    first, end = max(source_log.start, pair.begin), source_log.stable
    if pair.end_offset is not None:
        end = min(end, pair.end_offset)
    return max(0, min(target_log.start, end) - first)


def bounds_difference(pair: PartitionPair, source_log: LogBounds, target_log: LogBounds) -> Difference | None:
    """Judge the bounds alone, because a comparison of the common range can't see these differences.

    A later start alone is not a difference, since retention moves log starts on each side independently, unless
    retention is off on the target. A target that starts at the source's end holds nothing to compare, and must not pass
    as equal. What was compared earlier counts as well: it may have been deleted on the target since.
    """

    def difference(offset: int, kind: str) -> Difference:
        return Difference(offset=offset, kind=kind, source=source_log._asdict(), target=target_log._asdict())

    asked = pair.end_offset
    if asked is None and (source_log.stable, source_log.end) != (target_log.stable, target_log.end):
        return difference(min(source_log.stable, target_log.stable), "end")
    if asked is not None and min(source_log.stable, target_log.stable) < asked:
        return difference(min(source_log.stable, target_log.stable), "end")
    end = source_log.stable if asked is None else asked
    first = max(source_log.start, pair.begin if pair.held else pair.start_offset or 0)
    if first < end and target_log.start > first and (pair.held or target_log.start >= end):
        return difference(first, "missing")
    return None


def through_map(one: OffsetMap, target_log: LogBounds) -> LogBounds:
    """Return the bounds of a target log with mapped offsets as source offsets.

    An open transaction on the target hides the records after it; the log's end is the map's end. A source that begins
    in a hole, and a target that has followed it to the record behind, lack nothing of each other.
    """
    stable = one.source_end if target_log.stable >= one.target_end else one.to_source(target_log.stable).offset
    start = one.source_start if target_log.start <= one.target_start else one.behind(target_log.start)
    return LogBounds(start, max(start, stable), max(start, one.source_end))


def begun_by_now(cluster: WireCluster, tp: TopicPartition, log: LogBounds) -> LogBounds:
    """Return a log's bounds with the start to which retention has moved it since they were read."""
    start = cluster.log_starts([tp])[tp]
    return log._replace(start=min(max(log.start, start), log.end))
