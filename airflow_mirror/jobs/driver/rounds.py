"""The rounds of a bulk copy: each copies as is wished of the mirror when it begins, and ends when the wish changes.

A round ends early by a withdrawn lease: that reaches every task, wherever it runs, and those that still wait for a slot.
In the next round each partition continues at its target's log end offset, as after any restart of the job. A task that
was lost ends its round as well: what it may still write, it writes before the next one begins.

A thread with connections of its own listens, and says where the target's state is kept that this copy is there, so that
who pauses the mirror can wait until it rests. Copying never waits for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict

from airflow_mirror.config import load
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult, add
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import LedgerLost, LedgerMissing, MirrorError, TryAgain
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.runner.active import SILENCE_S, Heartbeat, JobId, heard_by, left_by, said
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import BULK
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.wire.errors import Fenced

log = logging.getLogger(__name__)

_LISTEN_EVERY_S = 1.0
_PATIENCE_S = 5.0  # for one write, after which it listens again
LOSSES = 5  # so often in succession may a task be lost,
SOON_S = 30.0  # this soon after it began

Round = Callable[[Sequence[CopyRange], Wishes, LeaseToken], Sequence[PartitionResult]]
"""Copies ranges until their ends, or until the lease is lost."""


class Ear:
    """Hears what is wished of a mirror while a bulk copy runs, and ends its round then. Use :func:`listening`.

    :param wishes: what was wished when it began.
    :param has_failed: returns whether something happened that is to end the copy.
    :param has_lost: returns whether a task of the present round was lost.
    :param every_s: how often it listens.
    :ivar wishes: what is wished by now. :ivar has_failed: see there; its answer, once it was yes.
    """

    def __init__(
        self, me: JobId, target: str, held: HeldLease, status: StatusFile, wishes: Wishes,
        has_failed: Callable[[], bool], has_lost: Callable[[], bool], every_s: float = _LISTEN_EVERY_S,
    ) -> None:  # fmt: skip
        self._me, self._reference, self._held, self._status = me, target, held, status
        self._ask_failed, self.has_failed, self._has_lost = has_failed, False, has_lost
        self.wishes, self._every_s = wishes, every_s
        self._unheeded = threading.Event()  # heard, but the lease is not withdrawn yet
        self._ended = threading.Event()
        self._complaints = Complaints(log, "what is wished of the mirror is not heard, and the copy goes on: %s")
        self.thread = threading.Thread(target=self._run, name="wishes", daemon=True)

    def begin(self) -> tuple[Wishes, LeaseToken] | None:
        """Return what is wished, and the token for the tasks of a round that begins now; None: no round is to begin.

        It waits until the wish is not to rest, and nobody writes any more under an earlier lease.
        """
        while True:
            wishes, token = self._until_it_may_copy(), self._held.begin()
            # The token first. What is heard is noted before the lease is withdrawn for it: heard before the token was
            # taken, it shows here, and the tasks would never lose a token from behind that; heard later, they lose it.
            if self.wishes == wishes and not self._unheeded.is_set() and not self.has_failed:
                return wishes, token
            self._held.all_reported()  # none has begun under it
            if self.has_failed:
                return None

    def _until_it_may_copy(self) -> Wishes:
        while self.wishes.pause is not None or self._unheeded.is_set() or not self._held.is_safe:
            if not self._held.is_safe:
                self._status.update("waiting for earlier writers to stop")
            elif self.wishes.pause is not None:
                self._status.update("paused")
            time.sleep(self._every_s)
        return self.wishes

    def heed(self) -> None:
        """Return when the lease is withdrawn for what was heard, or another job has it."""
        while self._unheeded.is_set():
            time.sleep(self._every_s)

    def end_round(self) -> None:
        """Have the lease withdrawn from all tasks."""
        self._unheeded.set()

    def end(self) -> None:
        """Listen no more; return when the lease is left alone."""
        self._ended.set()
        self.thread.join()

    def _run(self) -> None:
        with ClusterAdmin(load(self._reference, "target")) as target:
            state = state_of(target, *heard_by(self._me.name), patience_s=_PATIENCE_S)
            heartbeat = Heartbeat(state, self._me, self._held.clock)
            speaks = self._is_known(target)
            while not self._ended.is_set():
                try:
                    if speaks and heartbeat.is_due:
                        heartbeat.give(RUNNING, **self._status.brief(), heard=asdict(self.wishes))
                    self._look()
                    self._hear(heartbeat.wishes())
                except Exception as e:  # a mistake of ours, too: who waits for the next round waits for this thread
                    self._complaints.of(e)
                self._ended.wait(self._every_s)
            if speaks:
                self._leave(heartbeat)
                self._forget_killed(state, lambda: lease.confirm(target.wire, self._held.token))

    def _is_known(self, target: ClusterAdmin) -> bool:
        """Return whether the target has a ledger, so that somebody could ask for this copy. None is created for it."""
        try:
            Ledger(target).values()
        except (LedgerMissing, LedgerLost):
            return False
        except MirrorError as e:
            self._complaints.of(e)
        return True

    def _look(self) -> None:
        """Have the lease withdrawn from all tasks, once, if one of them has met what is to end the copy."""
        if not self.has_failed and self._ask_failed():
            log.error("a partition has stopped, and that is to end the copy")
            self.has_failed = True
            self.end_round()
        if self._held.is_in_use and self._has_lost():
            self.end_round()

    def _hear(self, wishes: Wishes) -> None:
        if wishes != self.wishes:
            log.warning("%s", "; ".join(wishes.lines()) or "no pause and no other rate is wished any more")
            self.end_round()
            self.wishes = wishes
        if self._unheeded.is_set():
            with suppress(Fenced):  # another job has it: the tasks notice that, those of the next round at once
                self._held.withdraw()
            self._unheeded.clear()

    def _leave(self, heartbeat: Heartbeat) -> None:
        # All is copied, and only the end of the process waits. Given up, whoever looks takes a copy that ended well for
        # a lost one until the mirror's next job.
        deadline = time.monotonic() + SILENCE_S
        while True:
            try:
                heartbeat.forget()
                return
            except MirrorError as e:
                if not isinstance(e, TryAgain) or time.monotonic() > deadline:
                    log.warning("the target's state still names this copy, and who looks there takes it for lost: %s", e)
                    return
            time.sleep(self._every_s)

    def _forget_killed(self, state: State, permit: Permit) -> None:
        """Remove what earlier copies of the mirror have left that were killed: this one was in their place.

        :param permit: that none has begun since: one that lives has the lease.
        """
        try:
            killed = [one for one in said(BULK, state.read(), self._me.name) if one.job != self._me.job]
            if killed:
                state.write({key: None for one in killed for key in left_by(one)}, permit)
        except MirrorError as e:
            log.info("what copies that were killed have left stays in the target's state: %s", e)


@contextmanager
def listening(
    job: CopyJob, held: HeldLease, status: StatusFile, wishes: Wishes,
    has_failed: Callable[[], bool] = lambda: False, has_lost: Callable[[], bool] = lambda: False,
    every_s: float = _LISTEN_EVERY_S,
) -> Iterator[Ear]:  # fmt: skip
    """Listen until the block ends; inside of it the lease's connection belongs to the listener.

    :param has_failed: see :class:`Ear`; ``has_lost`` and ``every_s`` likewise.
    """
    me = JobId(name=job.mirror.name, bulk=True)
    ear = Ear(me, job.target, held, status, wishes, has_failed, has_lost, every_s)
    ear.thread.start()
    try:
        yield ear
    finally:
        ear.end()


def copy_in_rounds(
    ranges: Sequence[CopyRange], copy: Round, ear: Ear, held: HeldLease, on_round_end: Callable[[], None]
) -> list[PartitionResult]:
    """Copy ranges to their ends, and return every partition's result over all rounds.

    The errors of a task that was lost are among them if that happens :data:`LOSSES` times in quick succession.
    """
    totals: dict[tuple[str, int, int], PartitionResult] = {}
    left, losses = list(ranges), 0
    while left and (begins := ear.begin()) is not None:
        (wishes, token), begun = begins, time.monotonic()
        results = copy(left, wishes, token)
        lost = next((r.error for r in results if r.unheard), None)
        if lost is None:
            held.all_reported()
        losses = 0 if lost is None else losses + 1 if time.monotonic() - begun < SOON_S else 1
        if any(r.lease_lost for r in results):
            ear.heed()  # tasks lose the lease by a withdrawal's first request, and its second one may take a while
        withdrawn = held.token != token
        ends = ear.has_failed or losses == LOSSES or (lost is None and not withdrawn)
        for result in results:
            if result.unheard and not ends or result.lease_lost and withdrawn:
                result = result.going_on()
            totals[result.key] = add(totals, result)
        if ends:
            break
        if lost is not None:
            log.warning("%s", lost)
            if held.is_in_use:
                ear.end_round()
        on_round_end()
        left = [r for r in left if _goes_on(totals, r)]
    return list(totals.values())


def _goes_on(totals: Mapping[tuple[str, int, int], PartitionResult], copy_range: CopyRange) -> bool:
    found = totals.get((copy_range.source_topic, copy_range.partition, copy_range.target.partition))
    return found is None or not (found.done or found.error)
