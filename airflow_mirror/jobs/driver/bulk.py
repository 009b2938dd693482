"""The bulk copy: every partition up to the source's log end offset at the start (or ``--end``), then exit.

Exit status 0: every partition at its end. 1: failed; partition and cause on stderr. 2: bad arguments.
The last line on stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from airflow_mirror.config import load
from airflow_mirror.copy.dealing import deal_bulk
from airflow_mirror.copy.ranges import CopyRange, deal, total_offsets
from airflow_mirror.copy.results import PartitionResult, summarise
from airflow_mirror.copy.spark.bulk import run_bulk
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.executors import handover_for, slots
from airflow_mirror.jobs.driver.prepare import (
    prepare,
    require_still_ours,
    resolve_window,
    shared,
    wait_until,
    window_book,
    wishes_at_start,
    writer_lease,
)
from airflow_mirror.jobs.driver.publication import open_publication, publish
from airflow_mirror.jobs.driver.reachable import check_reachable
from airflow_mirror.jobs.driver.rounds import copy_in_rounds, listening
from airflow_mirror.jobs.driver.session import spark_session
from airflow_mirror.jobs.driver.weights import WEIGH_S, bytes_to_copy
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.keeper import Progress
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

DESCRIPTION = """Copy Kafka topics to another cluster: same records, same bytes, same offsets.

Safe to repeat: each partition continues at the target's log end offset."""


def main(argv: Sequence[str]) -> int:
    """Run the job; see the module docstring for exit status and output."""
    parser = cli.parser("bulk_copy.py", DESCRIPTION)
    parser.add_argument(
        "--end", metavar="latest|ISO", default="latest", help="where to stop (default: latest, when the job starts)"
    )
    cli.add_late(parser)
    cli.add_hold(parser)
    cli.add_progress(parser)
    cli.add_metrics(parser)
    return entry.run(parser, argv, _work)


def _work(arguments: argparse.Namespace, status: StatusFile) -> Outcome:
    with closing(open_publication(arguments, status)) as publication:
        return _copy(arguments, status, publication)


def _copy(arguments: argparse.Namespace, status: StatusFile, publication: Publication) -> Outcome:
    begun = time.monotonic()
    mirror = cli.mirror_of(arguments)
    job = prepare(arguments, mirror)
    wishes = wishes_at_start(job)
    with (
        WireCluster(load(arguments.source, "source")) as source,
        WireCluster(load(arguments.target, "target"), timeout_s=WEIGH_S) as target,
        window_book(arguments, mirror) as book,
    ):
        ranges, window = resolve_window(job, source, mirror.start, arguments.end, arguments.late_s, book)
        if arguments.start is not None or arguments.end != "latest":
            check_reachable(ranges, target, mirror.name, mirror.start)
        weights = bytes_to_copy(source, target, ranges)
    log.info("%d partitions, %s offsets to their ends", len(ranges), f"{total_offsets(ranges):,}")
    with writer_lease(arguments.target, mirror.name) as held:
        require_still_ours(job)
        status.update("starting Spark")
        with spark_session(f"airflow-mirror bulk {mirror.name}") as spark:
            wait_until(held.safe_at, status)
            clusters, committed = (arguments.source, arguments.target), job.options.committed_only
            progress = Progress(*clusters, ranges, committed, status, cli.progress_hosts(arguments, spark))
            publish(publication, arguments, "bulk_copy", job, progress.table, held)
            handed = handover_for(spark, arguments.settings_from, arguments.source, arguments.target)

            def copy(left: Sequence[CopyRange], wishes: Wishes, token: LeaseToken) -> list[PartitionResult]:
                status.update("copying")
                rate = wishes.rate_or(job.options.max_bytes_per_second)
                if arguments.tasks:
                    dealt = deal(left, arguments.tasks, weights)
                else:
                    dealt = deal_bulk(left, slots(spark), weights, at_once=rate is not None)
                options = shared(replace(job.options, max_bytes_per_second=rate), min(len(dealt), slots(spark)))
                work = CopyWork(
                    source=clusters[0], target=clusters[1], options=options, lease=token, report_to=progress.report_to
                )
                return run_bulk(spark, dealt, work, handed)

            results: list[PartitionResult] = []
            progress.start()
            try:
                with listening(job, arguments, held, status, wishes) as ear:
                    results = copy_in_rounds(ranges, copy, ear, held, progress.table.begin_turn)
            finally:
                progress.stop(results)
    summary = summarise(results, time.monotonic() - begun) | window
    summary["errors"] += _unfinished(results)
    return summary, entry.failure(results, summary["errors"])


def _unfinished(results: list[PartitionResult]) -> list[str]:
    """Report partitions that neither failed nor reached their end: that must never look like success."""
    return [f"{r.topic}-{r.partition}: stopped at {r.position}" for r in results if not r.done and not r.error]
