"""The work of one Spark task: copy some partitions under the writer lease, for a while or to their ends.

Also runs in a plain Python process; nothing here depends on Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_mirror.config import load
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.reporter import Reporter
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.errors import LeaseLost, LeaseUnconfirmed


@dataclass(frozen=True, kw_only=True)
class CopyWork:
    """The input of every task of a job. Settings are passed as references (`config.load`), never as values.

    :param report_to: where the driver listens for progress (`reporter.Reporter`); None: it does not listen. It holds a
        token, so it goes no way that somebody else can read.
    :param deal: of a tail, the number of the deal by which its partitions were dealt out (:meth:`.turns.Tail.deal`).
    """

    source: str
    target: str
    options: CopyOptions
    lease: LeaseToken
    report_to: str | None = field(default=None, repr=False)
    deal: int = 0


def work_to_json(work: CopyWork) -> str:
    """Serialise, for another process or a Spark option, which Spark shows in query plans: nothing in it is secret.

    Settings are references. Where the driver listens is no part of it: that comes with each turn.
    """
    return json.dumps(asdict(replace(work, report_to=None)), default=sorted)  # a set, for one, is a Collection too


def work_from_json(text: str) -> CopyWork:
    """Inverse of :func:`work_to_json`."""
    values = json.loads(text)
    values["options"] = CopyOptions(**values["options"])
    values["lease"] = LeaseToken(**values["lease"])
    return CopyWork(**values)


def turn_of(options: CopyOptions, dealt: Sequence[Sequence[CopyRange]], report_to: str | None = None) -> dict[str, Any]:
    """Return what the tasks of a tail's turn do, as JSON has it.

    :param dealt: the ranges of each task. :param report_to: see :class:`CopyWork`.
    """
    return {
        "report_to": report_to,
        "options": {**asdict(options), "tombstone_topics": sorted(options.tombstone_topics)},
        "ranges": [[r.to_dict() for r in part] for part in dealt],
    }


def copy_ranges(
    work: CopyWork, ranges: Sequence[CopyRange], duration_s: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[PartitionResult]:  # fmt: skip
    """Copy ``ranges`` until their ends, or until the lease is lost; with ``duration_s`` until the driver asks to end.

    :param duration_s: how long a task lasts whose driver does not listen. One that does says when it is over.

    A lease that is lost, or could not be confirmed for too long, is reported in each unfinished partition's ``error``;
    the process has stopped writing by then.
    """
    started = time.monotonic()
    deadline = None if duration_s is None else time.monotonic() + duration_s
    target = load(work.target, "target")
    with ExitStack() as stack:
        clusters = Clusters.of(load(work.source, "source"), target)
        # The watch is made below, as it may end the task before it begins: each partition is there by then, to say so.
        loop = CopyLoop(ranges, clusters, work.options, lambda: watch.check())
        reporter = stack.enter_context(
            Reporter(work.report_to, loop.partitions, loop.gauges, take_in=loop.take_in, deal=work.deal)
        )

        def ends() -> bool:
            if deadline is None:
                return should_stop()
            # A driver that does not hear us has other tasks, perhaps, which end then as well, and deals anew.
            untold = not reporter.is_connected and time.monotonic() >= deadline
            return should_stop() or reporter.asked_to_end or untold

        try:
            # Closed behind the loop's end, and not before: the steps that are ending still ask it.
            watch = stack.enter_context(closing(LeaseWatch(target, work.lease)))
            loop.run(ends)
        # Each partition that is not complete says so: the driver must not take where it stands for where it ends. What
        # was appended and not acknowledged is in the target's log, where the next lease's opening finds it.
        except (LeaseLost, LeaseUnconfirmed) as e:  # it may be lost before this task starts
            for p in loop.partitions:
                p.error = p.error or (None if p.done else e)
    return [PartitionResult.of(p, time.monotonic() - started) for p in loop.partitions]
