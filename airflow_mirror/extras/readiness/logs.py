"""The source's logs, as the race needs them: both ends, how far the copy is, rates, and what expires when."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.readiness.race import HORIZON_S, Log
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan import Plan

# Shares of retention.ms at which is asked what has expired by then: closer where it matters.
_SHARES = (0.0, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Moment:
    """Where the copy and the source's ends are at one moment. Of partitions without a position nothing is copied yet."""

    positions: Offsets
    ends: Offsets


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What deletes a topic's records; None: nothing of that kind does.

    :param segment_bytes, segment_s: how large a segment gets, which goes as a whole.
    """

    retention_s: float | None
    retention_bytes: int | None
    segment_bytes: int
    segment_s: float


def limits_of(configs: Mapping[str, ConfigEntry]) -> Limits:
    """Return what deletes the records of a topic with these settings."""

    def number(key: str) -> int:
        entry = configs.get(key)
        return int(entry.value) if entry is not None and entry.value is not None else -1

    policy = configs.get("cleanup.policy")
    deletes = policy is None or "delete" in (policy.value or "")
    ms, size = (number(key) if deletes else -1 for key in ("retention.ms", "retention.bytes"))
    segment_ms, segment_bytes = number("segment.ms"), number("segment.bytes")
    return Limits(
        retention_s=None if ms < 0 else ms / 1000, retention_bytes=None if size < 0 else size,
        segment_bytes=segment_bytes if segment_bytes > 0 else 1 << 30,
        segment_s=segment_ms / 1000 if segment_ms > 0 else HORIZON_S,
    )  # fmt: skip


def now(plan: Plan, source: ClusterAdmin, target: ClusterAdmin, mapped: Offsets | None) -> Moment:
    """Return where each partition is. The target is read first; read second, it could seem ahead.

    :param mapped: source offsets up to which partitions with mapped offsets are copied; None: nobody may know, and they
        are left out.
    """
    found = target.topics([t.target_topic for t in plan.topics])
    routes = {
        TopicPartition(t.target_topic, p): TopicPartition(t.source_topic, p)
        for t in plan.topics
        if t.mode == "identical" and t.target_topic in found
        for p in range(min(t.partitions, found[t.target_topic].partitions))
    }
    first, ends = target.offsets(routes, "earliest"), target.offsets(routes, "latest")
    # An empty log is one of which nothing is copied yet, though it may be primed up to some offset.
    copied = {routes[tp]: end for tp, end in ends.items() if end > first[tp]} | dict(mapped or {})
    by_map = {t.source_topic for t in plan.topics if t.mode != "identical"} if mapped is None else set()
    return Moment(copied, source.offsets([tp for tp in begins(plan) if tp.topic not in by_map], "latest"))


def begins(plan: Plan) -> dict[TopicPartition, int]:
    """Return where the plan begins to copy each partition."""
    return {TopicPartition(t.source_topic, p): t.starts.get(p, 0) for t in plan.topics for p in range(t.partitions)}


def expiring(
    source: ClusterAdmin, ends: Offsets, limits: Mapping[str, Limits], at_ms: int
) -> dict[TopicPartition, list[tuple[float, int]]]:
    """Return what time retention keeps, now and later, of each partition that has such a limit: see :class:`.Log`."""
    found: dict[TopicPartition, list[tuple[float, int]]] = {}
    by_limit: dict[float, list[TopicPartition]] = {}
    for tp in ends:
        keeps_s = limits[tp.topic].retention_s
        if keeps_s is not None:
            by_limit.setdefault(keeps_s, []).append(tp)
    for keeps_s, tps in sorted(by_limit.items()):
        for share in _SHARES:
            since_ms = round(at_ms - keeps_s * (1 - share) * 1000)
            if since_ms < 0:  # before 1970: nothing is as old; as a timestamp it would ask for an end
                continue
            for tp, offset in source.offsets(tps, since_ms).items():
                found.setdefault(tp, []).append((keeps_s * share, ends[tp] if offset < 0 else offset))
        for tp in tps:
            found.setdefault(tp, []).append((keeps_s, ends[tp]))
    return found


def with_remote(
    sizes: Offsets, tiered: Collection[str], sampled: Mapping[str, int], starts: Offsets, ends: Offsets
) -> dict[TopicPartition, int]:
    """Return bytes of logs with those of topics in tiered storage as they were sampled.

    Log directories hold the local part alone. Taken for all, an offset would seem small, and what ``retention.bytes``
    keeps large: records would be lost that seemed safe.

    :param sampled: bytes of whole topics; of those that are missing nothing is known, and their partitions are left out.
    """
    lengths = {tp: max(0, ends[tp] - start) for tp, start in starts.items() if tp in ends}
    found = {tp: size for tp, size in sizes.items() if tp.topic not in tiered}
    for topic in sampled.keys() & set(tiered):
        its = {tp: length for tp, length in lengths.items() if tp.topic == topic}
        found |= {tp: round(sampled[topic] * length / max(1, sum(its.values()))) for tp, length in its.items()}
    return found


def logs(
    plan: Plan, before: Moment, after: Moment, watched_s: float, starts: Offsets, limits: Mapping[str, Limits],
    expires: Mapping[TopicPartition, list[tuple[float, int]]], sizes: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Log]:  # fmt: skip
    """Return each partition that both looks saw.

    :param starts: log starts. :param sizes: bytes of logs; missing: nobody tells. Then what size deletes is not known.
    """
    found, planned = {}, begins(plan)
    for tp in sorted(before.ends.keys() & after.ends.keys() & starts.keys()):
        limit, held = limits[tp.topic], after.ends[tp] - starts[tp]
        # What was deleted before a copy begins was not missed by it: that is retention's everyday work.
        begin = max(planned[tp], starts[tp])
        position = after.positions.get(tp, begin)
        moved = position - before.positions.get(tp, begin)
        # Offsets and not bytes are what a log is asked for; a log without records tells nothing about later ones.
        an_offset = sizes[tp] / held if held > 0 and sizes.get(tp) else None
        room = None if limit.retention_bytes is None or an_offset is None else limit.retention_bytes / an_offset
        found[tp] = Log(
            start=starts[tp], end=after.ends[tp], position=position,
            produced_per_s=max(0, after.ends[tp] - before.ends[tp]) / watched_s if watched_s else 0.0,
            copied_per_s=moved / watched_s if watched_s and moved > 0 else None,
            expires=expires.get(tp, ()), room=room,
            segment=None if an_offset is None else limit.segment_bytes / an_offset, offset_bytes=an_offset,
            segment_s=limit.segment_s,
        )  # fmt: skip
    return found
