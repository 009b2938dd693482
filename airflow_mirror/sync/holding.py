"""A plan's topics put on hold while a mirror writes, and taken off hold afterwards: by an operator, or by hand."""

from __future__ import annotations

from airflow_mirror.copy.writer.lease import is_anybody_writing
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, since_boot_s
from airflow_mirror.ledger.decisions import Decisions, Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.plan.ownership import require_active
from airflow_mirror.plan.standing import Clock, since_decided
from airflow_mirror.sync.configs import ConfigsReport, sync_configs
from airflow_mirror.sync.seen_configs import LastSeen, prefix
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
    :raises InputError: the hold is to end, and the topics are somebody else's, or a job may still write to them.
    """
    permit = may_set(Ledger(target), plan, target, hold=hold)
    if not dry_run:
        permit()
    known = LastSeen(plan, state_of(target, prefix(plan.mirror.name)).read()) if source_lost else source
    return sync_configs(plan, known, target, permit, hold=hold, dry_run=dry_run)


def may_set(ledger: Decisions, plan: Plan, target: ClusterAdmin, *, hold: bool, clock: Clock = since_boot_s) -> Permit:
    """Return a permit of the settings of a mirror's target topics. Errors as :func:`sync_plan`."""

    def is_allowed() -> None:
        require_active(ledger, plan, target) if hold else _require_ended(plan, target, ledger)

    return since_decided(ledger, is_allowed, clock)


def _require_ended(plan: Plan, target: ClusterAdmin, ledger: Decisions) -> None:
    name = plan.mirror.name
    ours = {t for t, one in owned_topics(ledger).items() if one.of_mirror(name, plan.source_cluster_id) is not None}
    if others := sorted({t.target_topic for t in plan.topics} - ours):
        raise InputError(
            f"mirror {name!r}", f"topics that it does not own: {some(others)}", "Their settings are for others to change."
        )
    if is_anybody_writing(target.wire, name):
        raise InputError(
            f"mirror {name!r}", "a job holds its writer lease, and without the hold the target deletes while it copies",
            "Stop the job first; a cutover stops the tail.",
        )  # fmt: skip
