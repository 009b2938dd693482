"""What becomes of a fence is decided on one key of the target's ledger, which holds all that its undoing needs.

::

    (nothing) -> up -> opened -> closing -> closed     the target is open; who ends that decides it before the first rule
                 up -> lifting -> lifted               producers are let in again; nothing was opened
    (nothing) -> opened                                a source that returns after a failover: the target was open before

Each arrow is one decision, by compare-and-set: who comes second loses and stops. A fence goes up only where none is, or
was ended: ``nothing``, ``lifted`` and ``closed``. ``opened`` is one record with the topics that it hands over, and void
if the broker appended it more than ``max_fence_s`` after ``up``, or if what was looked at is no longer so (:class:`Pin`).
ADR 27 and ADR 36 have the interleavings.

What is decided is read again right before the bytes of each effect (:func:`permit`): whoever was frozen, and wakes up
behind somebody else's decision, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_mirror.cutover.fence_names import RETURNED
from airflow_mirror.errors import CutoverTakenOver, FenceStands, MirrorCutOver, PlanNotKept, PlanOutdated
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import ACTIVE, FENCE
from airflow_mirror.plan import ledger_store as plans
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import mark_cut_over

# Of a process that dies: in `up` a guard, its retry or a person lifts the fence; in `opened` nobody lifts anything, and
# its retry goes on; in `lifting` and `closing` whoever may lift takes it over. In `lifted` and `closed` nothing is left
# to do.
UP, OPENED, LIFTING, LIFTED, CLOSING, CLOSED = "up", "opened", "lifting", "lifted", "closing", "closed"


@dataclass(frozen=True, kw_only=True)
class FenceState:
    """What is decided about a mirror's fence.

    :param run: of the cutover; ``attempt`` of that run, for people.
    :param id: of the attempt, which no other one has; its rules bear it at the source.
    :param plan: its plan's hash; ``revision``: of the last amendment whose topics are fenced.
    :param owner: names the process that raised it, or that opens the target in its place.
    :param max_fence_s: after which time guards lift it without a ledger.
    :param kind: of the fence, ``acl`` or ``callable``; ``name``: as it was asked for.
    :param intent: what raising it changes: :meth:`.intent.Intent.value`.
    :param kept: it stays on purpose behind the open target, until a person or a rollback ends it.
    :param lifter: names the process that lifts it.
    :param process: of the owner, as in :class:`~airflow_mirror.cutover.report.CutoverReport`: by its signs of life others
        see that it lives.
    """

    run: str
    attempt: int
    id: str
    plan: str
    revision: str
    owner: str
    max_fence_s: float
    kind: str = "acl"
    name: str = ""
    intent: Mapping[str, Any] = field(default_factory=dict)
    kept: bool = True
    phase: str = UP
    lifter: str = ""
    process: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A phase that another version, or nobody, has made is no phase: who must act by it stops.
        if self.phase not in (UP, OPENED, LIFTING, LIFTED, CLOSING, CLOSED):
            raise ValueError(self.phase)

    @property
    def stands(self) -> bool:
        """Whether it is, or may be, up, and nothing has been opened behind it."""
        return self.phase in (UP, LIFTING)

    @property
    def text(self) -> str:
        """What it is, for people."""
        host = self.process.get("host", "unknown")
        return {
            UP: f"is up, raised from host {host}", LIFTING: "is being lifted", CLOSING: "is being lifted",
            OPENED: "stands behind an open target", LIFTED: "was lifted", CLOSED: "was lifted",
        }[self.phase]  # fmt: skip

    @property
    def is_of_returned(self) -> bool:
        """Whether it is that of a source that returned after a failover, and no cutover's."""
        # The name alone could be a DAG run's. A cutover has a time within which it opens; behind an open target there
        # is none.
        return self.run.startswith(RETURNED) and self.max_fence_s == 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left: another one may go up."""
        return self.phase in (LIFTED, CLOSED)


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What was looked at before something is opened, and has to be so still: others may have decided since.

    :param direction: of the mirror. :param tail: that is decided to copy, as it stands there.
    """

    direction: Direction | None
    tail: Any


def fence_state(values: Values, mirror: str) -> FenceState | None:
    """Return what is decided about a mirror's fence; None if there never was one.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    return FENCE.load(known(FenceState), values, mirror)


def since_ms(ledger: Decisions, mirror: str) -> int:
    """Return when the last thing about a mirror's fence was decided, by the broker's clock; ms since the epoch."""
    return ledger.time_ms(FENCE.key(mirror))


def permit(ledger: Decisions, mirror: str, state: FenceState) -> Callable[[], None]:
    """Return what is called right before the bytes of an effect: it raises unless exactly this is decided still.

    :raises CutoverTakenOver: something else is. :raises TryAgain: of another type: nobody knows.
    """

    def check() -> None:
        # Compared as a whole: another owner goes on with the opening, another lifter has taken over, a swap has changed
        # what the fence consists of. In each case the one who decided that last is the one who acts, and this process
        # has slept.
        # Without an answer from the ledger nothing is sent, either. A process that freezes behind this look sends its
        # bytes when it wakes: what it created late is seen and taken back (`steps.raise_fence`), or named by
        # `lift-fence` as unexplained.
        if fence_state(ledger.values(), mirror) != state:
            raise CutoverTakenOver(state.run)

    return check


def nobodys(ledger: Decisions, mirror: str, mine: FenceState | None = None) -> Callable[[], None]:
    """Return what is called right before the bytes that take back what nobody owns; it raises if somebody's fence stands.

    :param mine: whose rules are taken back. Who lifts that very fence wants the same.
    :raises CutoverTakenOver: another one does, or may.
    """

    def check() -> None:
        there = fence_state(ledger.values(), mirror)
        # Nobody's. A fence that goes up behind this look, and loses a rule to it, finds that when it is proven, or
        # right before it opens.
        if there is None or there.is_over:
            return
        # Who lifts the very same attempt deletes the same rules: twice is no harm. Any other fence that stands consists
        # of rules that are equal to these, and deleting them would let producers in behind it.
        if mine is None or there.id != mine.id or there.phase not in (LIFTING, CLOSING):
            raise CutoverTakenOver("unexplained" if mine is None else mine.run)

    return check


def require_ended(mirror: str, decided: FenceState | None) -> None:
    """Return if another fence of a mirror may go up. :raises FenceStands: one is up, is being lifted, or is kept."""
    if decided is not None and not decided.is_over:
        raise FenceStands(mirror, decided.run, f"is {decided.phase}, as is decided in the target's ledger")


def go_up(ledger: Decisions, mirror: str, mine: FenceState, before: FenceState | None, turned: Direction | None) -> int:
    """Decide that a fence goes up; return when it is too late to open behind it, in ms of the broker's clock.

    :param before: what was decided when the attempt began. :param turned: the mirror's direction then.
    :raises FenceStands: a fence was up then, or is kept.
    :raises CutoverTakenOver: something else is by now: another attempt has begun, or somebody has undone this one.
    :raises MirrorCutOver: the mirror was failed over meanwhile. :raises PlanNotKept: it was retired.
    """
    require_ended(mirror, before)

    # Dies before the record is appended: nothing was touched, and the target has no report, which is written only
    # behind it. Dies behind it: `up` stands with the intent and the process in it. A guard hears no sign of that
    # process for 12 s, and lifts by the intent, whether a rule was made yet or not; so does the retry
    # (`undoing.recover`), or `lift-fence`.
    def change(values: Values) -> Values:
        # Decided by a failover since: applications write to the target, and there is nothing to fence for.
        _require_direction(values, mirror, turned)
        # Not "none stands", but what stood when this attempt began: one that was frozen since, while another one went
        # up and was lifted, has looked at plan, groups and rules too long ago.
        if fence_state(values, mirror) != before:
            raise CutoverTakenOver(mine.run)
        # Retired: its plan and its reports are deleted, or are being so, and a fence is lifted by them.
        if plans.last_hash(values, mirror) is None:
            raise PlanNotKept(mirror, mine.plan)
        return value_of(mirror, mine)

    ledger.decide(change)
    # By the broker's clock, from the record itself: this process may have been frozen before or behind it. If somebody
    # has decided more since, it is that one's time, and later; then `opened` is refused by the version anyway.
    return since_ms(ledger, mirror) + round(mine.max_fence_s * 1000)


def open_behind(
    ledger: Decisions, plan: Plan, up: FenceState, topic_ids: Mapping[str, str], at: str, until_ms: int, pin: Pin,
    also: Callable[[Values], Values] = lambda _: {},
) -> FenceState:  # fmt: skip
    """Decide in one record that the target is open, and that the plan's target topics are in production.

    :param up: as it was decided. :param topic_ids: present ids of the target topics, by name. :param at: ISO 8601.
    :param until_ms: from `go_up`. :param pin: what was looked at. :param also: what is decided with it.
    :return: what is decided about the fence then.
    :raises CutoverTakenOver: the fence is being lifted, or was; or another tail was decided.
    :raises DecidedLate: ``max_fence_s`` are over. :raises PlanOutdated: the plan has got more topics.
    :raises MirrorCutOver: somebody else has opened topics. :raises TopicsOwned: topics belong to other mirrors.
    :raises Undecided: nobody knows; see `begin_lifting`.
    """
    name, opened = plan.mirror.name, replace(up, phase=OPENED)

    # Looked at where the record is appended, not where it was sent: what is read here by `get` is pinned by its
    # version. So a process that is frozen before its bytes, for however long, opens nothing that somebody else has
    # decided about since.
    def fence(values: Values) -> Values:
        _require_direction(values, name, pin.direction)
        # A lifter was first: its fence comes down, and nothing may be opened behind it. Or a tail was decided: it takes
        # the lease, and may write seconds after our last look at the logs.
        if fence_state(values, name) != up or ACTIVE.at(values, name) != pin.tail:
            raise CutoverTakenOver(up.run)
        # Topics have joined: neither fenced, nor compared, nor among those that are handed over.
        if plans.revision(values, name, plan.hash) != plan.revision:
            raise PlanOutdated([f"plan {plan.hash[:12]} has got topics since the fence went up"])
        # One record with the topics, and with what a rollback decides beside it. In two, a process that dies in between
        # leaves topics in production whose target is not open, or an open target that a tail still copies into.
        return {**value_of(name, opened), **also(values)}

    # Dies before it: `up`, so everything is undone. Dies behind it, or loses the answer: `opened`; the retry completes
    # it (`steps.finish_opening`), and a guard calls a person. `until_ms` voids the record at the broker if it comes
    # when a guard without the ledger may have lifted the fence by its own clock.
    mark_cut_over(ledger, plan, topic_ids, at, also=fence, until_ms=until_ms)
    return opened


def go_on_opening(
    ledger: Decisions, mirror: str, decided: FenceState, owner: str, process: Mapping[str, Any]
) -> FenceState:  # fmt: skip
    """Decide who goes on behind an opening in place of a process that ended in between; return what is decided then.

    :param decided: what it left. :raises CutoverTakenOver: somebody else was faster.
    """
    # The owner that ended may be frozen only: with its name gone from the record, each of its permits refuses.
    return _turn(ledger, mirror, decided, replace(decided, owner=owner, process=process))


def stand_behind_open(ledger: Decisions, mirror: str, mine: FenceState, turned: Direction) -> FenceState:
    """Decide that a fence stands whose target is open already, by a failover; return what is decided then.

    Safe to repeat: of several who stand by the first one decides what the fence changes.

    :param mine: with phase OPENED. :param turned: the failover, as it is decided.
    :raises FenceStands: another one is up, is being lifted, or is kept.
    :raises MirrorCutOver: the mirror's direction is another one by now.
    """

    def change(values: Values) -> Values | None:
        # Dies before it: nothing is fenced, and the next try decides it. Dies behind it: `opened` without a process,
        # which no guard touches, and the next try finds it here and goes on by the first one's intent, not by what it
        # has described itself.
        there = fence_state(values, mirror)
        if there is not None and there.run == mine.run:
            return None
        _require_direction(values, mirror, turned)
        # Not taken over: it has a name and an intent of its own, and a lifter, perhaps, who deletes what both consist of.
        if there is not None and not there.is_over:
            how = "Lift it ('airflow-mirror lift-fence') once the source answers; then this one goes up."
            raise FenceStands(mirror, there.run, there.text, how)
        return value_of(mirror, mine)

    ledger.decide(change)
    decided = fence_state(ledger.values(), mirror)
    assert decided is not None
    return decided


def change_intent(ledger: Decisions, mirror: str, decided: FenceState, intent: Mapping[str, Any]) -> FenceState:
    """Decide what a kept fence consists of from now on, before the first of its rules is changed; return it.

    :raises CutoverTakenOver: somebody ends it, or changes it in another way.
    """
    # Before the first rule: the record names at any moment all that may be there. Dies behind it: rules that were not
    # made yet are named; to delete them does nothing, and to create again what was to be taken away does nothing
    # either.
    return _turn(ledger, mirror, decided, replace(decided, intent=intent))


def begin_lifting(ledger: Decisions, mirror: str, decided: FenceState, lifter: str) -> FenceState | None:
    """Decide that a fence that is up is lifted, and its target never opened; return what is decided then.

    Another lifter's work is taken over: one that comes back changes nothing any more.

    :param decided: the attempt whose fence it is, in whatever phase.
    :return: with phase LIFTING; where the attempt has come further, what it is; None: something else is decided, about
        another attempt or another owner, or nothing.
    :raises Undecided: nobody knows.
    """

    def ours(values: Values) -> FenceState | None:
        # By attempt and owner. A retry has raised another fence since, or has resumed the opening: what we have read is
        # history.
        found = fence_state(values, mirror)
        return None if found is None or (found.id, found.owner) != (decided.id, decided.owner) else found

    def change(values: Values) -> Values | None:
        found = ours(values)
        # Opened or over: nothing is changed, and the caller is told which. `lifting` of another lifter is taken over
        # with a name of our own: if that one was only frozen, its next permit refuses.
        # Dies before it: `up` still, for the next lifter. Dies behind it: `lifting`, behind which nobody opens, and
        # which the next one takes over from its first step.
        return (
            None if found is None or not found.stands else value_of(mirror, replace(found, phase=LIFTING, lifter=lifter))
        )

    # Given up without an answer (`Undecided`): `opened` may be what stands there. So behind this only an owner lifts
    # that has not asked for it (`undoing.back_out`), or a guard once it would be void. Who asks again reads which of the
    # two it is.
    ledger.decide(change)
    # Read back: also where nothing was changed, since then somebody else has decided something.
    return ours(ledger.values())


def begin_closing(ledger: Decisions, mirror: str, decided: FenceState, lifter: str) -> FenceState:
    """Decide that the kept fence of an open target is lifted: the source may be written to again; return it.

    :param decided: with phase OPENED or CLOSING. :raises CutoverTakenOver: something else is decided by now.
    """
    # Asked of what is decided, whatever a report says: closed instead of lifted, the groups would stay where this cutover
    # has set them.
    if decided.phase not in (OPENED, CLOSING):
        raise CutoverTakenOver(decided.run)
    # Before the first rule goes, and before writing is ended: from here on a swap is refused, and who arms a way back
    # at this moment finds that the fence is not kept (`rollback.arm`). Dies behind it: any `lift-fence` takes it over.
    return _turn(ledger, mirror, decided, replace(decided, phase=CLOSING, lifter=lifter))


def end_lifting(ledger: Decisions, mirror: str, decided: FenceState) -> FenceState:
    """Decide that the fence which we lift is lifted: the brokers list it no longer. Return it.

    :param decided: with phase LIFTING or CLOSING. :raises CutoverTakenOver: somebody else lifts it.
    """
    # Last of all: from here on another fence may go up. Any earlier, it would take rules that are on their way out for
    # the site's own, and leave them. Dies before it: the next lifter finds the rules gone, and decides only this.
    return _turn(ledger, mirror, decided, replace(decided, phase=LIFTED if decided.phase == LIFTING else CLOSED))


def _turn(ledger: Decisions, mirror: str, decided: FenceState, to: FenceState) -> FenceState:
    def change(values: Values) -> Values:
        # Exactly what was read: who comes second has acted on what is no longer so.
        if fence_state(values, mirror) != decided:
            raise CutoverTakenOver(decided.run)
        return value_of(mirror, to)

    # Applied, and its answer lost: a second try by the same values would be refused as one that came too late. So nobody
    # tries again by what was read before; the next call reads, and goes on from what it finds.
    ledger.decide(change)
    return to


def _require_direction(values: Values, mirror: str, expected: Direction | None) -> None:
    found = direction(values, mirror)
    if found != expected:
        raise MirrorCutOver(mirror, [], "its direction was decided anew" if found is None else found.at)


def value_of(mirror: str, state: FenceState) -> dict[str, Any]:
    """Return what is set where a fence is decided to be in this state."""
    return FENCE.put({key: one for key, one in asdict(state).items() if one not in ("", {})}, mirror)
