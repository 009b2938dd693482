"""What the target remembers of a mirror: its plans, also as files on this host, and what comparisons have proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.hooks.home import plans_of

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan
    from airflow_mirror.verify.proof import Proofs


def plan_by_hash(plan_hash: str, mirror: Mirror) -> Plan:
    """Return a plan of the mirror as it is amended by now.

    One that another worker made is fetched from the target, and written to a file here. Its amendments never are: what
    was decided since, only the target knows.

    :raises PlanNotKept: neither this host nor the target has it. :raises InputError: the file was changed.
    """
    from airflow_mirror.hooks.kafka import MirrorKafkaHook
    from airflow_mirror.ledger.decisions import Ledger
    from airflow_mirror.plan import ledger_store

    plans = plans_of(mirror)
    plan = plans.load(plan_hash)
    with MirrorKafkaHook(mirror.target, "target").admin() as target:
        ledger = Ledger(target)
        if plan is not None:
            return ledger_store.with_amendments(plan, target, ledger)
        plan = ledger_store.fetch(plan_hash, mirror.name, target, ledger)
    plans.save(plan.rule or plan)
    return plan


def proofs_of(mirror: Mirror, target: ClusterAdmin) -> Proofs:
    """Return what comparisons have proven for the mirror, on whichever worker."""
    from airflow_mirror.verify.proof import Proofs

    return Proofs.on(target, mirror.name)


def last_plan(mirror: Mirror, target: ClusterAdmin) -> Plan | None:
    """Return the mirror's last plan that was not blocked, whichever worker made it; None if there is none.

    :raises LedgerMissing: the target has no ledger. :raises LedgerLost: nobody knows.
    :raises PlanNotKept: the target does not have it any more.
    """
    from airflow_mirror.ledger import decisions
    from airflow_mirror.plan import ledger_store

    ledger = decisions.Ledger(target)
    plan_hash = ledger_store.last_hash(ledger.values(), mirror.name)
    return ledger_store.fetch(plan_hash, mirror.name, target, ledger) if plan_hash else None
