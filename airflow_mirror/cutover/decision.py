"""What becomes of a fence is decided on one key of the target's ledger, so that a target never opens without its fence.

::

    (nothing) -> up -> opened              the target is open; the mirror's topics are in production
                 up -> lifting -> lifted   producers are let in again; nothing was opened
    (nothing) -> opened                    a source that returns after a failover: the target was open before

Each arrow is one decision, by compare-and-set: who comes second loses and stops. ``opened`` is one record with the
topics that it hands over, and void if the broker appended it more than ``max_fence_s`` after ``up``. ADR 27 has the
interleavings.

A fence that is lifted keeps its last value. Without that, an owner that was frozen before its ``up`` could not tell
"nobody was here" from "somebody has undone it".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import CutoverTakenOver, FenceStands, LedgerNewer
from airflow_mirror.plan.life import mark_cut_over, take_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_mirror.ledger.decisions import Decisions, Values
    from airflow_mirror.plan.model import Plan

PATIENCE_S = 20.0  # for one decision; an election takes nine seconds
UP, OPENED, LIFTING, LIFTED = "up", "opened", "lifting", "lifted"
_VERSION = 1
_KEY = "fence/"


@dataclass(frozen=True, kw_only=True)
class FenceState:
    """What is decided about a mirror's fence.

    :param run: of the cutover; ``attempt`` of that run. :param plan: its plan's hash.
    :param owner: names the process that raised it, or that opens the target in its place.
    :param lifter: names the process that lifts it.
    :param process: of the owner, as in :class:`~airflow_mirror.cutover.report.CutoverReport`: by its signs of life others
        see that it lives.
    :param max_fence_s: after which time guards lift it without a ledger.
    :param alarm: path of the function by which guards call a person; "": none (:mod:`.alarm`).
    """

    run: str
    attempt: int
    plan: str
    owner: str
    max_fence_s: float
    phase: str = UP
    lifter: str = ""
    process: Mapping[str, Any] = field(default_factory=dict)
    alarm: str = ""

    @property
    def stands(self) -> bool:
        """Whether it is, or may be, up, and nothing has been opened behind it."""
        return self.phase in (UP, LIFTING)

    def is_of(self, run: str, attempt: int) -> bool:
        """Return whether it is the fence of this attempt."""
        return (self.run, self.attempt) == (run, attempt)


def fence_state(values: Values, mirror: str) -> FenceState | None:
    """Return what is decided about a mirror's fence; None if there never was one.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    value = values.get(_KEY + mirror)
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("v") != _VERSION:
        raise LedgerNewer(f"the fence of {mirror!r}", value)
    return FenceState(**{key: value[key] for key in FenceState.__dataclass_fields__ if key in value})


def go_up(life: Decisions, mirror: str, mine: FenceState, before: FenceState | None) -> int:
    """Decide that a fence goes up; return when it is too late to open behind it, in ms of the broker's clock.

    :param before: what was decided when the attempt began.
    :raises CutoverTakenOver: something else is by now: another attempt has begun, or somebody has undone this one.
    """

    def change(values: Values) -> Values:
        if fence_state(values, mirror) != before:
            raise CutoverTakenOver(mine.run)
        return _value(mirror, mine)

    life.decide(change)
    return life.time_ms(_KEY + mirror) + round(mine.max_fence_s * 1000)


def open_behind(
    life: Decisions, plan: Plan, owner: str, topic_ids: Mapping[str, str], at: str, until_ms: int,
    also: Callable[[Values], Values] = lambda _: {},
) -> None:  # fmt: skip
    """Decide in one record that the target is open, and that the plan's target topics are in production.

    :param topic_ids: present ids of the target topics, by name. :param at: ISO 8601. :param until_ms: from `go_up`.
    :param also: what is decided with it.
    :raises CutoverTakenOver: the fence is being lifted, or was. :raises DecidedLate: ``max_fence_s`` are over.
    :raises TopicsOwned: topics belong to other mirrors. :raises Undecided: nobody knows; see `begin_lifting`.
    """

    def fence(values: Values) -> Values:
        opened = replace(_of_owner(values, plan.mirror.name, owner, UP), phase=OPENED)
        return {**_value(plan.mirror.name, opened), **also(values)}

    mark_cut_over(life, plan, topic_ids, at, also=fence, until_ms=until_ms)


def go_on_opening(life: Decisions, mirror: str, there: FenceState, owner: str, process: Mapping[str, Any]) -> None:
    """Decide who opens the target in place of a process that ended in between.

    :param there: what it left. :raises CutoverTakenOver: somebody else was faster.
    """

    def change(values: Values) -> Values:
        found = fence_state(values, mirror)
        if found != there:
            raise CutoverTakenOver(there.run)
        return _value(mirror, replace(found, owner=owner, process=process))

    life.decide(change)


def close_again(life: Decisions, mirror: str, plan_hash: str, owner: str) -> None:
    """Decide that what `open_behind` decided is undone: the owner's call failed, and the target is not open.

    :raises CutoverTakenOver: somebody else opens it in our place.
    """

    def fence(values: Values) -> Values:
        mine = _of_owner(values, mirror, owner, OPENED)
        return _value(mirror, replace(mine, phase=LIFTING, lifter=owner))

    take_back(life, plan_hash, also=fence)


def stand_behind_open(life: Decisions, mirror: str, mine: FenceState) -> None:
    """Decide that a fence stands whose target is open already, by a failover. Safe to repeat.

    :param mine: with phase OPENED. :raises FenceStands: another one is up, or is being lifted.
    """

    def change(values: Values) -> Values | None:
        there = fence_state(values, mirror)
        if there is not None and there.is_of(mine.run, mine.attempt):
            return None
        if there is not None and there.stands:
            raise FenceStands(mirror, there.run, f"is {there.phase}, as is decided in the target's ledger")
        return _value(mirror, mine)

    life.decide(change)


def begin_lifting(
    life: Decisions, mirror: str, attempt: FenceState, lifter: str, *, owned: bool = False,
    before: FenceState | None = None,
) -> FenceState:  # fmt: skip
    """Decide that an attempt's fence is lifted, and its target never opened; return what is decided then.

    Another lifter's work is taken over. An attempt that was cut off before its fence was up is ended all the same: it may
    only have been frozen.

    :param attempt: which one. :param owned: it is that very process that lifts. :param before: as it gave to `go_up`.
    :return: with phase LIFTING; or OPENED, and nothing may be lifted.
    :raises CutoverTakenOver: another attempt's fence stands by now, or its target is open; or, for an owner, this one is
        another process's by now.
    :raises Undecided: nobody knows.
    """

    def change(values: Values) -> Values | None:
        there = fence_state(values, mirror)
        ours = there is not None and there.is_of(attempt.run, attempt.attempt)
        if there is not None and ours and (not owned or there.owner == attempt.owner):
            return None if there.phase == OPENED else _value(mirror, replace(there, phase=LIFTING, lifter=lifter))
        # Nobody undoes what another attempt has opened: its target is in production, whatever became of this attempt.
        if there is not None and (there.stands or there.phase == OPENED or (owned and there != before)):
            raise CutoverTakenOver(attempt.run)
        return _value(mirror, replace(attempt, phase=LIFTING, lifter=lifter))

    life.decide(change)
    found = fence_state(life.values(), mirror)
    assert found is not None
    return found


def end_lifting(life: Decisions, mirror: str, lifter: str) -> None:
    """Decide that the fence which we lift is lifted: the brokers list it no longer. Nothing if it is another's by now."""

    def change(values: Values) -> Values | None:
        there = fence_state(values, mirror)
        if there is None or (there.phase, there.lifter) != (LIFTING, lifter):
            return None
        return _value(mirror, replace(there, phase=LIFTED))

    life.decide(change)


def _of_owner(values: Values, mirror: str, owner: str, phase: str) -> FenceState:
    there = fence_state(values, mirror)
    if there is None or (there.owner, there.phase) != (owner, phase):
        raise CutoverTakenOver("?" if there is None else there.run)
    return there


def _value(mirror: str, state: FenceState) -> dict[str, Any]:
    return {_KEY + mirror: {"v": _VERSION, **asdict(state)}}
