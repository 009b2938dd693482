"""The fence that a decision tells of: its intent, its topics, and the fence itself, built anew."""

from __future__ import annotations

from collections.abc import Collection

from airflow_mirror.common.policy import COLON
from airflow_mirror.cutover import decision
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.fence import AclFence, Fence
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.errors import (
    InputError,
    LedgerNewer,
)
from airflow_mirror.plan.model import Plan


def intent_of(target: Side, mirror: str, state: FenceState) -> Intent:
    """Return what a decided fence has changed, by the plan that it pins. Errors as :meth:`.raised.Raised.of`."""
    return intent_in(pinned_plan(target, mirror, state), state)


def pinned_plan(target: Side, mirror: str, state: FenceState) -> Plan:
    """Return the plan that a decided fence pins, as it was amended then. Errors as :meth:`.raised.Raised.of`."""
    return target.plan(mirror, state.plan, state.revision)


def intent_in(plan: Plan, state: FenceState) -> Intent:
    """Return what a decided fence has changed. :param plan: that it pins."""
    return Intent.of(state.intent, [t.source_topic for t in plan.topics])


def topics_of_another(on: Platform, other: str) -> Collection[str] | None:
    """Return what another mirror's fence is about, as our ledger has decided it; nothing if it is over.

    None: nothing is decided there about it, or it can't be read any more, so it may be about any topic.

    :param other: as the source names it, ``mirror:run:attempt``.
    """
    mirror, _, rest = other.partition(COLON)
    attempt = rest.rpartition(COLON)[2]
    try:
        state = decision.fence_state(on.target.ledger.values(), mirror)
        if state is None or state.id != attempt:
            return None
        # Over, and named still: the name came late. That it is over is decided behind the brokers' lists, which have no
        # rule.
        return () if state.is_over else intent_of(on.target, mirror, state).topics
    # Its plan is lost or damaged, or a newer version decided it: that mirror's fault, and ours does not end by it.
    except (InputError, LedgerNewer):
        return None


def fence_for(kind: str, name: str, given: Fence | None, source: Side) -> Fence:
    """Return the fence that was raised.

    What is decided about ACLs is complete, whatever fence is given now; any other fence has to be given again. If a fence
    of another kind lifted it, it would count as lifted and still be up.

    :raises InputError: the fence can't be built.
    """
    if given is not None and given.kind == kind:
        return given
    if kind == AclFence.kind:
        return AclFence(source.admin, clock=source.clock)
    got = "none" if given is None else f"one of kind {given.kind!r}"
    raise InputError(
        f"the fence that is up is of kind {kind!r} ({name or 'nobody says which'})",
        f"{got} was given",
        "Pass the fence that was used: airflow-mirror lift-fence --fence package.module.function, or fence= of "
        "LiftFenceOperator. The ledger's word is not enough: whoever may write there could name any function.",
    )
