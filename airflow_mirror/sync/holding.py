"""A plan's topics put on hold while a mirror writes, and taken off hold afterwards: by an operator, or by hand."""

from __future__ import annotations

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, recently, unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.life import require_active
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.configs import ConfigsReport, sync_configs
from airflow_mirror.sync.seen_configs import LastSeen, prefix


def sync_plan(
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    *,
    hold: bool,
    dry_run: bool = False,
    source_lost: bool = False,
    permit: Permit = unfenced,
) -> ConfigsReport:
    """Bring the settings of a plan's target topics in line with the source's; see :func:`sync_configs`.

    :param source_lost: don't ask the source: apply what a tail saw last of it, or else the plan's.
    :param permit: for what ends a hold.
    :raises NotKept: a change is not visible when read back.
    :raises MirrorCutOver: ``hold`` is set for topics that were handed over to applications.
    """
    ledger = Ledger(target)
    if hold and not dry_run:
        permit = recently(lambda: require_active(ledger, plan, target))
        permit()
    known = LastSeen(plan, state_of(target, prefix(plan.mirror.name)).read()) if source_lost else source
    return sync_configs(plan, known, target, permit, hold=hold, dry_run=dry_run)
