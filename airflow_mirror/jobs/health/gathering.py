"""Ask both clusters how a mirror is. Only Kafka is asked, so that any worker can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

from airflow_mirror.common.clock import SYSTEM, Clock
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.jobs.health.at_position import times_at
from airflow_mirror.jobs.health.judging import Facts, Limits, TailFacts
from airflow_mirror.jobs.progress.retained import retention_bytes, retention_s
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.held import named
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan.configs import held_values
from airflow_mirror.plan.findings import Questions
from airflow_mirror.plan.finite_hold import older
from airflow_mirror.plan.inventory import is_tiered
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync import lag
from airflow_mirror.sync.hold import changed_settings
from airflow_mirror.sync.maps import OffsetMaps

# What a tail needs to copy a record that it is in time with. A source that gets old records all the time has one that
# is late at each moment; only what was there a while ago, and is not copied yet, says that the tail is.
BETWEEN_S = 5.0
_RATE_S = 3600.0  # what is written in five seconds is a matter of chance

Settings = Callable[[], Mapping[str, Mapping[str, ConfigEntry]]]  # of the topics that are behind, asked for once


def gather(
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    look: Callable[[], TailFacts],
    fences: Callable[[], Sequence[str]],
    limits: Limits,
    *,
    handed_over: Callable[[], Collection[str]] = frozenset,
    clock: Clock = SYSTEM,
) -> Facts:
    """Return what both clusters say of the mirror of a plan. Takes ten seconds; if its tail is lost, forty.

    What can't be asked is in :attr:`Facts.unknown`, and the rest is asked all the same. A source that is another
    cluster than the plan's is asked nothing: what it says is of another mirror.

    :param look: returns what the target knows of the tail. :param fences: returns :attr:`Facts.fences`.
    :param handed_over: returns the plan's target topics that are not the mirror's any more, whose settings are as those
        want them whose they are.
    :param clock: record timestamps are compared with its time.
    """
    to = Questions()

    def of_target() -> Facts:
        return _of_target(to, plan, target, fences, handed_over)

    found = to.ask("topics", source.cluster_id)
    if found is not None and found != plan.source_cluster_id:
        other = f"it is cluster {found}, and mirror {plan.mirror.name!r} copies from {plan.source_cluster_id}"
        return replace(of_target(), tail=to.ask("tail", look) or TailFacts(), other_source=other)
    with OffsetMaps(plan, source.config, target.config) as maps:
        mapped = maps.positions if maps else None

        def lags() -> list[lag.PartitionLag]:
            return lag.measure(plan, source, target, mapped)

        first = to.ask("lag", lags) or ()
        before = {one.source: max(one.end, one.log_end) for one in first}
        clock.sleep(BETWEEN_S)
        tail = to.ask("tail", look) or TailFacts()
        now, gone = to.ask("lag", lags) or (), to.ask("topics", lambda: lag.gone(plan, source)) or {}
        facts = replace(of_target(), tail=tail, lags=now, gone=gone)
    held = named(source, lag.standing(first, facts.lags))
    by_lag = sorted(facts.lags, key=lambda one: -one.records)
    behind = {one.source: one.position for one in by_lag if one.position < before.get(one.source, 0)}
    late = to.ask("lag", lambda: _late(source, behind, limits, clock.time())) or ()
    settings = cache(lambda: source.topic_configs({tp.topic for tp in behind}))
    racing, lost = to.ask("retention", lambda: _retention(source, settings, behind, limits, clock.time())) or ({}, {})
    grown = {one.source: one.log_end - before[one.source] for one in facts.lags if one.source in before}
    by_size = to.ask("retention_bytes", lambda: _by_size(source, settings, behind, grown, limits, clock.time())) or {}
    shown = [str(one) for one in held]
    return replace(facts, late=late, racing=racing, racing_by_size=by_size, lost=lost, held=shown)


def _of_target(
    to: Questions, plan: Plan, target: ClusterAdmin, fences: Callable[[], Sequence[str]],
    handed_over: Callable[[], Collection[str]],
) -> Facts:  # fmt: skip
    """Return what the target says, but for its tail, which takes a while to look at."""
    return Facts(
        missing=to.ask("topics", lambda: _missing(plan, target)) or (),
        lease=to.ask("lease", lambda: _lease(plan, target)) or "",
        not_held=to.ask("hold", lambda: _not_held(plan, target, handed_over())) or (),
        free_bytes=to.ask("disk", target.usable_bytes) or {},
        fences=to.ask("fence", fences) or (),
        unknown=to.unknown,
    )


def _missing(plan: Plan, target: ClusterAdmin) -> list[str]:
    there = target.topics([t.target_topic for t in plan.topics])
    return sorted(t.target_topic for t in plan.topics if t.target_topic not in there)


def _late(
    source: ClusterAdmin, behind: Mapping[TopicPartition, int], limits: Limits, now_s: float
) -> set[TopicPartition]:
    """Return the partitions that lack an old record. :param behind: those first that lack most."""
    if limits.max_lag_s is None:
        return set()
    than_ms = _ms_ago(now_s, limits.max_lag_s)
    late = older(source, behind, than_ms)
    # The others have a young record, and nothing says that it is not one that was copied long ago.
    others = {tp: position for tp, position in behind.items() if tp not in late}
    return late | {tp for tp, ms in times_at(source.wire, others).items() if ms < than_ms}


def _ms_ago(now_s: float, age_s: float) -> int:
    return round((now_s - age_s) * 1000)


def _retention(
    source: ClusterAdmin, settings: Settings, behind: Mapping[TopicPartition, int], limits: Limits, now_s: float
) -> tuple[dict[TopicPartition, float], dict[TopicPartition, int]]:
    """Return the partitions without headroom, and what the source has already deleted.

    Brokers delete a segment by its newest timestamp, and from the front of the log only: no record goes before its own
    time is up (UnifiedLog), nor before that of a younger one in front of it.
    """
    if not behind:
        return {}, {}
    starts = source.offsets(behind, "earliest")
    lost = {tp: starts[tp] - position for tp, position in behind.items() if starts[tp] > position}
    kept = {name: retention_s(entries) for name, entries in settings().items()}
    by_time: dict[float, dict[TopicPartition, int]] = defaultdict(dict)
    for tp, position in behind.items():
        if (time_s := kept[tp.topic]) is not None:
            by_time[time_s][tp] = position
    racing = {
        tp: time_s
        for time_s, positions in by_time.items()
        for tp in older(source, positions, _ms_ago(now_s, time_s - limits.headroom_s(time_s)))
    }
    return racing, lost


def _by_size(
    source: ClusterAdmin, settings: Settings, behind: Mapping[TopicPartition, int], grown: Mapping[TopicPartition, int],
    limits: Limits, now_s: float,
) -> dict[TopicPartition, float]:  # fmt: skip
    """Return the partitions to which ``retention.bytes`` leaves too little headroom, and in how many seconds it ends.

    At the rate of the last hour, by the records' times; where no record is that young, at that between the two looks.
    Brokers delete whole segments, so it may take longer. Of a topic in tiered storage nobody tells the size.

    :param grown: offsets written between the two looks.
    :raises MissingRight: sizes need DESCRIBE on the cluster; asked for only where a topic has such a limit.
    """
    kept = dict[str, int]()
    for name, entries in settings().items():
        if (limit := retention_bytes(entries)) is not None and not is_tiered(entries):
            kept[name] = limit
    positions = {tp: position for tp, position in behind.items() if tp.topic in kept}
    if not positions:
        return {}
    sizes, starts, ends = (
        source.wire.log_sizes(positions), source.offsets(positions, "earliest"), source.offsets(positions, "latest"),
    )  # fmt: skip
    young = source.offsets(positions, _ms_ago(now_s, _RATE_S))
    racing = {}
    for tp, position in positions.items():
        if not sizes[tp] or ends[tp] <= starts[tp]:
            continue
        room = kept[tp.topic] * (ends[tp] - starts[tp]) / sizes[tp]  # in offsets
        rate = (ends[tp] - young[tp]) / _RATE_S if young[tp] >= 0 else grown.get(tp, 0) / BETWEEN_S
        left = position - (ends[tp] - room)
        if left <= 0:
            racing[tp] = 0.0
        elif rate > 0 and left / rate < limits.headroom_s(room / rate):
            racing[tp] = left / rate
    return racing


def _lease(plan: Plan, target: ClusterAdmin) -> str:
    name = plan.mirror.name
    if lease.is_anybody_writing(target.wire, name):
        return "a job"
    return "a cutover" if lease.is_writing_ended(target.wire, name) else "nobody"


def _not_held(plan: Plan, target: ClusterAdmin, but: Collection[str]) -> list[tuple[str, str, str | None]]:
    held = {t.target_topic: held_values(t) for t in plan.topics if t.target_topic not in but}
    changed = changed_settings(held, target) if held else {}
    return [(topic, key, entry.value) for topic, keys in sorted(changed.items()) for key, entry in keys.items()]
