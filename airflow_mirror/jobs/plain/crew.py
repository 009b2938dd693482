"""Processes of this host as a driver's crew (`jobs.driver.crew`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.jobs.plain.workers import Workers, cores, workers
from airflow_mirror.jobs.progress.listener import LOOPBACK

log = logging.getLogger(__name__)

_NOTHING_S = 1.0  # between two looks whether there is something to copy by now


class PlainStream:
    """Turn after turn, in a thread; see :class:`.turns.Stream`."""

    must_restart = False

    def __init__(self, them: Workers, tail: Tail, work: CopyWork, turn_s: float) -> None:
        self._workers, self._tail, self._work, self._turn_s = them, tail, work, turn_s
        self._stopping, self._turn_ends = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def failure(self) -> str:
        """Return what ended the thread."""
        return f"no turn follows: {self._error}"

    def end_turn(self) -> None:
        """Ask the tasks of the present turn to end."""
        self._turn_ends.set()
        self._workers.end_tasks()

    def stop(self, wait_s: float) -> None:
        """Ask the tasks to end; kill those that have not reported in time."""
        self._stopping.set()
        self.end_turn()
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._workers.kill()
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn_ends.clear()  # before it is dealt: who ends it after that means this one
                if self._stopping.is_set():
                    return
                options, dealt = self._tail.deal()
                if not dealt:
                    self._turn_ends.wait(_NOTHING_S)
                    continue
                work = replace(self._work, options=options)
                self._tail.take(self._workers.run(dealt, work, self._turn_s, self._turn_ends))
        except Exception as e:  # the tail knows of those that concern it; the driver's loop asks for the others
            self._error = e
            log.info("the turns end: %s", e)
        finally:
            self._tail.reported.set()


class PlainCrew:
    """Processes of this host; see :class:`.crew.Crew`."""

    hosts = LOOPBACK

    def __init__(self, them: Workers) -> None:
        self._workers = them

    def slots(self) -> int:
        """One task for each process."""
        return self._workers.count

    def copy(self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork) -> list[PartitionResult]:
        """Copy each list as a task."""
        return self._workers.run(dealt, work)

    def follow(self, tail: Tail, work: CopyWork, turn_s: float) -> PlainStream:
        """Begin with the first turn."""
        return PlainStream(self._workers, tail, work, turn_s)

    def may_start_again(self, error: Exception) -> bool:
        """Never: a process that dies is replaced within its turn."""
        return False


@contextmanager
def plain_crew(processes: int | None, stopping: threading.Event | None = None) -> Iterator[PlainCrew]:
    """Yield a crew of so many processes; None: one for each core."""
    with workers(processes or cores()) as them:
        yield PlainCrew(them)
