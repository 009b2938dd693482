"""The steps that the operators do before a job, for a job that was started without a plan.

They plan, create missing topics, turn retention and compaction off on the target's topics, and store the plan and the
offsets that ``start="latest"`` or ``start_group`` was resolved to. Nothing is stored on this machine, because the next
job may run anywhere, and so may a failover.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAPS, starts_group
from airflow_mirror.config import load
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.errors import InputError, LedgerMissing, MissingRight, TryAgain, VerificationFailed
from airflow_mirror.jobs.request import CopyRequest, JobRequest
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import recently, unfenced
from airflow_mirror.ledger.decisions import Decisions, Ledger, Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.configs import not_held
from airflow_mirror.plan.decide import NOTHING
from airflow_mirror.plan.ledger_store import keep_on, last_between
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.ownership import begin, require_active, topics_of
from airflow_mirror.plan.recreated_topics import decisions_of
from airflow_mirror.plan.start_offsets import Begun
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.taking_over import taken_over
from airflow_mirror.sync.topics import create_target_topics

log = logging.getLogger(__name__)

_PATIENCE_S = 120.0  # for its first group the cluster has to create the topic of committed offsets


def plan_by_hand(request: CopyRequest) -> Plan:
    """Plan, and prepare the target's topics for the copy.

    :raises PlanBlocked: with every finding, before anything is written.
    :raises TopicsOwned: topics belong to another mirror. :raises MirrorCutOver: topics are in production.
    :raises LedgerLost: nobody knows whose they are. :raises LedgerMissing: there is none, and topics hold data.
    :raises InputError: without ``--hold``, the settings of a target topic that holds data would delete records.
    """
    mirror = request.mirror
    with _clusters(request) as (source, target):
        ledger = Ledger(target)
        last = last_between(mirror.name, source, target, ledger)
        earlier = last.final_configs if last else {}
        known, probe = known_by_hand(mirror, source, target, ledger), not request.no_probe
        plan = plan_clusters(
            mirror, source, target, known=known, earlier=earlier, probe_target=probe, decisions=decisions_of(ledger)
        )
        with suppress(LedgerMissing):  # whose they are says more than that they hold data
            require_active(ledger, plan, target)
        plan.raise_if_blocked()
        for finding in plan.findings:
            if finding.level == "warn":
                log.warning("%s", finding)
        ready = [t for t in plan.topics if t.target_exists]
        if not request.hold:
            _check_held(ready, target)
        begin(plan, target)
        permit = recently(lambda: require_active(ledger, plan, target))
        create_target_topics(plan, target, permit)
        if ready:
            report = sync_configs(replace(plan, topics=tuple(ready)), source, target, permit, hold=True)
            for line in report.drift:
                log.warning("changed while the mirror writes; set it back when the mirror is done: %s", line)
        if mirror.begins_once:
            remember(plan, target)
        _keep(plan, last, source, target, ledger)
    return plan


def _keep(plan: Plan, last: Plan | None, source: ClusterAdmin, target: ClusterAdmin, ledger: Ledger) -> None:
    """Store the plan where a failover, which may ask nobody else, finds the mirror's topics.

    A job by hand may be about a part of the mirror. Then the last plan stays the last one.
    """
    planned = {t.source_topic for t in plan.topics}
    left_out = [t.source_topic for t in last.topics if t.source_topic not in planned] if last else []
    try:
        keep_on(target, plan, ledger, as_last=not source.topics(left_out))
    except MissingRight as e:
        log.warning("the plan is not stored, and the copy goes on; a failover would not know what was copied: %s", e)


def plan_to_verify(request: JobRequest) -> Plan:
    """Plan without writing anything.

    :raises VerificationFailed: names the topics that the target does not have.
    """
    with _clusters(request) as (source, target):
        plan = plan_clusters(request.mirror, source, target)
    plan.raise_if_blocked()
    require_target(plan)
    return plan


def require_target(plan: Plan) -> None:
    """Return if the target has every topic of a plan.

    :raises VerificationFailed: names those that it does not have.
    """
    if missing := [t for t in plan.topics if not t.target_exists]:
        raise VerificationFailed([f"{t.source_topic}: the target has no topic {t.target_topic!r}" for t in missing])


@contextmanager
def _clusters(request: JobRequest) -> Iterator[tuple[ClusterAdmin, ClusterAdmin]]:
    with (
        ClusterAdmin(load(request.source, "source")) as source,
        ClusterAdmin(load(request.target, "target")) as target,
    ):
        yield source, target


def known_by_hand(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, ledger: Decisions
) -> Mapping[str, str]:  # fmt: skip
    """Return the target topics that jobs by hand have made the mirror's own, each with the mode in which its copy began.

    :raises LedgerLost: nobody knows.
    """
    try:
        owned = topics_of(ledger, mirror.name, source.cluster_id(), target)
    except LedgerMissing:  # nobody has ever copied to this cluster
        return {}
    return {topic: mode for topic, mode in copy_modes(mirror, source.topic_names(), target).items() if topic in owned}


def plan_clusters(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, *, known: Mapping[str, str] | None = None,
    probe_target: bool = False, earlier: Mapping[str, Mapping[str, str]] = NOTHING, decisions: Values = NOTHING,
) -> Plan:  # fmt: skip
    """Plan for a job without a plan.

    :param known: target topics whose records are the mirror's; None: as if all were, and whoever compares finds out; then
        nothing is to be copied.
    :param earlier: as in :func:`.plan.build`, as ``decisions``.
    """
    to_copy = known is not None
    if known is None:
        known = copy_modes(mirror, source.topic_names(), target)
    begun = begun_at(mirror, source, target, known) if mirror.begins_once else None
    return build(
        mirror, source, target, known_topics=known, probe_target=probe_target, to_copy=to_copy, begun=begun,
        earlier=earlier, decisions=decisions,
    )  # fmt: skip


def copy_modes(mirror: Mirror, source_topics: Iterable[str], target: ClusterAdmin) -> Mapping[str, str]:
    """Return the target topics that a job without a plan may fill, each with the mode in which its copy began, if any.

    Without a map the mode can only be identical offsets. The copy compares the target's last batch with the source's,
    and refuses a topic that was filled in another way.
    """
    wanted = [mirror.naming.target_topic(t) for t in source_topics if mirror.selects_topic(t)]
    maps = [] if mirror.offsets == "identical" else [MAPS]  # which a principal then need not see
    there = target.topics([*wanted, *maps])
    begun = MapStore(mirror.name).begun(target.wire) if MAPS in there else set()
    modes = {t: MAPPED if t in there and (t, there[t].topic_id) in begun else IDENTICAL for t in wanted}
    if mirror.start_group is not None:
        modes |= _modes_of_others(mirror, {t: there[t] for t in wanted if t in there and modes[t] != MAPPED}, target)
        return {t: mode for t, mode in modes.items() if mode}
    # What a shared topic holds may be of others, who have begun it in their way.
    return {t: mode for t, mode in modes.items() if mode == MAPPED} if mirror.shares else modes


def _modes_of_others(mirror: Mirror, topics: Mapping[str, TopicInfo], target: ClusterAdmin) -> dict[str, str]:
    """Return the mode of each topic that holds records, as remembered; "" where only an older tool has written them."""
    filled = {
        tp.topic
        for tp in _written(target, [TopicPartition(t, p) for t, i in topics.items() for p in range(i.partitions)])
    }
    positions = target.group_offsets(starts_group(mirror.name))
    remembered = {tp.topic: _remembered(position)[1] for tp, position in positions.items()}
    return {topic: remembered.get(topic, "") for topic in filled}


def _check_held(topics: Iterable[TopicPlan], target: ClusterAdmin) -> None:
    """Refuse topics that hold data, possibly somebody else's, and whose settings would have to change."""
    by_name = {t.target_topic: t for t in topics}
    configs = target.topic_configs(by_name)
    wrong = {name: lines for name, t in by_name.items() if (lines := not_held(t, configs[name]))}
    counts = {name: info.partitions for name, info in target.topics(wrong).items()}
    filled = {tp.topic for tp in _written(target, [TopicPartition(n, p) for n, c in counts.items() for p in range(c)])}
    if filled:
        raise InputError(
            "target topics that hold data are not ready for a copy; nothing was touched",
            [f"{name}: {line}" for name in sorted(filled) for line in wrong[name]],
            "Set this yourself, or run again with --hold: the job then sets it and logs each change. Set it back when "
            "the mirror is done.",
        )


# --- where latest was ---------------------------------------------------------------------------------------------------


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
    written = _written(target, [TopicPartition(i.name, p) for i in there.values() for p in range(i.partitions)])
    starts: dict[str, dict[int, int]] = {}
    for tp, log_start in written.items():
        starts.setdefault(names[tp.topic].topic_id, {})[tp.partition] = log_start
    for tp, position in positions.items():
        starts.setdefault(_remembered(position)[0], {})[tp.partition] = position.offset
    return Begun(starts) if mirror.start_group is None else taken_over(mirror, source, target, starts)


def _metadata(topic: TopicPlan, mirror: Mirror) -> str:
    # Where a topic held the records of another tool, its log does not tell in which mode the copy began.
    return topic.source_topic_id if mirror.start_group is None else f"{topic.source_topic_id} {topic.mode}"


def _remembered(position: GroupPosition) -> tuple[str, str]:
    """Return the source topic's id of a position that :func:`remember` stored, and the mode in which its copy began."""
    topic_id, _, mode = position.metadata.partition(" ")
    return topic_id, mode or IDENTICAL


def _written(target: ClusterAdmin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start offset of each partition that was ever written to."""
    ends = target.offsets(partitions, "latest")
    return target.offsets([tp for tp, end in ends.items() if end > 0], "earliest")


def remember(plan: Plan, target: ClusterAdmin) -> None:
    """Store where the plan begins, before anything is copied.

    :raises MissingRight: no READ on the group: a later job could not know which offsets this one used for "latest".
    """
    if plan.mirror.partitioning == "by_key":
        return  # partitions of both sides don't correspond; the offset maps hold the starts
    positions = {
        TopicPartition(t.target_topic, p): GroupPosition(start, _metadata(t, plan.mirror))
        for t in plan.topics
        for p, start in t.starts.items()
    }
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return target.commit_group_offsets(starts_group(plan.mirror.name), positions, unfenced)
        except TryAgain as e:  # committing the same positions again does no harm
            if time.monotonic() > deadline:
                raise
            log.info("the start of the copy is not stored yet: %s", e)
            time.sleep(1.0)
