"""The steps that the operators do before a job, for a job that was started without a plan.

They plan, create missing topics, turn retention and compaction off on the target's topics, and store the plan and the
offsets that ``start="latest"`` or ``start_group`` was resolved to. Nothing is stored on this machine, because the next
job may run anywhere, and so may a failover.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.errors import InputError, LedgerMissing, MissingRight, VerificationFailed
from airflow_mirror.jobs.planning import plan_to_read, planned
from airflow_mirror.jobs.request import CopyRequest, JobRequest
from airflow_mirror.jobs.start_memory import remember, written
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan import Plan
from airflow_mirror.plan.configs import not_held
from airflow_mirror.plan.ledger_store import keep_on
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.ownership import begin
from airflow_mirror.plan.requirements import require_active
from airflow_mirror.plan.standing import since_decided
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.topics import create_target_topics

log = logging.getLogger(__name__)


def plan_by_hand(request: CopyRequest) -> Plan:
    """Plan, and prepare the target's topics for the copy.

    :raises InputError: with every finding, before anything is written.
    :raises TopicsOwned: topics belong to another mirror. :raises MirrorCutOver: topics are in production.
    :raises LedgerLost: nobody knows whose they are. :raises LedgerMissing: there is none, and topics hold data.
    :raises InputError: without ``--hold``, the settings of a target topic that holds data would delete records.
    """
    mirror = request.mirror
    with ClusterAdmin(load(request.source, "source")) as source, ClusterAdmin(load(request.target, "target")) as target:
        ledger = Ledger(target)
        plan, last = planned(mirror, source, target, ledger, probe=not request.no_probe, by_hand=True)
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
        permit = since_decided(ledger, lambda: require_active(ledger, plan, target))
        created = create_target_topics(plan, target, permit).created
        if late := [t for t in plan.topics if not t.target_exists and t.target_topic not in created]:
            # Somebody else has created them behind the plan, with settings of their own.
            if not request.hold:
                _check_held(late, target)
            ready += late
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
    with ClusterAdmin(load(request.source, "source")) as source, ClusterAdmin(load(request.target, "target")) as target:
        plan = plan_to_read(request.mirror, source, target)
    plan.raise_if_blocked()
    require_target(plan)
    return plan


def require_target(plan: Plan) -> None:
    """Return if the target has every topic of a plan.

    :raises VerificationFailed: names those that it does not have.
    """
    if missing := [t for t in plan.topics if not t.target_exists]:
        raise VerificationFailed([f"{t.source_topic}: the target has no topic {t.target_topic!r}" for t in missing])


def _check_held(topics: Iterable[TopicPlan], target: ClusterAdmin) -> None:
    """Refuse topics that hold data, possibly somebody else's, and whose settings would have to change."""
    by_name = {t.target_topic: t for t in topics}
    configs = target.topic_configs(by_name)
    wrong = {name: lines for name, t in by_name.items() if (lines := not_held(t, configs[name]))}
    counts = {name: info.partitions for name, info in target.topics(wrong).items()}
    filled = {tp.topic for tp in written(target, [TopicPartition(n, p) for n, c in counts.items() for p in range(c)])}
    if filled:
        raise InputError(
            "target topics that hold data are not ready for a copy; they were not touched",
            [f"{name}: {line}" for name in sorted(filled) for line in wrong[name]],
            "Set this yourself, or run again with --hold: the job then sets it and logs each change. Set it back when "
            "the mirror is done.",
        )
