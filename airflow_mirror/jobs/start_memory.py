"""Where a mirror began whose plan this job does not have: what the target itself remembers of it.

``start="latest"`` and ``start_group`` are a moment; a later job, on any host, must mean the same one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAPS, starts_group
from airflow_mirror.copy.offsets.reader import MapReader
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.start_offsets import Begun, known_as
from airflow_mirror.sync.taking_over import taken_over

log = logging.getLogger(__name__)

_PATIENCE_S = 120.0  # for its first group the cluster has to create the topic of committed offsets


def copy_modes(mirror: Mirror, source_topics: Iterable[str], target: ClusterAdmin) -> Mapping[str, str]:
    """Return the target topics that a job without a plan may fill, each with the mode in which its copy began, if any.

    Without a map the mode can only be identical offsets. The copy compares the target's last batch with the source's,
    and refuses a topic that was filled in another way.
    """
    wanted = [mirror.naming.target_topic(t) for t in source_topics if mirror.selects_topic(t)]
    maps = [] if mirror.offsets == "identical" else [MAPS]  # which a principal then need not see
    there = target.topics([*wanted, *maps])
    begun = MapReader(mirror.name).begun(target.wire) if MAPS in there else set()
    modes = {t: MAPPED if t in there and (t, there[t].topic_id) in begun else IDENTICAL for t in wanted}
    if mirror.start_group is not None:
        modes |= _modes_of_others(mirror, {t: there[t] for t in wanted if t in there and modes[t] != MAPPED}, target)
        return {t: mode for t, mode in modes.items() if mode}
    # What a shared topic holds may be of others, who have begun it in their way.
    return {t: mode for t, mode in modes.items() if mode == MAPPED} if mirror.shares else modes


def _modes_of_others(mirror: Mirror, topics: Mapping[str, TopicInfo], target: ClusterAdmin) -> dict[str, str]:
    """Return the mode of each topic that holds records, as remembered; "" where only an older tool has written them."""
    filled = {
        tp.topic for tp in written(target, [TopicPartition(t, p) for t, i in topics.items() for p in range(i.partitions)])
    }
    positions = target.group_offsets(starts_group(mirror.name))
    remembered = {tp.topic: _remembered(position)[1] for tp, position in positions.items()}
    return {topic: remembered.get(topic, "") for topic in filled}


def begun_at(mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, modes: Mapping[str, str]) -> Begun:
    """Return where this mirror began, as stored by an earlier job.

    :param modes: target topics with mapped offsets have :data:`MAPPED`: their logs say nothing about the source.
    """
    positions = target.group_offsets(starts_group(mirror.name))
    sources = source.topics([name for name in source.topic_names() if mirror.selects_topic(name)])
    names = {mirror.naming.target_topic(name): info for name, info in sources.items()}
    # What a topic holds that is in no mode may be an older tool's.
    unknown = IDENTICAL if mirror.start_group is None else ""
    there = target.topics([name for name in names if modes.get(name, unknown) == IDENTICAL and not mirror.shares])
    begins = written(target, [TopicPartition(i.name, p) for i in there.values() for p in range(i.partitions)])
    known = {name: known_as(info.name, info.topic_id) for name, info in names.items()}
    starts: dict[str, dict[int, int]] = {}
    for tp, log_start in begins.items():
        starts.setdefault(known[tp.topic], {})[tp.partition] = log_start
    for tp, position in positions.items():
        # Without an id the target topic tells whose position it is, unless the mirror selects that topic no more.
        if topic := _remembered(position)[0] or known.get(tp.topic):
            starts.setdefault(topic, {})[tp.partition] = position.offset
    return Begun(starts) if mirror.start_group is None else taken_over(mirror, source, target, starts)


def remember(
    plan: Plan, target: ClusterAdmin, patience_s: float = _PATIENCE_S, pause: Callable[[float], object] = time.sleep
) -> None:  # fmt: skip
    """Store where the plan begins, before anything is copied.

    :param patience_s: how long it is tried. :param pause: sleeps so many seconds.
    :raises MissingRight: no READ on the group: a later job could not know which offsets this one used for "latest".
    """
    if plan.mirror.partitioning == "by_key":
        return  # partitions of both sides don't correspond; the offset maps hold the starts
    positions = {
        TopicPartition(t.target_topic, p): GroupPosition(start, _metadata(t, plan.mirror))
        for t in plan.topics
        for p, start in t.starts.items()
    }
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return target.commit_group_offsets(starts_group(plan.mirror.name), positions, unfenced)
        except TryAgain as e:  # committing the same positions again does no harm
            if time.monotonic() > deadline:
                raise
            log.info("the start of the copy is not stored yet: %s", e)
            pause(1.0)


def _metadata(topic: TopicPlan, mirror: Mirror) -> str:
    # Where a topic held the records of another tool, its log does not tell in which mode the copy began.
    return topic.source_topic_id if mirror.start_group is None else f"{topic.source_topic_id} {topic.mode}"


def _remembered(position: GroupPosition) -> tuple[str, str]:
    """Return the source topic's id of a position that :func:`remember` stored, and the mode in which its copy began.

    The id is "" where brokers have none.
    """
    topic_id, _, mode = position.metadata.partition(" ")
    return topic_id, mode or IDENTICAL


def written(target: ClusterAdmin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start offset of each partition that was ever written to."""
    ends = target.offsets(partitions, "latest")
    return target.offsets([tp for tp, end in ends.items() if end > 0], "earliest")
