"""Live progress of a copy: a table of its partitions, fed by their tasks (`listener`) and both clusters (`poller`).

Every two seconds ``status.json`` is rewritten, every five a line is logged; on a terminal a bar is drawn instead of that.
A line that says the same as the last one is logged once an hour: whoever reads a log of weeks looks for what happened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence

from airflow_mirror.common.news import News
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.jobs.progress.bar import Draw, progress_bar
from airflow_mirror.jobs.progress.delay import Moment, behind
from airflow_mirror.jobs.progress.figures import Course, summary_of, worth_listing
from airflow_mirror.jobs.progress.listener import LOOPBACK, Hosts, Listener
from airflow_mirror.jobs.progress.poller import poll
from airflow_mirror.jobs.progress.retained import RetainedWatch
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.jobs.progress.wording import describe
from airflow_mirror.jobs.runner.status import StatusFile

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_SHARE = 10  # progress may take this fraction of a core, whatever the number of partitions
_STATUS_EVERY_S = 2.0
_LINE_EVERY_S = 5.0


class Progress:
    """Keeps ``status.json``, a log line every few seconds and, on a terminal, a bar.

    :param source: reference to its settings; ``target`` likewise.
    :param committed_only: whether the last stable offset or the high watermark counts as a partition's end.
    :param hosts: where tasks reach this process; None: they are not to, and nothing listens.
    :ivar table: of the partitions. :ivar retained: what the source keeps of them.
    :ivar report_to: for ``CopyWork``; None when no port was opened: there are no counters then, and no rates in bytes or
        records.
    """

    def __init__(
        self, source: str, target: str, ranges: Sequence[CopyRange], committed_only: bool, status: StatusFile,
        hosts: Hosts | None = LOOPBACK,
    ) -> None:  # fmt: skip
        self.table = Table(ranges)
        self.retained = RetainedWatch(source, self.table)
        self._status, self._course, self._stop = status, Course(), threading.Event()
        looks = source, target, committed_only, self.table, self._stop
        self._look = threading.Thread(target=poll, args=looks, name="look", daemon=True)
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._listener: Listener | None = None
        self.report_to: str | None = None
        self._written, self._news = time.monotonic() - _LINE_EVERY_S, News()
        if hosts is None:
            log.info("tasks report no progress: positions are read from the clusters, counters are known at the end")
            return
        try:
            self._listener = Listener(self.table, hosts)
            self.report_to = self._listener.address
        except OSError as e:
            log.warning("no progress from tasks: can't listen on %s: %s", hosts.bind, e)

    def start(self) -> None:
        """Begin to report."""
        self._look.start()
        self.retained.start()
        self._thread.start()

    def stop(self, results: Iterable[PartitionResult] = ()) -> None:
        """Report once more and end. ``results`` replace what their tasks reported."""
        self.table.settle(results)
        self._stop.set()
        self._thread.join(timeout=10)
        self._look.join(timeout=1)  # its answer may be late
        self.retained.close()
        if self._listener is not None:
            self._listener.close()

    def begin_turn(self) -> None:
        """Record that all tasks have ended, and new ones begin."""
        self.table.begin_turn()
        if self._listener is not None:
            self._listener.begin_turn()

    def end_turn(self) -> None:
        """Ask the tasks of a tail to end before their turn is over."""
        if self._listener is not None:
            self._listener.end_tasks()

    def hand_out(self, ranges: Sequence[CopyRange], options: CopyOptions, before: int) -> bool:
        """Have tasks that run copy these as well (:meth:`.Listener.hand_out`); return False if none can be told."""
        if self._listener is None:
            return False
        self._listener.hand_out(ranges, options, before)
        return True

    def has_untaken(self) -> bool:
        """Say whether what was handed out has not been taken in time, so that the turn has to end."""
        return self._listener is not None and self._listener.has_untaken()

    def _run(self) -> None:
        with progress_bar() as draw:
            stopped = False
            while not stopped:
                begun = time.thread_time()
                self._report(draw, last=False)
                stopped = self._stop.wait(max(_EVERY_S, _SHARE * (time.thread_time() - begun)))
            self._report(draw, last=True)

    def _report(self, draw: Draw | None, last: bool) -> None:
        now = time.monotonic()
        rows = self._course.look(self.table.rows(), now)
        summary = summary_of(rows, now) | {"throttled": self.table.throttled}
        summary |= behind(rows, Moment(now, time.time()), self.retained.last)
        if draw is not None:
            draw(summary, rows)
        elif last or now - self._news.said_s >= _LINE_EVERY_S:
            line = describe(summary)
            if self._news.has(line, now) or last:
                log.info("%s", line)
        if last or now - self._written >= _STATUS_EVERY_S:
            self._written = now
            listed = worth_listing(rows)
            partitions, left_out = [row.to_dict() for row in listed], len(rows) - len(listed)
            self._status.update(partitions=partitions, summary=summary, left_out=left_out)
