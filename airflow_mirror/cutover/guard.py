"""A process that lifts a fence whose owner died, or is frozen: nobody may be kept out because a worker was lost.

``python -m airflow_mirror.cutover.guard``, started by :mod:`airflow_mirror.jobs.runner.guarding`. It looks at what is
decided about the mirror's fence. While one stands, and its owner gives no sign of life for
:data:`~airflow_mirror.cutover.alive.SILENCE_S`, it decides that it is lifted, and lifts it. An owner that comes back
finds that decision. An owner that gives signs, and hangs, has until its own decision to open would be void
(``max_fence_s``), and :data:`GRACE_S` more to back out.

Behind an opening nothing is lifted, and there may be more to do: the guard stays until the owner has ended in order, and
calls a person if it never does.

If the target's ledger does not answer, that decision can't be made. Then it waits until the owner's own decision would be
void (``max_fence_s``, and :data:`GRACE_S` more), and lifts the fence unless a marker that came since then says that a
target may be open: that is a person's matter, and the log says so.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from typing import TYPE_CHECKING

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.alarm import Alarm
from airflow_mirror.cutover.alive import process_of, watch_of
from airflow_mirror.cutover.decision import OPENED, PATIENCE_S, FenceState, fence_state
from airflow_mirror.cutover.fence import AclFence, fence_of
from airflow_mirror.cutover.kept import Kept, reports_of
from airflow_mirror.cutover.marker import group_of, markers
from airflow_mirror.cutover.run import lift_leftover_fence
from airflow_mirror.cutover.steps import lift_recorded
from airflow_mirror.errors import CutoverTakenOver, LedgerMissing, MayBeOpen, MirrorError, OpeningUnfinished
from airflow_mirror.jobs.runner.guarding import READY
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mirror.cutover.report import CutoverReport
    from airflow_mirror.jobs.runner.active import Watch
    from airflow_mirror.ledger.decisions import Decisions
    from airflow_mirror.ledger.state import State

_LOG = logging.getLogger("airflow_mirror.guard")
GRACE_S = 15.0
LOOK_EVERY_S = 1.0
_COMPLAIN_EVERY_S = 30.0
_ALONE_S = 3600.0
_ALARM_S = 30.0  # for a person to be called before a guard ends


class Guard:
    """Guards the fence of one mirror.

    :param life: the target's ledger. :param reports: the reports on the target. :param watch: looks for signs of life.
    :param clock: monotonic, in seconds. :param beside_owner: a fence that nobody can tell of may be its owner's.
    """

    def __init__(
        self, mirror: str, source: ClusterAdmin, target: ClusterAdmin, life: Decisions, reports: State, watch: Watch,
        clock: Callable[[], float] = time.monotonic, beside_owner: bool = True,
    ) -> None:  # fmt: skip
        self._mirror, self._source, self._target, self._clock = mirror, source, target, clock
        self._life, self._reports, self._watch = life, reports, watch
        self._fence: FenceState | None = None  # that stands
        self._opened: FenceState | None = None  # behind which its owner still works
        self._report: CutoverReport | None = None
        self._markers: frozenset[str] | None = None  # when it was first seen
        self._since = 0.0
        self._asked = not beside_owner
        self._beside_owner = beside_owner
        self._complained = float("-inf")
        self.alarm = Alarm()

    @property
    def is_needed(self) -> bool:
        """Whether a fence stands, or may stand, because nobody could say."""
        return self._fence is not None or self._opened is not None or not self._asked

    def look(self) -> None:
        """Look once, and lift a fence whose owner is gone. What fails is logged, and tried again the next time."""
        try:
            fence = fence_state(self._life.values(), self._mirror)
            self._asked = True
            if fence is None or not fence.stands or not fence.process:
                self._leave(fence)
                return
            self._remember(fence)
            lives = self._watch.status(process_of(self._mirror, fence.plan, **fence.process)) == RUNNING
        except LedgerMissing:
            self._asked, self._fence = True, None  # no cutover goes without it
            return
        except MirrorError as e:
            self._asked = not self._beside_owner
            self._without_ledger(e)
            return
        if not lives:
            self._lift(fence, f"the cutover of run {fence.run!r} ended, or is frozen, behind its fence: lifting it")
        elif self._left_s(fence) <= 0:
            self._lift(fence, f"the cutover of run {fence.run!r} hangs behind its fence: lifting it")

    def _leave(self, fence: FenceState | None) -> None:
        """Guard no fence. One that was guarded, and is opened, is left when its owner has ended."""
        seen, self._fence = self._fence or self._opened, None
        if fence is None or fence.phase != OPENED or seen is None or not fence.is_of(seen.run, seen.attempt):
            self._opened = None
            return
        self._opened = fence
        status = self._watch.status(process_of(self._mirror, fence.plan, **fence.process))
        if status == RUNNING:
            return
        self._opened = None
        if status == LOST:
            self._tell(
                "run %r has opened what it had to, and ended before all was done: run it again (clear its task), which "
                "completes it", fence.run,
            )  # fmt: skip

    def _left_s(self, fence: FenceState) -> float:
        """Return after how many seconds no owner can open behind a fence any more, or is still backing out."""
        return self._since + fence.max_fence_s + GRACE_S - self._clock()

    def _remember(self, fence: FenceState) -> None:
        """Keep what is needed to lift it without the target."""
        if self._fence is None or not self._fence.is_of(fence.run, fence.attempt):
            self._report, self._markers, self._since = None, None, self._clock()
        self._fence, self.alarm.path = fence, fence.alarm
        if self._report is None:
            self._report = self._kept(fence).load()
        if self._markers is None:
            try:
                own = group_of(self._mirror, fence.run, fence.attempt)  # may be there before the first look
                self._markers = markers(self._source, self._mirror) - {own}
            except MirrorError as e:
                self._complain("markers at the source can't be read: %s", e)

    def give_up(self) -> None:
        """Say that nobody guards from now on."""
        self._tell("a fence may still stand after an hour: nobody guards it any more")

    def _kept(self, fence: FenceState) -> Kept:
        return Kept(self._reports, self._mirror, fence.run, None)

    def _lift(self, fence: FenceState, why: str) -> None:
        self._tell("%s", why)
        try:
            record = None if self._report is None else self._report.fence
            given = None if record is None or record.kind == AclFence.kind else fence_of(record.name, self._source)
            lines = lift_leftover_fence(
                self._kept(fence), self._source, self._target, given, life=self._life, listened=True
            )  # fmt: skip
        except (CutoverTakenOver, OpeningUnfinished) as e:
            self._tell("the fence of run %r stays: %s", fence.run, e)
        except MirrorError as e:
            self._complain("the fence of run %r is not lifted yet: %s", fence.run, e)
        else:
            self._tell("the fence of run %r is lifted: %s", fence.run, "; ".join(lines) or "it was down already")

    def _without_ledger(self, cause: MirrorError) -> None:
        fence, report = self._fence, self._report
        if fence is None or report is None or report.fence is None:
            self._complain("whether a fence of mirror %r stands can't be seen: %s", self._mirror, cause)
            return
        if report.fence.lifted is not None:
            return  # by us: now it has to be decided
        left_s = self._left_s(fence)
        if left_s > 0:
            self._complain(
                "the fence of run %r can't be decided on, and comes down in %.0f s: %s", fence.run, left_s, cause
            )
            return
        try:
            self._require_no_marker(fence, report, cause)
            lift_recorded(AclFence(self._source), report.fence, self._source.role)
        except MirrorError as e:
            self._complain("the fence of run %r stays up, find out whether its target is open: %s", fence.run, e)
        else:
            self._tell("the fence of run %r is lifted, without a word from the target's ledger: %s", fence.run, cause)

    def _require_no_marker(self, fence: FenceState, report: CutoverReport, cause: MirrorError) -> None:
        """Return if neither this attempt nor one that came after the first look has set its marker.

        :raises MayBeOpen: one may have.
        """
        if report.fence is None or report.fence.kind != AclFence.kind or self._markers is None:
            raise MayBeOpen(
                fence.run, self._source.role, f"nothing at the source tells whether it was opened, and {cause}"
            )
        if new := markers(self._source, self._mirror) - self._markers:
            raise MayBeOpen(fence.run, self._source.role, f"marker {', '.join(sorted(new))} stands there, and {cause}")

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
    order = json.loads(sys.stdin.readline())
    mirror = order["mirror"]
    with (
        ClusterAdmin(ClientConfig(order["source"], "source")) as source,
        ClusterAdmin(ClientConfig(order["target"], "target")) as target,
    ):
        life, seen = Ledger(target, PATIENCE_S), watch_of(target, mirror)
        guard = Guard(mirror, source, target, life, reports_of(target, mirror), seen, beside_owner=order["beside_owner"])
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        alone_since: float | None = None
        while True:
            guard.look()
            if alone_since is not None and not guard.is_needed:
                guard.alarm.wait(_ALARM_S)
                return 0
            if alone_since is not None and time.monotonic() - alone_since > _ALONE_S:
                guard.give_up()
                guard.alarm.wait(_ALARM_S)
                return 1
            every_s = LOOK_EVERY_S if guard.is_needed else order["every_s"]
            if alone_since is not None:
                time.sleep(every_s)
            elif select.select([sys.stdin], [], [], every_s)[0] and not os.read(sys.stdin.fileno(), 1):
                alone_since = time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
