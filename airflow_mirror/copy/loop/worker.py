"""A thread for the steps that wait for a coordinator: padding, and the begin and end of transactions.

A hole is filled in slices, one request each; in between come the other partitions' steps, in turn, and the end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.copy.writer.padding import Filling, Padder
from airflow_mirror.copy.writer.transactional import Deliveries
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster

_LAST_CALL_S = 1.0  # at the end: how long the request under way may still be repeated


@dataclass(kw_only=True)
class _Job:
    """A step on its way.

    :param slice: does a part; returns the seconds to wait for the next one, None when all is done.
    :param filling: the hole that it fills, if it does; the result then, however far it got.
    :param wanted: says whether anybody still waits for it.
    """

    slice: Callable[[], float | None]
    filling: Filling | None
    wanted: Callable[[], bool]
    not_before: float = 0.0
    future: Future[Any] = field(default_factory=Future)


class Worker:
    """Takes slices of steps in turn; each future holds what the step returned, or its error.

    :param target: its own, closed with it.
    :param check: called right before everything that has an effect is sent; raises when the writer lease is gone or
        unconfirmed.
    :param direct_markers: as for :class:`~airflow_mirror.copy.options.CopyOptions`.
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
        """Fill [start, end) with markers; the result ends earlier when it was cut short.

        :param wanted: asked before each slice; once it says no, nothing more is written.
        """
        filling = Filling(tp=tp, start=start, end=end)

        def fill() -> float | None:
            pause_s = self._padder.step(filling)
            return None if filling.done else pause_s

        return self._add(_Job(slice=fill, filling=filling, wanted=wanted))

    def begin(self, tp: TopicPartition, producer_id: int, epoch: int) -> Future[None]:
        """Open a transaction."""
        return self._at_once(lambda: self._deliveries.begin(tp, producer_id, epoch))

    def commit(self, tp: TopicPartition, position: int, producer_id: int, epoch: int) -> Future[None]:
        """Commit the open transaction with the next source offset."""
        return self._at_once(lambda: self._deliveries.commit(tp, position, producer_id, epoch))

    def _at_once(self, step: Callable[[], None]) -> Future[None]:
        return self._add(_Job(slice=step, filling=None, wanted=lambda: True))

    def cut_short(self) -> None:
        """End every filling, those to come too, behind its present slice."""
        with self._news:
            self._cutting = True
            self._news.notify()

    def end(self) -> None:
        """Begin to end: no slice is begun any more, what waits is cancelled, the partitions are given back."""
        with self._news:
            self._ending = True
            self._cluster.timeout_s = _LAST_CALL_S
            self._news.notify()

    def join(self) -> None:
        """Wait for the end; call :meth:`end` first."""
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
            for job in self._jobs:
                job.future.cancel()
            try:
                self._padder.release()
            finally:
                self._cluster.close()

    def _await_job(self) -> _Job | None:
        """Return the job whose turn it is, None at the end."""
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
            if self._is_cut(job) or (pause_s := job.slice()) is None:
                job.future.set_result(job.filling)
            else:
                job.not_before = time.monotonic() + pause_s
                self._add(job)
        except BaseException as e:  # whoever waits for the step gets it, as from an executor
            job.future.set_exception(e)

    def _is_cut(self, job: _Job) -> bool:
        return job.filling is not None and (self._cutting or not job.wanted())
