"""A process that lifts a fence whose owner died, or is frozen: nobody may be kept out because a worker was lost.

``python -m airflow_mirror.cutover.guard``, started by :mod:`airflow_mirror.jobs.runner.guarding`. It looks at what is
decided about the mirror's fence. While one stands, and its owner gives no sign of life for
:data:`~airflow_mirror.cutover.heartbeat.SILENCE_S`, it decides that it is lifted, and lifts it. An owner that comes back
finds that decision. An owner that gives signs, and hangs, has until its own decision to open would be void
(``max_fence_s``), and :data:`GRACE_S` more to back out.

Behind an opening nothing is lifted, and there may be more to do: the guard stays until the owner has ended in order, and
calls a person if it never does.

If the target's ledger does not answer, that decision can't be made. Then it waits until the owner's own decision would be
void (``max_fence_s``, and :data:`GRACE_S` more), and lifts the fence if the source names this attempt's alone, and no
opening was announced there: anything else is a person's matter, and the log says so.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.alarm import Alarm, alarm_of
from airflow_mirror.cutover.alone import alone
from airflow_mirror.cutover.decision import CLOSING, LIFTING, OPENED, FenceState, fence_state
from airflow_mirror.cutover.fence import AclFence, fence_of
from airflow_mirror.cutover.heartbeat import SILENCE_S, owner_of
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.errors import CutoverTakenOver, LedgerMissing, MayBeOpen, MirrorError, OpeningUnfinished
from airflow_mirror.jobs.runner.guarding import READY
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.kafka.admin import ClusterAdmin

_LOG = logging.getLogger("airflow_mirror.guard")
GRACE_S = 15.0
LOOK_EVERY_S = 1.0
_COMPLAIN_EVERY_S = 30.0
_ALONE_S = 3600.0
_ALARM_S = 30.0  # for a person to be called before a guard ends


class Guard:
    """Guards the fence of one mirror.

    :param beside_owner: a fence that nobody can tell of may be its owner's. :param alarm: calls a person.
    :param fence: what the cutover beside it fences by; "acl" if that is unknown.
    """

    def __init__(
        self, mirror: str, on: Platform, *, beside_owner: bool = True, alarm: Alarm | None = None,
        fence: str = AclFence.kind,
    ) -> None:  # fmt: skip
        self._mirror, self._on, self._clock = mirror, on, on.clock.monotonic
        # All that a guard remembers is here, and can be lost: a guard that dies has decided what it has decided, and
        # the tail's guard, the next run's, or a person goes on from there. Two guards of one fence are no harm: each
        # takes over by decision.
        self._life = on.target.ledger
        self._watch = on.target.watch_cutover(mirror)
        self._fence: FenceState | None = None  # that stands
        self._opened: FenceState | None = None  # behind which its owner still works
        self._raised: Raised | None = None  # what lifting it needs, from before the target went away
        self._since = 0.0
        self._seen: tuple[FenceState | None, float] = None, 0.0  # what was decided last, and since when that is known
        self._is_down = False  # we have lifted it, and it has to be decided yet
        # A guard beside a cutover that has never seen the ledger must not end with its owner: a fence may be up that it
        # could not see. One beside a tail may: the cutover has its own.
        self._asked = not beside_owner
        self._beside_owner, self._named = beside_owner, fence
        self._complained = float("-inf")
        self.alarm = alarm or Alarm()

    @property
    def is_needed(self) -> bool:
        """Whether a fence stands, or may stand, because nobody could say."""
        return self._fence is not None or self._opened is not None or not self._asked

    def look(self) -> None:
        """Look once, and lift a fence whose owner is gone. What fails is logged, and tried again the next time."""
        try:
            self._look()
        except Exception as e:  # whatever it is: a guard that ends leaves its fence alone
            self._asked = not self._beside_owner
            _LOG.debug("a look failed", exc_info=True)
            self._complain("a look at the fence of mirror %r failed, the next one follows: %r", self._mirror, e)

    def _look(self) -> None:
        try:
            # What is decided comes before any sign: a process that lives and has no fence up is nothing to guard, and
            # one that gives no sign, and has opened, must not be lifted.
            fence = fence_state(self._life.values(), self._mirror)
            self._asked = True
            # Without a process: a source that returned is fenced behind an open target, where nothing is ever lifted by
            # silence.
            if fence is None or not fence.stands or not fence.process:
                self._leave(fence)
                return
            # Before the signs are looked at, since that may take the target's last answer for a while.
            self._remember(fence)
            # Also one that said that it had ended: if its fence stands still, it could not undo it.
            lives = self._watch.status(owner_of(self._mirror, fence.process)) == RUNNING
        except LedgerMissing:
            # One that was there and is gone is lost, not missing (`Ledger.values`), and is waited out like a target that
            # is away.
            self._asked, self._fence = True, None  # no cutover goes without it
            return
        except MirrorError as e:
            self._asked = not self._beside_owner
            # The target's silence is not the owner's. It may be alive, and cut off as we are; or have opened in the
            # last second.
            self._without_ledger(e)
            return
        if self._is_lifted_elsewhere(fence):
            return
        # Silence may be a frozen process. So this is no verdict on it: the lifting is decided, and what thaws finds
        # that decision.
        if not lives:
            self._lift(fence, f"the cutover of run {fence.run!r} ended, or is frozen, behind its fence: lifting it")
        # It gives signs from a thread of its own, and does nothing. Its `opened` would be void by now at the broker, so
        # nothing is lost by lifting, and producers have waited long enough.
        elif self._left_s(fence) <= 0:
            self._lift(fence, f"the cutover of run {fence.run!r} hangs behind its fence: lifting it")

    def _leave(self, fence: FenceState | None) -> None:
        """Guard no fence. One that was guarded, and is opened, is left when its owner has ended."""
        # Let go of before anything else is asked: should the target go away at the question below, what is still held
        # here would pass for a fence that may have to come down without it (`_without_ledger`).
        seen, self._fence = self._fence or self._opened, None
        # Lifted, closed, or another attempt's: there is nothing to watch any more. One that is closing is not: of a fence
        # that is not kept some rules may be up.
        if fence is None or fence.phase not in (OPENED, CLOSING) or seen is None or fence.id != seen.id:
            self._opened = None
            return
        # Its owner has something to do yet: its report, the lifting of a fence that is not kept, a rollback's old
        # source. Until it has ended in order nobody else is near to say so.
        self._opened = fence
        status = self._watch.status(owner_of(self._mirror, fence.process))
        if status == RUNNING:
            return
        self._opened = None
        # Lifted it is not: applications write to the target. Only its retry can go on.
        if status == LOST:
            self._tell(
                "run %r has opened what it had to, and ended before all was done: run it again (clear its task), which "
                "completes it", fence.run,
            )  # fmt: skip

    def _is_lifted_elsewhere(self, fence: FenceState) -> bool:
        """Return whether somebody has begun to lift it, and may be at it: who takes over starts from the beginning."""
        # From when we saw it first: the record has no time that could be compared with ours. A lifter that works on
        # changes nothing in it for up to half a minute; then it is taken over, and if it was only slow, its next permit
        # refuses.
        if self._seen[0] != fence:
            self._seen = fence, self._clock()
        return fence.phase == LIFTING and self._clock() - self._seen[1] < SILENCE_S

    def _left_s(self, fence: FenceState) -> float:
        """Return after how many seconds no owner can open behind a fence any more, or is still backing out."""
        # From our first look at it, which came after the decision: we count later than the broker, never earlier.
        return self._since + fence.max_fence_s + GRACE_S - self._clock()

    def _remember(self, fence: FenceState) -> None:
        """Keep what is needed to lift it without the target."""
        # By the attempt's id: what was kept of the one before would lift this one by another intent.
        if self._fence is None or self._fence.id != fence.id:
            self._raised, self._is_down, self._since = None, False, self._clock()
        elif self._fence.intent != fence.intent:
            self._raised = None  # its rules have come since: lifted by what we know, they would stay
        self._fence = fence
        if self._raised is None:
            # While the target answers: its plan has the topics, and without them nothing can be lifted once it is away.
            # It goes away right here: the fence is known, and how to lift it is not. Then it stays up, and a person is
            # told.
            self._raised = self._looked_up(fence)

    def _looked_up(self, fence: FenceState) -> Raised | None:
        """Return it; None: it is none by ACL, and nobody has told us which.

        A decision names the function that raised it. Whoever may write there must not choose what runs here.
        """
        if fence.kind == AclFence.kind:
            given = None
        elif fence.name == self._named:
            given = fence_of(self._named, self._on.source.admin)
        else:
            return None
        return Raised.of(self._on, self._mirror, fence, given, None)

    def give_up(self) -> None:
        """Say that nobody guards from now on."""
        self._tell("a fence may still stand after an hour: nobody guards it any more")

    def _lift(self, fence: FenceState, why: str) -> None:
        # Said before, because it may hang, or end, in what follows.
        self._tell("%s", why)
        try:
            given = None if self._raised is None else self._raised.fence
            # By the id that we have listened to: its retry may have raised another fence since, and lives. Dies in
            # here: `lifting`, for the next guard.
            lines = lift_leftover_fence(self._on, self._mirror, given, attempt=fence.id, known=Assurance(listened=True))
        # Somebody else has it, or it was opened in the last moment. The next look sees which.
        except (CutoverTakenOver, OpeningUnfinished) as e:
            self._tell("the fence of run %r stays: %s", fence.run, e)
        except MirrorError as e:
            self._complain("the fence of run %r is not lifted yet: %s", fence.run, e)
            # We have begun it ourselves: to wait out our own silence would keep producers out for nothing.
            self._seen = fence_state(self._life.values(), self._mirror), float("-inf")  # ours, so nobody is at it
        else:
            self._tell("the fence of run %r is lifted: %s", fence.run, "; ".join(lines) or "it was down already")

    def _without_ledger(self, cause: MirrorError) -> None:
        fence, raised = self._fence, self._raised
        # It has never seen it, or could not read its plan: nothing is known that could be undone.
        if fence is None or raised is None:
            self._complain("whether a fence of mirror %r stands can't be seen: %s", self._mirror, cause)
            return
        if self._is_down:
            return  # now it has to be decided
        left_s = self._left_s(fence)
        # Until then the owner may decide `opened`, and the broker accepts it. Lifted now, both sides might be open.
        if left_s > 0:
            self._complain(
                "the fence of run %r can't be decided on, and comes down in %.0f s: %s", fence.run, left_s, cause
            )
            return
        try:
            # Rules may have been decided and raised behind our last look. Lifted by that look, the name would go, and
            # they would stay.
            if raised.intent.pending:
                why = f"whether it has raised its rules since was not seen, and {cause}"
                raise MayBeOpen(fence.run, self._on.source.admin.role, why)
            # The source takes the decision's place: only this attempt's name, and no announcement, which comes before
            # any `opened`. Asked again before each request. Dies amid it: the name goes last, so the next guard finds
            # it.
            raised.lift_rules(alone(raised, opened=False))
        except MirrorError as e:
            self._complain("the fence of run %r stays up, find out whether its target is open: %s", fence.run, e)
        else:
            # Only in memory. A guard that comes after us finds `up`, lifts what is gone, and decides it.
            self._is_down = True
            self._tell("the fence of run %r is lifted, without a word from the target's ledger: %s", fence.run, cause)

    def _complain(self, text: str, *values: object) -> None:
        """Tell a person, and again only after a while."""
        if self._clock() - self._complained >= _COMPLAIN_EVERY_S:
            self._complained = self._clock()
            self._tell(text, *values)

    def _tell(self, text: str, *values: object) -> None:
        _LOG.error(text, *values)
        self.alarm.call(f"mirror {self._mirror!r}: {text % values}")


def main() -> int:
    """Guard until standard input is closed, and as long as a fence stands then."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s guard %(levelname)s: %(message)s")
    # Through a pipe, and not as arguments or environment: it holds the passwords of both clusters. Its functions come
    # from here as well, never from a record.
    # The owner dies before it has written it: an empty line, by which this process ends, too. No fence can be up, since
    # nobody was told that it is guarded.
    order = json.loads(sys.stdin.readline())
    mirror = order["mirror"]
    with (
        ClusterAdmin(ClientConfig(role="source", **order["source"])) as source,
        ClusterAdmin(ClientConfig(role="target", **order["target"])) as target,
    ):
        on, alarm = Platform.of(source, target), _alarm_of(order["alarm"])
        guard = Guard(mirror, on, beside_owner=order["beside_owner"], alarm=alarm, fence=order["fence"])
        # Only now: the owner decides that a fence is up behind this word, and counts on a guard whose connections
        # exist.
        try:
            os.write(sys.stdout.fileno(), READY)
        except BrokenPipeError:  # it has ended before it could raise anything
            return 0
        alone_since: float | None = None
        while True:
            # Always once more behind the owner's end: it may have raised a fence in its last moment.
            guard.look()
            # The owner has ended and nothing stands, or never stood: nobody raises anything under our guard any more.
            if alone_since is not None and not guard.is_needed:
                guard.alarm.wait(_ALARM_S)
                return 0
            if alone_since is not None and time.monotonic() - alone_since > _ALONE_S:
                # A guard is no service: after an hour it is said aloud that the fence is a person's now. What is
                # decided stays.
                guard.give_up()
                guard.alarm.wait(_ALARM_S)
                return 1
            every_s = LOOK_EVERY_S if guard.is_needed else order["every_s"]
            if alone_since is not None:
                time.sleep(every_s)
            # The kernel closes the pipe when the owner ends, also by SIGKILL: no message is needed that a dead process
            # can't send.
            # An owner that is frozen keeps it open: that one is told by its silence alone (`_look`).
            elif select.select([sys.stdin], [], [], every_s)[0] and not os.read(sys.stdin.fileno(), 1):
                alone_since = time.monotonic()


def _alarm_of(path: str) -> Alarm:
    """Return what calls the function of an order. One that can't be called is said now, and keeps no guard away."""
    if path:
        try:
            alarm_of(path)
        except Exception:  # a module of somebody else
            _LOG.exception("nobody will be called if a fence has to be lifted")
    return Alarm(path)


if __name__ == "__main__":
    sys.exit(main())
