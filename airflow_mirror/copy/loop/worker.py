"""A thread for steps that wait for a coordinator: padding, and the begin and commit of transactions.

A hole is filled in slices of one request each. Other partitions' steps, and the end, come in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.padding import Filling, Padder
from airflow_mirror.copy.writer.transactional import Deliveries
from airflow_mirror.wire.cluster import WireCluster

_LAST_CALL_S = 1.0  # at the end: how long the request in flight may still be retried


@dataclass(kw_only=True)
class _Job:
    """A step in progress.

    :param slice: does one part; returns the seconds to wait before the next part, None when all is done.
    :param filling: the hole that the step fills, if it does; becomes the result, however far it got.
    :param wanted: returns whether anybody still waits for the step.
    """

    slice: Callable[[], float | None]
    filling: Filling | None
    wanted: Callable[[], bool]
    not_before: float = 0.0
    future: Future[Any] = field(default_factory=Future)


class Worker:
    """Runs slices of steps in turn; each future holds the step's result or its error.

    :param target: the worker's own cluster; closed with the worker.
    :param check: called right before each request that has an effect; raises if the writer lease is lost or
        unconfirmed.
    :param direct_markers: see :class:`~airflow_mirror.copy.options.CopyOptions`.
    """

    def __init__(
        self, index: int, target: WireCluster, mirror: str, check: Callable[[], None], direct_markers: bool
    ) -> None:
        self._cluster = target
        self._padder = Padder(target=self._cluster, mirror=mirror, check=check, direct=direct_markers)
        self._deliveries = Deliveries(self._cluster, mirror, check)
        self._jobs: deque[_Job] = deque()
        self._news = threading.Condition()
        self._cutting = self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"worker-{index}", daemon=True)
        self._thread.start()

    def pad(self, tp: TopicPartition, start: int, end: int, wanted: Callable[[], bool] = lambda: True) -> Future[Filling]:
        """Fill [start, end) with markers; the result ends earlier if the step was cut short.

        :param wanted: called before each slice; once it returns False, nothing more is written.
        """
        filling = Filling(tp=tp, start=start, end=end)

        def fill() -> float | None:
            pause_s = self._padder.step(filling)
            return None if filling.done else pause_s

        return self._add(_Job(slice=fill, filling=filling, wanted=wanted))

    def begin(self, tp: TopicPartition, producer_id: int, epoch: int) -> Future[None]:
        """Open a transaction."""
        # Not in slices, and never cut: half a transaction would hold back the target's read_committed readers.
        return self._at_once(lambda: self._deliveries.begin(tp, producer_id, epoch))

    def commit(self, tp: TopicPartition, position: int, producer_id: int, epoch: int) -> Future[None]:
        """Commit the open transaction with the next source offset."""
        # Who dies in it has committed records and position, or neither: the next takeover completes what was decided, and
        # aborts the rest (`Deliveries.take_over`).
        return self._at_once(lambda: self._deliveries.commit(tp, position, producer_id, epoch))

    def _at_once(self, step: Callable[[], None]) -> Future[None]:
        return self._add(_Job(slice=step, filling=None, wanted=lambda: True))

    def cut_short(self) -> None:
        """End every filling, including later ones, after its current slice."""
        with self._news:
            self._cutting = True
            self._news.notify()

    def end(self) -> None:
        """Begin to end: start no more slices, cancel waiting steps, release the partitions."""
        with self._news:
            self._ending = True
            # From another thread, in the middle of a request: its deadline was fixed when it began, what follows takes
            # this one.
            self._cluster.timeout_s = _LAST_CALL_S
            self._news.notify()

    def join(self) -> None:
        """Wait for the thread to end; call :meth:`end` first."""
        self._thread.join()

    def _add(self, job: _Job) -> Future[Any]:
        with self._news:
            self._jobs.append(job)
            self._news.notify()
        return job.future

    def _run(self) -> None:
        try:
            while (job := self._await_job()) is not None:
                self._work(job)
        finally:
            # Nobody adds to them any more: the loop's thread, which begins the steps, waits in `join`.
            for job in self._jobs:
                # Nothing of these was begun, or a slice ended and its markers are in the log: the next copy reads how
                # far they got.
                job.future.cancel()
            try:
                # Behind the last slice, so that nothing is in flight under what is given back.
                self._padder.release()
            finally:
                self._cluster.close()

    def _await_job(self) -> _Job | None:
        """Return the next job in turn; None at the end."""
        with self._news:
            while not self._ending:
                now = time.monotonic()
                for job in self._jobs:
                    if job.not_before <= now or self._is_cut(job):
                        self._jobs.remove(job)
                        return job
                first = min((job.not_before for job in self._jobs), default=None)
                self._news.wait(None if first is None else first - now)
            return None

    def _work(self, job: _Job) -> None:
        try:
            # A slice of a hole is one request for markers: between two of them the partition may have failed, or the
            # copy be at its end, and then nothing more is written for it. A request that has begun is waited for.
            if self._is_cut(job) or (pause_s := job.slice()) is None:
                job.future.set_result(job.filling)
            else:
                # At the end of the queue: a hole of millions leaves each other partition its turn.
                job.not_before = time.monotonic() + pause_s
                self._add(job)
        except BaseException as e:  # delivered to the waiter, as by an executor
            job.future.set_exception(e)

    def _is_cut(self, job: _Job) -> bool:
        return job.filling is not None and (self._cutting or not job.wanted())
