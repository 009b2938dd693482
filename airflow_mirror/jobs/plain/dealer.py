"""A tail's side of sharing: which other processes there are, what they get, and what they report.

A thread with connections of its own looks every half second. Only a process that has given a sign while we listened is
dealt to; one that is silent for :data:`.active.SILENCE_S`, or has left, is not any more. Of a process that does not
report nobody knows when it stopped: the driver withdraws the lease, and waits until it must have.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_mirror.config import load
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.jobs.plain import shares
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import JobId, Watch
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import MEMBER, SHARE, SIGN
from airflow_mirror.ledger.state import State, state_of

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
_PATIENCE_S = 5.0  # for one write, after which it looks again


class Dealer:
    """See the module. Safe to use from several threads.

    :param tail: job of the tail that deals. :param target: reference to the target's settings.
    :param watch: makes what listens for one process.
    :ivar on_report: called when a process has reported.
    """

    def __init__(self, mirror: str, tail: str, target: str, watch: Callable[[State], Watch] = Watch) -> None:
        self._mirror, self._tail, self._reference = mirror, tail, target
        self._lock = threading.Condition()
        self._present: Mapping[str, int] = {}
        self._wanted: dict[str, Share] = {}
        self._written: dict[str, Share] = {}
        self._reports: dict[str, tuple[int, list[PartitionResult]]] = {}
        self._number = 0
        self._known, self._lost, self._left = set[str](), set[str](), set[str]()
        self._watch = watch
        self._watches: dict[str, Watch] = {}
        self._complaints = Complaints(log, "other processes of the mirror are not heard, and the copy goes on: %s")
        self.on_report: Callable[[], None] = lambda: None
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dealer", daemon=True)

    @property
    def present(self) -> Mapping[str, int]:
        """The other processes that may be dealt to by now: by job, how many tasks each runs at the same time."""
        return self._present

    def give(self, parts: Mapping[str, Share]) -> dict[str, int]:
        """Give shares to processes; return the number of each, which grows from call to call."""
        with self._lock:
            self._number += 1
            numbered = {job: replace(share, number=self._number) for job, share in parts.items()}
            self._wanted |= numbered
        self._wake.set()
        return {job: share.number for job, share in numbered.items()}

    def recall(self) -> None:
        """End what was given."""
        with self._lock:
            standing = {
                job: replace(share, lists=(), ends=share.number) for job, share in self._wanted.items() if share.lists
            }
        if standing:
            self.give(standing)

    def results(self, numbers: Mapping[str, int], deadline: float, wait_s: float) -> list[PartitionResult] | None:
        """Return what processes report on shares of these numbers; None: not all have, and ``wait_s`` is over.

        :param deadline: monotonic time from which on what was reported is all.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._are_reported(numbers), wait_s)
            if not self._are_reported(numbers) and time.monotonic() < deadline:
                return None
            told = {job: self._reports[job] for job in numbers if job in self._reports}
        return [one for job, (number, results) in told.items() if number >= numbers[job] for one in results]

    def unheard(self, numbers: Mapping[str, int]) -> list[str]:
        """Return the processes that have neither reported on shares of these numbers nor left."""
        with self._lock:
            return [job for job, number in numbers.items() if not self._are_reported({job: number})]

    def _are_reported(self, numbers: Mapping[str, int]) -> bool:
        return all(job in self._left or self._reports.get(job, (0,))[0] >= number for job, number in numbers.items())

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End what was given, as far as that can be said, and look no more."""
        self.recall()
        self._ended.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        with ClusterAdmin(load(self._reference, "target")) as target:
            prefixes = SIGN.below(self._mirror), SHARE.below(self._mirror)
            state: State = state_of(target, *prefixes, patience_s=_PATIENCE_S)
            while True:
                last = self._ended.is_set()
                self._wake.clear()
                try:
                    self._look(state)
                except Exception as e:  # a mistake of ours, too: what is dealt is copied on
                    self._complaints.of(e)
                if last:
                    return
                self._wake.wait(LOOK_EVERY_S)

    def _look(self, state: State) -> None:
        values = state.read()
        if not self._written and (others := shares.left_by_others(values, self._mirror, self._tail)):
            state.write(others)
        there = {one.job: one for one in active.said(MEMBER, values, self._mirror)}
        present = {job: one.processes for job, one in there.items() if self._is_present(state, one)}
        known = {job: number for job, (number, _) in self._reports.items()}
        reports = {job: shares.report_of(values, self._mirror, job, self._tail, known.get(job, 0)) for job in there}
        new = {job: report for job, report in reports.items() if report is not None}
        with self._lock:
            self._reports |= new
            self._known |= there.keys()
            gone = self._known - there.keys() - self._lost
            # State that was lost, or created again, has nothing of who copies on, nor of what they were given: that
            # nobody has removed.
            just_gone = (gone - self._left) & self._written.keys()
            self._lost |= {job for job in just_gone if not SHARE.under(values, self._mirror, self._tail, job)}
            self._left = gone - self._lost  # by themselves, when their tasks had ended
            self._lock.notify_all()
            if present != self._present:
                self._say(self._present, there, present)
                self._present = present
            wanted = dict(self._wanted)
        if any(job in wanted and wanted[job].lists and number >= wanted[job].number for job, (number, _) in new.items()):
            self.on_report()
        for job, share in wanted.items():
            if self._written.get(job) != share:
                state.write(shares.given(self._mirror, self._tail, job, share, state.read()))
                self._written[job] = share

    def _is_present(self, state: State, one: JobId) -> bool:
        watch = self._watches.setdefault(one.job, self._watch(state))
        runs = watch.status(one) == RUNNING
        if not runs:
            self._lost.add(one.job)
            # It says again who it is, should it come back.
            state.write({key: None for key in active.left_by(one)})
        else:
            self._lost.discard(one.job)
        return runs and watch.is_sure(one)

    def _say(self, before: Mapping[str, int], there: Mapping[str, JobId], now: Mapping[str, int]) -> None:
        for job in now.keys() - before.keys():
            log.info("a process on host %s copies from now on, too: %s", there[job].host, job)
        for job in before.keys() - now.keys():
            log.warning("a process that copied, too, has left or is silent: %s", job)
