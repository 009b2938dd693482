"""Live progress of a copy: what tasks report (`listener`), and both clusters' offsets for partitions without a task.

Every two seconds ``status.json`` is rewritten, every five a line is logged; on a terminal a bar is drawn instead of that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.jobs.progress.bar import Draw, progress_bar
from airflow_mirror.jobs.progress.listener import LOOPBACK, Hosts, Listener
from airflow_mirror.jobs.progress.poller import Look
from airflow_mirror.jobs.progress.reports import Live, Told, key_of
from airflow_mirror.jobs.progress.summary import Course, worth_listing
from airflow_mirror.jobs.progress.wording import describe
from airflow_mirror.jobs.runner.status import StatusFile

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_SHARE = 10  # progress may take this fraction of a core, whatever the number of partitions
_STATUS_EVERY_S = 2.0
_LINE_EVERY_S = 5.0
_PATIENCE_S = 5.0  # how long a row is valid after its task's last line: a tail's next turn begins sooner


class Progress:
    """Keeps ``status.json``, a log line every few seconds and, on a terminal, a bar.

    :param source: reference to its settings; ``target`` likewise.
    :param ranges: the ranges of the copy; replaced by :meth:`follow` when a tail discovers more.
    :param committed_only: whether the last stable offset or the high watermark counts as a partition's end.
    :param hosts: where tasks reach this process.
    :ivar report_to: for ``CopyWork``; None when no port could be opened: there are no counters then, and no rates in
        bytes or records.
    """

    def __init__(
        self, source: str, target: str, ranges: Sequence[CopyRange], committed_only: bool, status: StatusFile,
        hosts: Hosts = LOOPBACK,
    ) -> None:  # fmt: skip
        self._clusters = source, target, committed_only
        self._ranges = list(ranges)
        self._status = status
        self._live = Live(ranges)
        self._course = Course()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._listener: Listener | None = None
        self.report_to: str | None = None
        try:
            self._listener = Listener(self._live, hosts)
            self.report_to = self._listener.address
        except OSError as e:
            log.warning("no progress from tasks: can't listen on %s: %s", hosts.bind, e)
        self._written = self._said = time.monotonic() - _LINE_EVERY_S

    def start(self) -> None:
        """Begin to report."""
        self._look = Look(*self._clusters, self._untold)
        self._thread.start()

    def stop(self, results: Iterable[PartitionResult] = ()) -> None:
        """Report once more and end. ``results`` replace what their tasks reported."""
        self._live.settle(results)
        self._stop.set()
        self._thread.join(timeout=10)
        self._look.close()
        if self._listener is not None:
            self._listener.close()

    def follow(self, ranges: Sequence[CopyRange]) -> None:
        """Report on these ranges from now on."""
        self._ranges = list(ranges)
        self._live.follow(ranges)

    @property
    def has_stopped(self) -> bool:
        """Whether a task of this turn has given up on a partition."""
        return self._live.has_stopped()

    def begin_turn(self) -> None:
        """Record that all tasks of a turn have ended."""
        self._live.begin_turn()

    def end_turn(self) -> None:
        """Ask the tasks of a tail to end before their turn is over."""
        if self._listener is not None:
            self._listener.end_tasks()

    def _untold(self) -> list[CopyRange]:
        """Return the ranges that no task reports on at the moment."""
        told, now = self._live.told(), time.monotonic()
        return [one for one in self._ranges if not _holds(told.get(key_of(one)), now)]

    def _run(self) -> None:
        with progress_bar() as draw:
            stopped = False
            while not stopped:
                begun = time.thread_time()
                self._report(draw, last=False)
                stopped = self._stop.wait(max(_EVERY_S, _SHARE * (time.thread_time() - begun)))
            self._report(draw, last=True)

    def _report(self, draw: Draw | None, last: bool) -> None:
        told, now = self._live.told(), time.monotonic()
        seen = {key: where for key, where in self._look.seen.items() if not _holds(told.get(key), now)}
        rows, summary = self._course.look(self._ranges, told, seen, now)
        if draw is not None:
            draw(summary, rows)
        elif last or now - self._said >= _LINE_EVERY_S:
            self._said = now
            log.info("%s", describe(summary))
        if last or now - self._written >= _STATUS_EVERY_S:
            self._written = now
            listed, left_out = worth_listing(rows)
            try:
                self._status.update(partitions=[row.to_dict() for row in listed], summary=summary, left_out=left_out)
            except OSError as e:  # a full disk is no reason to stop the copy
                log.warning("status.json not written: %s", e)


def _holds(row: Told | None, now: float) -> bool:
    """Say whether nobody else need be asked where a partition stands."""
    return row is not None and row.end is not None and row.is_fresh(now, _PATIENCE_S)
