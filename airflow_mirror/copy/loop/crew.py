"""Threads for what the loop must not wait for: opening partitions, looking at topics, writing maps, connecting."""

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
    """A few threads, each with a source and a target of its own, in a hurry: the partition comes back, not the thread.

    A job tells the loop what it found by the mailbox. An error that it lets through ends the loop.

    :param client_id: of its connections.
    """

    def __init__(self, clusters: Clusters, client_id: str, mailbox: Mailbox, size: int) -> None:
        self._clusters, self._client_id, self._mailbox, self.size = clusters, client_id, mailbox, size
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._closing = False

    @property
    def busy(self) -> bool:
        """True until the loop has received what every job had to tell."""
        return self._under_way > 0

    def submit(self, job: Job) -> None:
        """Have a job done by whichever thread is free first."""
        self._under_way += 1
        self._jobs.put(job)
        if len(self._threads) < min(self.size, self._under_way):
            thread = threading.Thread(target=self._run, name="crew", daemon=True)
            self._threads.append(thread)
            thread.start()

    def check_wanted(self) -> None:
        """Check that the loop still wants what a job is about to do; called before every step that has an effect.

        :raises TryAgain: it has ended.
        """
        if self._closing:
            raise TryAgain("the copy ends")

    def close(self) -> None:
        """Drop the jobs that were not begun, and wait for those that were: none may write when its copy has ended."""
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
                    if not self._closing:
                        self._do(job, source, target)
        except BaseException as e:  # an executor without a file that the settings name, say: the loop would wait for ever
            self._mailbox.post(partial(_raise, e))

    def _do(self, job: Job, source: WireCluster, target: WireCluster) -> None:
        try:
            job(source, target)
        except BaseException as e:  # the loop's thread raises it
            self._mailbox.post(partial(_raise, e))
        self._mailbox.post(self._done)

    def _done(self) -> None:
        self._under_way -= 1


class Dialler:
    """Connects to brokers, each in a thread of its own: a machine that is gone takes half a minute not to answer."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._lock = threading.Lock()
        self._closed = False
        self._undelivered: set[Connection] = set()

    def dial(self, connect: Connect, then: Callable[[Connection | MirrorError], None]) -> None:
        """Have ``then`` called by the loop, with a connection that is the loop's from there on, or with the error."""
        threading.Thread(target=self._dial, args=(connect, then), name="dial", daemon=True).start()

    def close(self) -> None:
        """Close what nobody has received, and what is connected from now on."""
        with self._lock:
            self._closed = True
            for connection in self._undelivered:
                connection.close()

    def _dial(self, connect: Connect, then: Callable[[Connection | MirrorError], None]) -> None:
        found: Connection | MirrorError
        try:
            found = connect()
        except MirrorError as e:
            found = e
        except BaseException as e:
            self._mailbox.post(partial(_raise, e))
            return
        with self._lock:
            if isinstance(found, Connection):
                self._undelivered.add(found)
                if self._closed:
                    found.close()
        self._mailbox.post(partial(self._deliver, found, then))

    def _deliver(self, found: Connection | MirrorError, then: Callable[[Connection | MirrorError], None]) -> None:
        with self._lock:
            if isinstance(found, Connection):
                self._undelivered.discard(found)
        then(found)


def _raise(error: BaseException) -> None:
    raise error
