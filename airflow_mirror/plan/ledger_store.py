"""Plans on the target: a worker with another disk carries out the same plan, and the loss of a worker loses none.

A plan is written in pieces before anything names it. Which plan of a mirror is the last one is a decision, so that the
next plan continues from the same one on every worker. So is its last amendment; which are the others, that one says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from airflow_mirror.errors import InputError, LedgerMissing, PlanNotKept, PlanUnreadable, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger import state
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.records import AMENDMENT, LAST_AMENDMENT, LAST_PLAN, PLAN
from airflow_mirror.ledger.state import State
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.amendment import amended, chain
from airflow_mirror.plan.model import VERSION, Amendment, Plan
from airflow_mirror.plan.owned import with_key_partitions
from airflow_mirror.plan.requirements import require_own_name
from airflow_mirror.plan.store import KEEP


def keep(
    plan: Plan, plans: State, ledger: Decisions, also: Callable[[Values], Values] = lambda _: {}, *, as_last: bool = True,
    dag: str | None = None,
) -> None:  # fmt: skip
    """Write a plan to the target, and decide that it is the mirror's last one. Safe to repeat.

    Of older plans the last :data:`KEEP` stay, and each that a decision names: a tail runs for months by one plan, while
    a new one is made every day, and a failover needs that of the tail.

    :param plans: of the keys of the mirror's plans; their values are not needed.
    :param also: what is decided with it.
    :param as_last: False: it is there for whoever knows its hash, and the last one stays what it is.
    :param dag: id of the DAG whose readers may see the mirror; None: as the plan before.
    :raises TryAgain: nobody knows whether it is there; MissingRight: it can't be written.
    :raises LedgerNewer: a newer version of the package has made the last one.
    :raises InputError: the mirror is new, and its name can't be told from another one's.
    """
    name, plan_hash = plan.mirror.name, plan.hash
    plans.write(PLAN.pieces(plan.to_json(), name, plan_hash))
    if as_last:

        def change(values: Values) -> Values | None:
            require_own_name(values, name)
            noted = {"dag": one} if (one := dag or dag_of(values, name)) else {}
            last = LAST_PLAN.put({"hash": plan_hash, **noted}, name)
            # The same plan again is no decision, unless a retirement has marked it: that one goes by what was decided.
            if LAST_PLAN.get(values, name) == last[LAST_PLAN.key(name)]:
                return None
            return {**last, **also(values)}

        ledger.decide(change)
        # Whoever retires the mirror may have removed it right before that. From here on it removes none (`jobs.retire`).
        keep_again(plan, plans)
    too_old = set(hashes(plans.read(), name)[:-KEEP]) - set(_texts(ledger.values()))

    # A plan may be made anew as an old one, and be the last one again, while this process slept.
    def require_unnamed(values: Values) -> None:
        if named := too_old.intersection(_texts(values)):
            raise TryAgain(f"plan {min(named)[:12]} of mirror {name!r} is not removed", "it is used again")

    plans.write(
        {key: None for key in plans.read() if _whose(key) in too_old}, permit=lambda: require_unnamed(ledger.values())
    )
    left = {LAST_AMENDMENT.key(name, old) for old in too_old}

    def forgotten(values: Values) -> Values | None:
        require_unnamed(values)
        return {key: None for key in left if values.get(key) is not None} or None

    ledger.decide(forgotten)


def hashes(keys: Iterable[str], mirror: str) -> list[str]:
    """Return the hashes of a mirror's plans that are kept, the newest last.

    :param keys: of the state, in its order.
    """
    return list(dict.fromkeys(_whose(key) for key in keys if key.startswith(PLAN.below(mirror))))


def keep_on(
    target: ClusterAdmin, plan: Plan, ledger: Decisions, *, as_last: bool = True, dag: str | None = None
) -> None:  # fmt: skip
    """As :func:`keep`, of a plan of the mirror on ``target``."""
    keep(plan, state.state_of(target, PLAN.below(plan.mirror.name), keys_only=True), ledger, as_last=as_last, dag=dag)


def keep_again(plan: Plan, plans: State) -> bool:
    """Write a plan and its amendments if the target has lost them; return whether it had.

    :param plans: as for :func:`keep`.
    """
    name, there = plan.mirror.name, plans.read()
    texts = PLAN.pieces(plan.to_json(), name, plan.hash)
    for one in plan.amendments:
        texts |= AMENDMENT.pieces(one.to_json(), name, plan.hash, one.hash)
    if lost := {key: text for key, text in texts.items() if key not in there}:
        plans.write(lost)
    return bool(lost)


def amend(amendment: Amendment, mirror: str, plans: State, ledger: Decisions) -> None:
    """Write an amendment to the target, and decide that it is its plan's last one. Safe to repeat.

    :raises TryAgain: the plan was amended by somebody else meanwhile, or nobody knows; look again.
    """
    plans.write(AMENDMENT.pieces(amendment.to_json(), mirror, amendment.plan, amendment.hash))

    def change(values: Values) -> Values | None:
        there = revision(values, mirror, amendment.plan)
        if there == amendment.hash:
            return None
        if there != amendment.after:
            raise TryAgain(
                f"plan {amendment.plan[:12]} was amended by somebody else",
                f"its last revision is {there[:12]}, and was {amendment.after[:12]}",
                "Its topics are looked at again.",
            )
        return LAST_AMENDMENT.put({"hash": amendment.hash}, mirror, amendment.plan)

    ledger.decide(change)


def revision(values: Values, mirror: str, plan_hash: str) -> str:
    """Return what a plan's last amendment is, from what is decided: its hash, or the plan's if there is none.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    found = LAST_AMENDMENT.get(values, mirror, plan_hash)
    return plan_hash if found is None else str(found["hash"])


def last_hash(values: Values, mirror: str) -> str | None:
    """Return the hash of a mirror's last plan that was not blocked, from what is decided.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    found = LAST_PLAN.get(values, mirror)
    return None if found is None else str(found["hash"])


def dag_of(values: Values, mirror: str) -> str | None:
    """Return the id of the DAG that has planned a mirror, as its ledger notes it; None: it notes none.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    found = LAST_PLAN.get(values, mirror)
    return None if found is None or not found.get("dag") else str(found["dag"])


def is_retiring(values: Values, mirror: str) -> bool:
    """Return whether a mirror's retirement has begun, and the mirror was not planned since.

    :raises LedgerNewer: a newer version of the package wrote its last plan.
    """
    found = LAST_PLAN.get(values, mirror)
    return found is not None and bool(found.get("retiring"))


def retiring(values: Values, mirror: str) -> Values | None:
    """Return what makes :func:`is_retiring` so: who plans the mirror decides that, also with the same plan.

    None: it is so, or nobody has planned the mirror. :raises LedgerNewer: as there.
    """
    found = LAST_PLAN.get(values, mirror)
    return LAST_PLAN.put({**found, "retiring": True}, mirror) if found and not is_retiring(values, mirror) else None


def unknown_mirror(mirror: str, known: Iterable[str]) -> InputError:
    """Return the error for a mirror of which the target's ledger knows nothing."""
    remedy = f"Give one of {', '.join(sorted(known))}." if known else "It knows none."
    return InputError(f"mirror {mirror!r}", "the target's ledger knows no such mirror. Nothing was changed", remedy)


def fetch(plan_hash: str, mirror: str, target: ClusterAdmin, ledger: Decisions) -> Plan:
    """Return a plan from the target, with its amendments. Errors as :func:`fetch_rule` and :func:`with_amendments`."""
    return with_amendments(fetch_rule(plan_hash, mirror, target), target, ledger)


def fetch_rule(plan_hash: str, mirror: str, target: ClusterAdmin) -> Plan:
    """Return a plan from the target as it was made. Errors as :func:`plan_in`."""
    return plan_in(state.state_of(target, PLAN.below(mirror, plan_hash)).read(), mirror, plan_hash)


def with_amendments(plan: Plan, target: ClusterAdmin, ledger: Decisions) -> Plan:
    """Return a plan as it is amended by now. A plan that is at hand says nothing about that: only the target does.

    What :func:`.owned.with_key_partitions` knows is in it.

    :raises LedgerLost: nobody knows what was decided. :raises PlanUnreadable: an amendment is not there, or not readable.
    """
    try:
        values = ledger.values()
    except LedgerMissing:
        return plan  # nothing was ever decided
    last = revision(values, plan.mirror.name, plan.hash)
    if last != plan.revision:
        found = state.state_of(target, AMENDMENT.below(plan.mirror.name, plan.hash)).read()
        plan = amended(plan.rule or plan, amendments_in(found, plan.mirror.name, plan.hash, last))
    return with_key_partitions(plan, values, target)


def amendments_in(found: Mapping[str, bytes], mirror: str, plan_hash: str, last: str) -> list[Amendment]:
    """Return a plan's amendments up to ``last`` from the target's state, in order.

    :raises PlanUnreadable: one is missing, or can't be read.
    """
    names = AMENDMENT.under(found, mirror, plan_hash)
    texts = [AMENDMENT.text(found, mirror, plan_hash, name) for name in names]
    try:
        known = [Amendment.from_json(text) for text in texts if text is not None]
        return chain({one.hash: one for one in known}, plan_hash, last)
    except InputError as e:
        raise PlanUnreadable(mirror, plan_hash, e.what_and_why) from e


def last_between(
    mirror: str, source: ClusterAdmin, target: ClusterAdmin, ledger: Decisions,
    told: Callable[[str], object] = lambda _: None,
) -> Plan | None:  # fmt: skip
    """Return the plan that a mirror's next one continues from; None if there is none for these clusters.

    :param told: is told why one that was made does not count.
    :raises LedgerLost: nobody knows. :raises LedgerNewer: a newer version of the package made it.
    :raises PlanUnreadable: it can't be loaded. Passed over, what it alone knows would be lost: settings before the hold,
        and where topics began.
    """
    try:
        plan_hash = last_hash(ledger.values(), mirror)
        last = fetch(plan_hash, mirror, target, ledger) if plan_hash else None
    except LedgerMissing:  # nothing was ever planned
        return None
    except PlanNotKept as e:
        told(f"no earlier plan to continue from: {e}")
        return None
    clusters = source.cluster_id(), target.cluster_id()
    if last is not None and (last.source_cluster_id, last.target_cluster_id) != clusters:
        told("the last plan is for other clusters; it says nothing about these")
        return None
    return last


def _texts(value: object) -> Iterator[str]:
    """Yield every text in decoded JSON, but for keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _whose(key: str) -> str:
    """Return the hash of the plan to which a key of the state belongs."""
    return key.split("/")[2].partition("+")[0]


def plan_in(found: Mapping[str, bytes], mirror: str, plan_hash: str) -> Plan:
    """Return a plan from the target's state.

    :raises PlanNotKept: it is not there, or not complete. :raises LedgerNewer: a newer version of the package made it.
    :raises PlanUnreadable: what is there is not this plan, or an older version made it.
    """
    text = PLAN.text(found, mirror, plan_hash)
    if text is None:
        raise PlanNotKept(mirror, plan_hash)
    try:
        plan = Plan.from_json(text)
    except InputError as e:
        if newer := _newer_parts(text):
            raise PLAN.unread(newer, mirror, plan_hash) from e
        raise PlanUnreadable(mirror, plan_hash, e.what_and_why) from e
    if plan.hash != plan_hash:
        raise PlanUnreadable(mirror, plan_hash, f"the target's ledger holds plan {plan.hash} as {plan_hash}")
    return plan


def _newer_parts(text: str) -> dict[str, Any]:
    """Return what only a newer version of the package writes into a plan: its version, fields; empty: nothing.

    :param text: JSON that can't be loaded.
    """
    try:
        values = json.loads(text)
        if (version := values["version"]) != VERSION:
            return {"v": version} if version > VERSION else {}
        unknown = {*values} - {f.name for f in fields(Plan)} - {"hash"}
        unknown |= {*values["mirror"]} - {f.name for f in fields(Mirror)}
        return {"v": version, "fields": sorted(unknown)} if unknown else {}
    except (KeyError, TypeError, ValueError):
        return {}
