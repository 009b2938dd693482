"""Processes of this host that copy (:mod:`.worker`): several, because one Python process uses one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from airflow_mirror.config import Handover
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult, unheard
from airflow_mirror.copy.task import CopyWork, work_to_json
from airflow_mirror.errors import InputError, MirrorError, NeedsHuman, TryAgain

_MODULE = "airflow_mirror.jobs.plain.worker"
_END_WITHIN_S = 10.0

Start = Callable[[], "subprocess.Popen[str]"]


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


class Worker:
    """One process, which is started when there is something to do and again when it has died.

    Belongs to one thread at a time, but :meth:`end_task` and :meth:`kill`.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._process: subprocess.Popen[str] | None = None
        self._writing = threading.Lock()

    def run(
        self, ranges: Sequence[CopyRange], work: CopyWork, duration_s: float | None, ending: threading.Event
    ) -> list[PartitionResult]:
        """Copy ranges as one task (:func:`.copy_ranges`), and return its results; unheard if the process died.

        It is not run again under its lease: what it gave to the kernel may still be on the way.

        :param ending: set if the task is to end early; :meth:`end_task` tells the process.
        """
        process = self._running()
        settings = {name: dict(values) for name, values in Handover.of(work.source, work.target).settings.items()}
        self._send(
            {
                "settings": settings, "work": work_to_json(work), "report_to": work.report_to,
                "ranges": [one.to_dict() for one in ranges], "duration_s": duration_s,
            }
        )  # fmt: skip
        if ending.is_set():  # before it had a task to end
            self.end_task()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.endswith("\n"):
            process.stdout.close()
            return unheard(ranges, f"copying process {process.pid} ended with status {process.wait()}")
        return _results(json.loads(line))

    def end_task(self) -> None:
        """Ask the present task to end."""
        self._send(None)

    def close(self) -> None:
        """End the process when its task has ended."""
        if self._process is not None and self._process.stdin is not None:
            with self._writing, suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self._process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End the process now."""
        if self._process is not None:
            self._process.kill()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        return self._process

    def _send(self, order: dict[str, Any] | None) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with self._writing, suppress(BrokenPipeError, ValueError):  # it died, or was closed: its answer says that
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()


def _results(answer: dict[str, Any]) -> list[PartitionResult]:
    if "results" in answer:
        return [PartitionResult(**one) for one in answer["results"]]
    kinds: dict[str, type[MirrorError]] = {"input": InputError, "human": NeedsHuman}
    raise kinds.get(answer["blame"], TryAgain)(answer["error"])


class Workers:
    """Several of them. Use :func:`workers`.

    :param start: begins a process. :ivar count: how many tasks run at the same time.
    """

    def __init__(self, count: int, start: Start) -> None:
        self.count = count
        self._all = [Worker(start) for _ in range(count)]
        self._idle = SimpleQueue[Worker]()
        for one in self._all:
            self._idle.put(one)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="worker")

    def run(
        self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork, duration_s: float | None = None,
        ending: threading.Event | None = None,
    ) -> list[PartitionResult]:  # fmt: skip
        """Copy each list of ranges as one task, in their order; return every partition's result when all have ended.

        If one fails, or its process dies, those that run are ended and those that wait are dropped.

        :param duration_s: see :func:`.copy_ranges`. With one, tasks are a turn, and end with the first that ends.
        :param ending: set it and call :meth:`end_tasks` to end them early.
        :raises MirrorError: the failure of a task, which is none of a partition's.
        """
        ended = ending or threading.Event()

        def one_task(ranges: Sequence[CopyRange]) -> list[PartitionResult]:
            worker, ended_well = self._idle.get(), False
            try:
                results = worker.run(ranges, work, duration_s, ended)
                ended_well = not any(one.unheard for one in results)
                return results
            finally:
                if duration_s is not None or not ended_well:
                    ended.set()
                    self.end_tasks()
                self._idle.put(worker)

        tasks = [self._threads.submit(one_task, ranges) for ranges in dealt]
        failures = [e for task in tasks if (e := task.exception()) is not None]
        if failures:
            raise failures[0]
        return [result for task in tasks for result in task.result()]

    def end_tasks(self) -> None:
        """Ask the present tasks to end."""
        for one in self._all:
            one.end_task()

    def kill(self) -> None:
        """End every process now; a task that has not ended by then has no results."""
        for one in self._all:
            one.kill()

    def close(self) -> None:
        """End the processes."""
        self.end_tasks()
        self._threads.shutdown()
        for one in self._all:
            one.close()


@contextmanager
def workers(count: int, start: Start = _start) -> Iterator[Workers]:
    """Yield so many processes, and end them with the block."""
    them = Workers(count, start)
    try:
        yield them
    finally:
        them.close()
