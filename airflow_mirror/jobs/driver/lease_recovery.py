"""The way back of a tail whose writer lease another job has taken.

Whoever takes the lease deposes the job that held it, whatever is decided: a tail that was slow to start and is not the
one any more, or a bulk copy that somebody starts by hand. It notices, or ends; but the tail that is decided to be the
mirror's would be gone, and nobody copies. So that one takes the lease back.

Two jobs that take it from each other in turn would never copy anything. So the pauses grow, and there is an end; and a
lease that was taken to end all writing (a cutover, a mirror that is given up) is never taken back. A lease that its
coordinator has forgotten is nobody's, and taken again at once.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime

from airflow_mirror.errors import LedgerMissing, NeedsHuman, TailReplaced, TryAgain, WritingEnded
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.presence import TailHeartbeat
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.plan import Plan

log = logging.getLogger(__name__)

PAUSES_S = (5.0, 10.0, 20.0, 40.0, 80.0)  # before each try
_PEACE_S = 600.0  # after that long without another one the pauses are short again


class LeaseRecovery:
    """See the module.

    :param stopping: set if the tail has to end.
    """

    def __init__(self, there: TailHeartbeat, held: HeldLease, status: StatusFile, stopping: threading.Event) -> None:
        self._there, self._held, self._status, self._stopping = there, held, status, stopping
        self._tries, self._back_at = 0, float("-inf")

    def go(self, cause: str, plan: Plan) -> None:
        """Take the lease back; return when writing is safe, or the tail has to end.

        :param cause: how the loss was noticed. :param plan: what the tail copies by now.
        :raises TailReplaced: another tail is decided to be the mirror's.
        :raises MirrorCutOver: :raises TopicsOwned: the topics are not the mirror's any more.
        :raises WritingEnded: by a cutover, say.
        :raises NeedsHuman: nobody has decided anything, or others take it again and again.
        """
        if self._held.clock() - self._back_at > _PEACE_S:
            self._tries = 0
        self._status.update("without the writer lease")
        while not self._stopping.is_set():
            with suppress(TryAgain):
                self._held.require_wanted()  # a cutover is no other job to look for
            if self._is_forgotten():
                self._say("the target's coordinator has forgotten the writer lease, and this tail takes it again")
                if self._is_back(cause, plan, "no other job had it"):
                    return
                self._stopping.wait(PAUSES_S[0])
                continue
            if self._tries == len(PAUSES_S):
                raise NeedsHuman(
                    f"mirror {plan.mirror.name!r}: others take its writer lease again and again",
                    f"{cause} It was tried {self._tries} times to take it back",
                    "Find the other job.",
                )
            self._require_not_replaced(plan)
            pause_s = PAUSES_S[self._tries]
            self._tries += 1
            times = f"({self._tries} of {len(PAUSES_S)} times)"
            self._say(
                f"another job has taken the writer lease, and this tail takes it back in {pause_s:.0f} s: {cause} {times}"
            )
            self._stopping.wait(pause_s)
            if self._stopping.is_set() or self._is_back(
                cause, plan, f"another job had taken it, and copies no more {times}"
            ):
                return

    def _require_not_replaced(self, plan: Plan) -> None:
        """Say nothing of a way back where somebody has decided for another tail: ``--takeover``, say."""
        try:
            self._there.require_decided(plan)
        except TailReplaced:
            raise
        except (TryAgain, LedgerMissing):
            pass  # asked again before the lease is taken

    def _is_forgotten(self) -> bool:
        try:
            return self._held.is_forgotten()
        except TryAgain as e:
            log.warning("who has the writer lease is not known: %s", e)
            return False

    def _is_back(self, cause: str, plan: Plan, why: str) -> bool:
        def pause(wait_s: float) -> None:
            self._stopping.wait(wait_s)
            self._there.require_decided(plan)  # frozen until here, it may have taken it from who has opened the target

        try:
            self._there.require_decided(plan)
            self._held.take_back(pause)
        except (TailReplaced, WritingEnded):
            raise
        except LedgerMissing as e:
            raise NeedsHuman(
                f"mirror {plan.mirror.name!r}: its writer lease is not taken back", f"{cause} {e.what_and_why}", e.remedy
            ) from e
        except TryAgain as e:
            log.warning("the writer lease is not back: %s", e)
            return False
        self._back_at = self._held.clock()
        self._say(f"the writer lease is back: {why}")
        return True

    def _say(self, what: str) -> None:
        log.warning("%s", what)
        self._status.report("lease", {"said": [f"{datetime.now(UTC).isoformat(timespec='seconds')}: {what}"]})
