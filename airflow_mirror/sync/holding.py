"""A plan's topics put on hold while a mirror writes, and taken off hold afterwards: by an operator, or by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from airflow_mirror.copy.writer.lease import is_anybody_writing
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, since_boot_s
from airflow_mirror.ledger.decisions import Decisions, Ledger
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.plan.configs import Rules
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import openings, owned_topics, owners
from airflow_mirror.plan.requirements import require_active, require_planned_clusters, require_planned_ids
from airflow_mirror.plan.standing import Clock, since_decided
from airflow_mirror.plan.upstream import copied_back
from airflow_mirror.sync.configs import ConfigsReport, TopicConfigs, sync_configs
from airflow_mirror.sync.seen_configs import LastSeen, Released, dump, ended, prefix
from airflow_mirror.wording import some


def sync_plan(
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    *,
    hold: bool,
    dry_run: bool = False,
    source_lost: bool = False,
) -> ConfigsReport:
    """Bring the settings of a plan's target topics in line with the source's; see :func:`sync_configs`.

    :param source_lost: don't ask the source: apply what a tail saw last of it, or else the plan's.
    :raises NotKept: a change is not visible when read back.
    :raises MirrorCutOver: ``hold`` is set for topics that were handed over to applications.
    :raises InputError: a cluster is not the plan's; or the hold is to end, and the topics are somebody else's, or a job
        may still write to them; or the target refuses a setting, and has taken all others.
    """
    ledger = Ledger(target)
    permit = may_set(ledger, plan, target, hold=hold)
    if not dry_run:
        permit()
    # By another source's settings nothing may differ: the hold would be noted as ended, and stay on.
    require_planned_clusters(plan, None if source_lost else source, target)
    state = state_of(target, prefix(plan.mirror.name))
    if hold:
        known: TopicConfigs = LastSeen(plan, state.read()) if source_lost else source
        return sync_configs(plan, known, target, permit, hold=True, dry_run=dry_run)
    # A look needs no ledger: a person compares two clusters before there is a mirror.
    owned = owners(ledger.peek())[0] if dry_run else owned_topics(ledger)
    report = end_hold(
        plan, None if source_lost else source, target, state, permit, openings(owned, plan), dry_run=dry_run
    )
    if report.refused:
        raise InputError(
            f"mirror {plan.mirror.name!r}: the target refuses {some(report.refused)}", "all other settings are set",
            "Have its policy take them, or set what is right for these topics yourself: they are still on hold in that.",
        )  # fmt: skip
    return report


def end_hold(
    plan: Plan, source: ClusterAdmin | None, target: ClusterAdmin, state: State, permit: Permit,
    opened: Mapping[str, str], *, dry_run: bool = False,
) -> ConfigsReport:  # fmt: skip
    """End the hold of a plan's topics: of those in production once behind each opening.

    :param source: None: it is lost, and what was last seen of it counts. :param state: has the notes of
        :mod:`.seen_configs`. :param opened: the openings of the topics in production, by target topic.
    """
    noted, name = state.read(), plan.mirror.name
    seen = LastSeen(plan, noted)
    known = seen if source is None else _released(plan, source, seen) if opened else source
    over = ended(name, opened, noted)
    due = replace(plan, topics=tuple(t for t in plan.topics if t.target_topic not in over))
    rest = replace(plan, topics=tuple(t for t in plan.topics if t.target_topic in over))
    # What is another value by now was chosen by its owners, who may have years of records on it.
    left = sync_configs(rest, known, target, permit, hold=False, dry_run=True).drift if rest.topics else ()
    if not due.topics:
        return ConfigsReport(hold=False, changes=(), applied=True, left=left)
    report = sync_configs(due, known, target, permit, hold=False, dry_run=dry_run)
    if not dry_run:
        # Behind the settings: who dies in between sets them once more, at its next try. One that the target refuses is
        # tried again as well.
        now_ms = round(time.time() * 1000)
        refused = {line.partition(":")[0] for line in report.refused}
        notes: dict[str, bytes | None] = {
            f"{prefix(name)}{t.target_topic}": dump(seen.overrides[t.source_topic], now_ms, opened[t.target_topic])
            for t in due.topics
            if t.target_topic in opened and t.target_topic not in refused
        }
        if notes:
            state.write(notes, permit)
    return replace(report, left=left)


def _released(plan: Plan, source: ClusterAdmin, seen: LastSeen) -> Released:
    copied = partial(copied_back, Ledger(source), source, target_id=plan.target_cluster_id)
    return Released(source, seen, Rules.of(plan.mirror), copied)


def may_set(ledger: Decisions, plan: Plan, target: ClusterAdmin, *, hold: bool, clock: Clock = since_boot_s) -> Permit:
    """Return a permit of the settings of a mirror's target topics. Errors as :func:`sync_plan`."""

    def is_allowed() -> None:
        if not hold:
            return _require_ended(plan, target, ledger)
        require_active(ledger, plan, target)
        require_planned_ids(ledger, plan, target)

    return since_decided(ledger, is_allowed, clock)


def _require_ended(plan: Plan, target: ClusterAdmin, ledger: Decisions) -> None:
    name = plan.mirror.name
    shares = {t: one.of_mirror(name, plan.source_cluster_id) for t, one in owned_topics(ledger).items()}
    there = target.topics([t.target_topic for t in plan.topics])
    # By its id as well: a topic that was created again is whoever's has created it.
    ours = {t for t, one in shares.items() if one and t in there and one.topic_id in ("", there[t].topic_id)}
    if others := sorted({t.target_topic for t in plan.topics} - ours):
        raise InputError(
            f"mirror {name!r}", f"topics that it does not own: {some(others)}", "Their settings are for others to change."
        )
    if is_anybody_writing(target.wire, name):
        raise InputError(
            f"mirror {name!r}", "a job holds its writer lease, and without the hold the target deletes while it copies",
            "Stop the job first; a cutover stops the tail.",
        )  # fmt: skip
