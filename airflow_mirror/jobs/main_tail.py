"""The streaming tail: follows the source until SIGTERM, in one lease (micro-batch) after another.

Exit status 0: stopped by SIGTERM or SIGINT. 1: failed; partition and cause on stderr. 2: bad arguments.

A partition that stops for good (`errors.NeedsHuman`) ends the job after the lease in which it was found: the others have
come to a clean stop by then.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.copy import lease
from airflow_mirror.copy.ranges import CopyRange, deal
from airflow_mirror.copy.results import PartitionResult, add, summarise
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.errors import MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs import arguments as cli
from airflow_mirror.jobs import rim
from airflow_mirror.jobs.copying import CopyJob, HeldLease, prepare, resolve_ranges, wait_until, writer_lease
from airflow_mirror.jobs.directory import write_json
from airflow_mirror.jobs.progress import Progress
from airflow_mirror.jobs.rim import Outcome
from airflow_mirror.jobs.session import spark_session
from airflow_mirror.jobs.status import StatusFile
from airflow_mirror.kafka.config import load
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

DESCRIPTION = """Follow Kafka topics on another cluster: same records, same bytes, same offsets, milliseconds later.

Runs until SIGTERM. Safe to kill and start again: each partition goes on where its target's log ends."""
_LEASE_S = 60.0
_DISCOVER_EVERY_S = 10.0


class Tail:
    """The state of a running tail: which ranges it follows and what its leases reported.

    :param ranges_file: read by the data source at the start of each lease.
    """

    def __init__(self, job: CopyJob, tasks: int, ranges_file: Path) -> None:
        self._job, self._tasks, self._ranges_file = job, tasks, ranges_file
        self.ranges: list[CopyRange] = []
        self.totals: dict[tuple[str, int], PartitionResult] = {}
        self.failed: MirrorError | None = None
        self.stopping = threading.Event()
        self.reported = threading.Event()  # all tasks of a lease have ended

    def discover(self) -> bool:
        """Resolve which partitions there are now; return whether that changed."""
        with WireCluster(load(self._job.source, "source")) as source:
            found = resolve_ranges(self._job, source, self._job.mirror.start, None)
        known = {r.source: r for r in self.ranges}
        # A partition keeps the range with which it joined: its start must not move with the source's log start.
        found = [known.get(r.source, r) for r in found]
        if found == self.ranges:
            return False
        self.ranges = found
        dealt = deal(found, self._tasks, {})
        write_json(self._ranges_file, [[r.to_dict() for r in part] for part in dealt])
        return True

    def take_results(self, frame: Any, _batch_id: int) -> None:
        """Add up what one lease reported (``foreachBatch``; runs in the driver)."""
        errors = []
        rows = frame.collect()
        self.reported.set()
        for row in rows:
            result = PartitionResult(**json.loads(row.result))
            if self.stopping.is_set():
                result = replace(result, error=None)  # the lease was released on purpose: that is how tasks are told
            self.totals[(result.topic, result.partition)] = add(self.totals, result)
            if result.error:
                errors.append(result)
        for error in errors:
            # Not final: the next lease opens the partition again, wherever its target's log ends by then.
            log.log(logging.ERROR if error.final else logging.WARNING, "%s", error.error)
        if any(r.final for r in errors):
            self.failed = NeedsHuman("\n".join(str(r.error) for r in errors if r.final))
            raise self.failed


def main(argv: Sequence[str]) -> int:
    """Run the tail; see the module's text for exit status."""
    parser = cli.parser("streaming_tail.py", DESCRIPTION)
    parser.add_argument(
        "--lease-s", type=float, default=_LEASE_S, metavar="S", help="seconds of copying a micro-batch (default: 60)"
    )
    return rim.run(parser, argv, _work)


def _work(arguments: argparse.Namespace, status: StatusFile) -> Outcome:
    begun = time.monotonic()
    mirror = cli.mirror_of(arguments)
    job = prepare(arguments, mirror)
    with (
        tempfile.TemporaryDirectory(prefix="airflow-mirror-tail-") as scratch,
        writer_lease(arguments.target, mirror.name) as held,
    ):
        tail = Tail(job, arguments.tasks or os.cpu_count() or 2, Path(scratch, "ranges.json"))
        tail.discover()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: tail.stopping.set())
        status.update("starting Spark")
        with spark_session(f"airflow-mirror tail {mirror.name}") as spark:
            wait_until(held.safe_at, status, tail.stopping)
            _follow(spark, tail, held, arguments, status, Path(scratch))
    return summarise(tail.totals.values(), time.monotonic() - begun), None


def _follow(
    spark: Any, tail: Tail, held: HeldLease, arguments: argparse.Namespace, status: StatusFile, scratch: Path
) -> None:
    from airflow_mirror.copy.spark_tail import SOURCE_NAME, TailSource, work_to_json

    job = tail._job
    work = CopyWork(arguments.source, arguments.target, job.options, held.token)
    spark.dataSource.register(TailSource)
    stream = spark.readStream.format(SOURCE_NAME).option("work", work_to_json(work))
    stream = stream.option("ranges_file", str(scratch / "ranges.json")).option("lease_s", str(arguments.lease_s)).load()
    query = (
        stream.writeStream.foreachBatch(tail.take_results)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .queryName(f"mirror_{job.mirror.name}".replace("-", "_"))
        .start()
    )
    progress = Progress(arguments.source, arguments.target, tail.ranges, job.options.committed_only, status)
    status.update("copying")
    progress.start()
    try:
        _supervise(query, tail, progress)
    finally:
        progress.stop()
        _end_tasks(held, tail)
        query.stop()
    if tail.failed is not None:
        raise tail.failed


def _end_tasks(held: HeldLease, tail: Tail) -> None:
    """Let the tasks, anywhere in the cluster, stop by themselves: each finishes what it has in flight and reports."""
    tail.reported.clear()
    try:
        held.withdraw()
    except TryAgain as e:
        log.warning("lease not withdrawn, tasks stop when they can't confirm it: %s", e)
    tail.reported.wait(lease.HANDOVER_S)


def _supervise(query: Any, tail: Tail, progress: Progress) -> None:
    """Wait until told to stop or the query ended; look for new topics and partitions meanwhile."""
    looked = time.monotonic()
    while not tail.stopping.wait(0.5):
        if not query.isActive:
            error = query.exception()
            if tail.failed is None:
                raise TryAgain(f"the streaming query ended: {error}")
            return
        if time.monotonic() - looked > _DISCOVER_EVERY_S:
            looked = time.monotonic()
            try:
                if tail.discover():
                    progress.follow(tail.ranges)
            except TryAgain as e:
                log.warning("new partitions not looked for: %s", e)
