"""Swap the kept fence of a finished cutover for one that spares the mirror, so that a mirror can copy back.

At no moment may an application write: what takes the place of the DENY for everybody is in force at every broker before
that is deleted (:meth:`.fence.AclFence.swap`). What will be changed is decided before the first change, and each of them
is permitted by that decision. A process that dies at any line leaves a fence that is up, and whoever lifts it undoes
exactly that; the next call goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_mirror.cutover import decision
from airflow_mirror.cutover.decided_fence import intent_of
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent, by_key, fence_text
from airflow_mirror.cutover.mirror_only_fence import spare
from airflow_mirror.cutover.platform import Platform, Side, require_source
from airflow_mirror.errors import FenceGone, FenceNotSwapped, LedgerMissing
from airflow_mirror.kafka.model import Acl
from airflow_mirror.sync.acls import OfFence


def swap_fence(
    on: Platform, mirror: str, own: str, *, run: str = "", copied_by: str = "", check_only: bool = False
) -> list[str]:  # fmt: skip
    """Swap a fence; return it as readable lines. May be repeated.

    :param own: the mirror's principal on the source. :param run: only if it is this run's; "": of whichever run.
    :param copied_by: name of the mirror that is to write there: its writing is ended before the fence is lifted.
    :param check_only: change nothing.
    :raises FenceNotSwapped: it is not possible, or no cutover has kept such a fence. :raises FenceGone: it is not up.
        Nothing was changed.
    :raises InputError: the source is another cluster than the fenced one. Nothing was changed.
    :raises FenceUnproven: a broker does not know of it in time; nobody may write. Call it again.
    :raises CutoverTakenOver: somebody lifts the fence meanwhile.
    """
    ledger, source = on.target.ledger, on.source
    # What is read here is compared when the swap is decided: who closes the fence meanwhile, or swaps it otherwise,
    # refuses it.
    state = decision.fence_state(ledger.values(), mirror)
    if state is None or state.phase != decision.OPENED or (run and state.run != run):
        raise FenceNotSwapped([f"no cutover of mirror {mirror!r} has finished with a fence that it kept"])
    if state.kind != AclFence.kind:
        raise FenceNotSwapped([f"it is a callable ({state.name}): only ACLs tell the mirror from applications"])
    # What is decided below would lift the fence of the right one with the rules of another.
    require_source(source.admin, on.target.plan(mirror, state.plan, state.revision))
    fence, intent = AclFence(source.admin, clock=source.clock), intent_of(on.target, mirror, state)
    # Swapped so, a fence that somebody has opened by hand would shut applications out that write there by now.
    if not fence.is_up(intent):
        raise FenceGone(source.admin.role)
    # Worked out from the rules as they are: a call that died half way finds its own rules among them, and adds nothing
    # twice.
    swapped = _swapped(intent, source.admin.describe_acls(resource_type="TOPIC"), own)
    if not check_only:
        swapped = replace(swapped, copied_by=copied_by or intent.copied_by)
        # Decided before the first rule. Dies behind it: the DENY for everybody stands, perhaps beside some of what
        # takes its place; who lifts it deletes both, and creates again what was, or was to be, taken away.
        # Dies amid the swap: on each topic everybody is denied, or everybody but the mirror, and nothing in between; the
        # next call goes on.
        state = _decided(on, mirror, state, swapped)
        fence.swap(swapped, decision.permit(ledger, mirror, state))
        # Once more: a rule may have come to the broker behind somebody's lifting. It names principals, so nobody can
        # tell it from the site's own, and it is not taken back; the caller hears that the fence is not the one it
        # wanted (docs/security.md).
        decision.permit(ledger, mirror, state)()
    return fence_text(AclFence.kind, swapped)


def of_fence(target: Side, mirror: str) -> OfFence:
    """Return what the fence of a mirror has changed on its source, for who copies that one's rules.

    What denies to everybody is told by its form (:func:`~airflow_mirror.sync.acl_rules.looks_like_fence`). What lets
    everybody read a topic that was open is so only beside that, and comes a request before it.
    """
    try:
        there = decision.fence_state(target.ledger.values(), mirror)
    except LedgerMissing:
        there = None
    # Told while it is lifted as well: until that is decided to be done, its rules may be there, and those of others not
    # yet.
    if there is None:
        return OfFence()
    decided, name = f"{there.id} {there.phase}", name_of(mirror, there.run, there.id)
    if there.is_over:
        return OfFence(decided=decided, name=name)
    intent = intent_of(target, mirror, there)
    added = frozenset({*intent.allow, *intent.instead_deny, *intent.instead_allow})
    return OfFence(added, frozenset(intent.taken_away), decided, name)


def _decided(on: Platform, mirror: str, decided: FenceState, intent: Intent) -> FenceState:
    value = intent.value()
    # The same again is no decision: two that swap at once for one mirror end with one record.
    return decided if decided.intent == value else decision.change_intent(on.target.ledger, mirror, decided, value)


def _swapped(before: Intent, listed: Sequence[Acl], own: str) -> Intent:
    """Return the intent of the fence that takes its place; what an earlier call has changed, or meant to, stays in it."""
    if before.spared not in ("", own):
        raise FenceNotSwapped([f"it spares {before.spared} already, and not {own}"])
    spared = spare(listed, before.topics, own, before.deny)
    # What an earlier call has created is no more among what is missing; left out of the intent, nobody would ever
    # delete it.
    add = {*spared.add, *before.instead_deny, *(before.instead_allow if before.spared else ())}
    return replace(
        before,
        spared=own,
        denied=by_key([acl for acl in add if acl.permission == "DENY"], "principal"),
        allowed=frozenset(acl.name for acl in add if acl.permission == "ALLOW"),
        replaced=by_key({*spared.remove, *before.taken_away}, "host"),
    )
