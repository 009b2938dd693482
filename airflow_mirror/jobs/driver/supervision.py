"""What a tail's driver does while a stream copies: it finds partitions that join, and ends a turn that has to end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import AuthenticationFailed, InputError, TryAgain
from airflow_mirror.jobs.driver.balance import Balance, is_lopsided
from airflow_mirror.jobs.driver.presence import TailHeartbeat
from airflow_mirror.jobs.driver.turns import Change, Stream, Tail
from airflow_mirror.jobs.driver.watches import Watches
from airflow_mirror.jobs.progress.keeper import Progress
from airflow_mirror.jobs.request import TURN_S
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wording import count, some

log = logging.getLogger(__name__)

MERCY_S = 5.0  # from the first partition that stops to the end of the turn: the same cause often stops others
LOOK_EVERY_S = 0.5
_DISCOVER_EVERY_S = 10.0
_NAMED = 5


class Supervisor:
    """See the module. Of one tail, and one stream after another.

    :param settings: returns the clusters' settings as they are now, or digests of them.
    :param turn_s: how long a turn lasts; None: until there is a reason for another one, ``inf``: until its tasks end it.
    :param clock: monotonic, in seconds.
    """

    def __init__(
        self, tail: Tail, there: TailHeartbeat, progress: Progress, watches: Watches,
        settings: Callable[[], object], turn_s: float | None, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._tail, self._there, self._progress, self._watches = tail, there, progress, watches
        self._settings, self._set = settings, settings()
        self._turn_s, self._clock, self._begun = turn_s, clock, 0.0
        self._turn = self._told = -1
        self._balance = Balance()
        self._followed: list[CopyRange] = []

    def watch(self, stream: Stream) -> None:
        """Return when the stream has to end, or has ended."""
        tail, table = self._tail, self._progress.table
        looked = well = self._clock()  # `well`: when no partition was known to have stopped
        self._follow()  # so that what is gone is said at once
        while not tail.stopping.wait(LOOK_EVERY_S) and self._there.wishes.pause is None and not stream.must_restart:
            if not stream.is_running:
                if tail.failed is None and tail.deposed is None and tail.unheard is None:
                    raise TryAgain("this tail copies no more", stream.failure())
                return
            if not table.has_stopped():
                well = self._clock()
            reason = "a partition has stopped" if self._clock() - well > MERCY_S else self._reason(stream)
            if reason:
                self._end_turn(stream, reason)
            self._watches.look()
            amended = tail.amended.is_set()
            if amended:
                tail.amended.clear()
                self._watches.follow(tail.job)
            if amended or self._clock() - looked > _DISCOVER_EVERY_S:
                looked = self._clock()
                self._discover(stream)
            self._follow()

    def _reason(self, stream: Stream) -> str:
        """Return why the partitions have to be dealt out anew, so that the turn has to end; empty: they need not."""
        tail, progress = self._tail, self._progress
        if tail.hear(self._there.wishes):
            tail.deal()
            return "somebody wished another rate"
        if tail.is_crowded:  # tasks wait, and end as soon as they start: the next turn has fewer
            return "an executor was lost"
        if stream.is_partly_over:
            return "a task has ended"
        if progress.has_untaken():
            return "no task has taken partitions that joined"
        return self._reason_by_now(self._clock())

    def _reason_by_now(self, now: float) -> str:
        if self._turn != self._tail.turns:
            self._turn, self._begun = self._tail.turns, now
            self._balance.look(self._progress.table.rows())
        if self._turn_s is not None:
            return "its time is over" if now - self._begun >= self._turn_s else ""
        if now - self._begun < TURN_S:
            return ""
        self._begun = now  # it is looked at again after as long
        if self._are_settings_new():
            return "the clusters' settings have changed"
        return f"one task had most of the work of the last {TURN_S:.0f} s" if self._is_lopsided() else ""

    def _are_settings_new(self) -> bool:
        """Return whether tasks have to read the clusters' settings again: a changed password, say."""
        try:
            settings = self._settings()
        except InputError as e:
            log.warning("the clusters' settings can't be read, the tasks go on with what they have: %s", e)
            return False
        before, self._set = self._set, settings
        return settings != before

    def _is_lopsided(self) -> bool:
        brought = self._balance.look(rows := self._progress.table.rows())
        if not is_lopsided(rows, brought, self._tail.tasks):
            return False
        self._tail.weigh(brought)
        return True

    def _end_turn(self, stream: Stream, reason: str) -> None:
        if self._told != self._tail.turns:  # once: it is asked again until it has ended
            self._told = self._tail.turns
            log.info("partitions are dealt out anew: %s", reason)
        self._progress.end_turn()
        stream.end_turn()

    def _follow(self) -> None:
        if self._tail.ranges is not self._followed:
            self._followed = self._tail.ranges
            self._progress.table.follow(self._followed)
            self._watches.tell()

    def _discover(self, stream: Stream) -> None:
        try:
            change = self._tail.discover()
        except (TryAgain, UnknownTopic) as e:
            # The task that copies a deleted topic reports it, because it knows up to where the topic was copied.
            log.warning("could not look for new partitions: %s", e)
            return
        except AuthenticationFailed as e:
            if not self._tail.job.outlives(e):
                raise
            # Between two passwords, or two certificates; tasks go on as logged in.
            log.warning("could not look for new partitions: %s", e)
            return
        if change is not None and not self._join(change):
            self._end_turn(stream, "partitions have joined or left")

    def _join(self, change: Change) -> bool:
        """Have the tasks that run copy what joined; return False if that takes another turn."""
        if not change.joined:
            return False
        self._follow()  # the table first: a row that it does not expect is dropped, and not sent again
        names = [str(one.source) for one in change.joined]
        log.info("%s joined: %s", count(len(names), "partition"), some(names, _NAMED))
        return self._progress.hand_out(change.joined, change.deal.options, change.deal.number)
