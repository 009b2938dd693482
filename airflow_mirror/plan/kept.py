"""Plans on the target: a worker with another disk carries out the same plan, and the loss of a worker loses none.

A plan is written in pieces before anything names it. Which plan of a mirror is the last one is a decision, so that the
next plan continues from the same one on every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.errors import InputError, LedgerNewer, PlanNotKept
from airflow_mirror.ledger import state
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.store import KEEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.ledger.decisions import Decisions, Values
    from airflow_mirror.ledger.state import State

_VERSION = 1


def prefix(mirror: str) -> str:
    """Return what the keys of a mirror's plans begin with; the plan's hash follows."""
    return f"plan/{mirror}/"


def keep(plan: Plan, plans: State, ledger: Decisions) -> None:
    """Write a plan to the target, and decide that it is the mirror's last one. Safe to repeat.

    Of older plans the last :data:`KEEP` stay.

    :param plans: of the keys that begin with :func:`prefix` of the mirror; their values are not needed.
    :raises TryAgain: nobody knows whether it is there; MissingRight: it can't be written.
    """
    name, plan_hash = plan.mirror.name, plan.hash
    plans.write(state.in_pieces(f"{prefix(name)}{plan_hash}", plan.to_json().encode()))
    last = {"v": _VERSION, "hash": plan_hash}
    ledger.decide(lambda values: None if values.get(f"plan/{name}") == last else {f"plan/{name}": last})
    hashes = list(dict.fromkeys(key.split("/")[2] for key in plans.read()))
    too_old = set(hashes[:-KEEP])
    plans.write({key: None for key in plans.read() if key.split("/")[2] in too_old})


def last_hash(values: Values, mirror: str) -> str | None:
    """Return the hash of a mirror's last plan that was not blocked, from what is decided.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    value = values.get(f"plan/{mirror}")
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("v") != _VERSION:
        raise LedgerNewer(f"the last plan of {mirror!r}", value)
    return str(value["hash"])


def fetch(plan_hash: str, mirror: str, target: ClusterAdmin) -> Plan:
    """Return a plan from the target. Errors as :func:`plan_in`."""
    return plan_in(state.state_of(target, f"{prefix(mirror)}{plan_hash}/").read(), mirror, plan_hash)


def plan_in(found: Mapping[str, bytes], mirror: str, plan_hash: str) -> Plan:
    """Return a plan from the target's state.

    :raises PlanNotKept: it is not there, or not complete. :raises InputError: what is there is not this plan.
    """
    text = state.whole(found, f"{prefix(mirror)}{plan_hash}")
    if text is None:
        raise PlanNotKept(mirror, plan_hash)
    plan = Plan.from_json(text.decode())
    if plan.hash != plan_hash:
        raise InputError(f"the target's ledger holds plan {plan.hash} as {plan_hash}. Make the plan again.")
    return plan
