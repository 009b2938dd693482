"""Steps that wait for a coordinator, in threads of their own: padding, and the begin and commit of transactions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import takewhile
from typing import Any

from airflow_mirror.copy.loop.asked import Begin, Commit, Pad
from airflow_mirror.copy.loop.failures import Judge
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.loop.worker import Worker
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.writer.transactional import COMMIT_AFTER_S
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.cluster import WireCluster

# Each has one request under way, so that four partitions are padded at once.
_WORKERS = 4


class Steps:
    """Starts steps and takes their results, which arrive through the mailbox.

    :param target: opens the target cluster for a thread, with the given client id.
    :param clock: monotonic, in seconds.
    """

    def __init__(
        self, target: Callable[[str], WireCluster], options: CopyOptions, mailbox: Mailbox,
        check_lease: Callable[[], None], judge: Judge, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._target, self._options, self._mailbox = target, options, mailbox
        self._check_lease, self._judge, self._clock = check_lease, judge, clock
        self._workers: list[Worker] = []
        self._under_way: set[PartitionCopy] = set()
        self._begun: dict[PartitionCopy, float] = {}  # when each open transaction was begun, the oldest first

    @property
    def busy(self) -> bool:
        """True while a step is in progress."""
        return bool(self._under_way)

    def has(self, p: PartitionCopy) -> bool:
        """True while a thread takes a step for ``p``, even if its result is no longer wanted."""
        return p in self._under_way

    def start(self, p: PartitionCopy, step: Pad | Begin | Commit) -> None:
        """Run a step in a worker thread: each coordinator response takes milliseconds, and other partitions go on."""
        if not self._workers:
            self._workers = [
                Worker(
                    i,
                    self._target(f"airflow-mirror.{self._options.mirror}.worker-{i}"),
                    self._options.mirror,
                    self._check_lease,
                    self._options.direct_markers,
                )
                for i in range(_WORKERS)
            ]
        # A partition always uses the same worker: if another took over its transactional id, it would fence this one.
        worker = self._workers[hash(p.range.target) % _WORKERS]
        future: Future[Any]
        if isinstance(step, Pad):
            generation = p.generation
            future = worker.pad(p.range.target, step.start, step.end, lambda: p.generation == generation)
        elif isinstance(step, Begin):
            # With the epoch of this partition's takeover: once a newer copier has taken over, the coordinator refuses
            # both.
            future = worker.begin(p.range.target, p.producer_id, p.epoch)
        else:
            self._begun.pop(p, None)
            future = worker.commit(p.range.target, step.position, p.producer_id, p.epoch)
        # Marked before the result can arrive, so that no turn of the loop sends a batch beside the step.
        p.sent()
        self._under_way.add(p)
        taken = partial(self._take, p, step, p.generation)
        # Also if the process is at its end and the future is cancelled: the mailbox takes the call, and nobody runs it.
        future.add_done_callback(lambda done: self._mailbox.post(partial(taken, done)))

    def _take(self, p: PartitionCopy, step: Pad | Begin | Commit, generation: int, future: Future[Any]) -> None:
        # Whatever came of it, and not before: the loop opens no partition for which a thread still takes a step
        # (`CopyLoop._open_due`).
        self._under_way.discard(p)
        if p.generation != generation:  # failed meanwhile: what the step did is found by the opening that follows
            return
        try:
            result = future.result()
        except MirrorError as e:
            self._judge.failed(p, e)
            return
        if isinstance(step, Pad):
            # Up to where the log was read to end, whoever filled it; only what we wrote ourselves is counted.
            p.padded(Pad(step.start, max(step.start, result.at)), result.written)
        elif isinstance(step, Begin):
            p.began()
            self._begun.pop(p, None)  # of one that has failed since: the new one goes behind the others
            self._begun[p] = self._clock()
        else:
            p.transaction_ended(step)

    def commit_old(self) -> None:
        """Commit the transactions that their coordinators would abort soon, also empty ones.

        By size alone, one whose batches are slow (a rate, a quota, many partitions of one leader) would be aborted, and
        so would each that follows it.
        """
        due = self._clock() - COMMIT_AFTER_S
        for p in [p for p, _ in takewhile(lambda begun: begun[1] <= due, self._begun.items())]:
            if p.state is State.READY and p.open_bytes >= 0:
                self.start(p, Commit(p.position))
            elif not p.is_under_way:
                del self._begun[p]  # it has failed: the takeover aborts its transaction

    def cut_short(self) -> None:
        """Stop filling holes where they are; the next copy fills the rest."""
        for worker in self._workers:
            worker.cut_short()

    def close(self) -> None:
        """Wait for the requests in flight, not for the steps that they belong to, and end the threads."""
        for worker in self._workers:
            # All of them first, so that they end their requests side by side.
            worker.end()
        for worker in self._workers:
            worker.join()
