"""Threads for work that must not block the loop: opening partitions, checking topics, storing maps, connecting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.leaders import Connect
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.errors import MirrorError, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection

Job = Callable[[WireCluster, WireCluster], None]


class Crew:
    """A small thread pool; each thread has its own source and target.

    The clusters are in hurry mode: they fail fast, because a partition can be retried and the thread must stay free. A
    job reports its results through the mailbox. An error that a job does not catch ends the loop.

    :param client_id: client id of the connections.
    """

    def __init__(self, clusters: Clusters, client_id: str, mailbox: Mailbox, size: int) -> None:
        self._clusters, self._client_id, self._mailbox, self.size = clusters, client_id, mailbox, size
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._closing = False

    @property
    def busy(self) -> bool:
        """True until the loop has received the results of every job."""
        return self._under_way > 0

    def submit(self, job: Job) -> None:
        """Run a job on the first free thread."""
        # Counted by the loop's thread alone, here and in `_done`, which comes through the mailbox behind the job's own
        # results.
        self._under_way += 1
        self._jobs.put(job)
        # As they are needed: each has connections to brokers of both sides.
        if len(self._threads) < min(self.size, self._under_way):
            thread = threading.Thread(target=self._run, name="crew", daemon=True)
            self._threads.append(thread)
            thread.start()

    def check_wanted(self) -> None:
        """Check that the loop still wants the next effect of a job; called before every step that has an effect.

        :raises TryAgain: the copy has ended.
        """
        # Read without a lock: an effect that has begun right before it was set is waited for, by `close`.
        if self._closing:
            raise TryAgain("the copy ends")

    def close(self) -> None:
        """Drop jobs that have not started and wait for those that have: none may write after its copy has ended."""
        # Before the threads are joined: `check_wanted` refuses the next effect of a job that is under way, so that
        # nobody writes whose copy has ended. What it had done by then the next opening finds.
        self._closing = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            with self._clusters.source(self._client_id) as source, self._clusters.target(self._client_id) as target:
                source.hurry()
                target.hurry()
                while (job := self._jobs.get()) is not None:
                    # A job that has not begun is dropped: it would be the beginning of an effect that nobody waits for.
                    if not self._closing:
                        self._do(job, source, target)
        except BaseException as e:  # say, a missing file that the settings name: the loop would wait forever
            self._mailbox.post(partial(_raise, e))

    def _do(self, job: Job, source: WireCluster, target: WireCluster) -> None:
        try:
            job(source, target)
        except BaseException as e:  # the loop's thread raises it
            self._mailbox.post(partial(_raise, e))
        # Behind what the job has posted, so that nobody who waits for `busy` to end misses a result.
        self._mailbox.post(self._done)

    def _done(self) -> None:
        self._under_way -= 1


class Dialler:
    """Connects to brokers, one thread per attempt: a machine that is gone can take half a minute to time out."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._lock = threading.Lock()
        self._closed = False
        self._undelivered: set[Connection] = set()

    def dial(self, connect: Connect, then: Callable[[Connection | MirrorError], None]) -> None:
        """Connect in a thread; the loop then calls ``then`` with the error or with a connection, which it owns."""
        # Waited for by nobody: a copy that ends would hang on a machine that is gone. A connection that comes later is
        # closed (`_dial`).
        threading.Thread(target=self._dial, args=(connect, then), name="dial", daemon=True).start()

    def close(self) -> None:
        """Close connections that were not delivered, and any that are established from now on."""
        with self._lock:
            self._closed = True
            for connection in self._undelivered:
                connection.close()

    def _dial(self, connect: Connect, then: Callable[[Connection | MirrorError], None]) -> None:
        outcome: Connection | MirrorError
        try:
            outcome = connect()
        except MirrorError as e:
            outcome = e
        except BaseException as e:
            self._mailbox.post(partial(_raise, e))
            return
        with self._lock:
            if isinstance(outcome, Connection):
                # Until the loop has it: a loop that ends in between would leave a socket open, with a login on it.
                self._undelivered.add(outcome)
                if self._closed:
                    outcome.close()
        self._mailbox.post(partial(self._deliver, outcome, then))

    def _deliver(self, found: Connection | MirrorError, then: Callable[[Connection | MirrorError], None]) -> None:
        with self._lock:
            if isinstance(found, Connection):
                self._undelivered.discard(found)
        then(found)


def _raise(error: BaseException) -> None:
    raise error
