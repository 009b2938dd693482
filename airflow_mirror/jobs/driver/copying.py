"""A bulk copy, whoever copies (:mod:`.crew`): each partition up to where its log ended at the start, or a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from airflow_mirror.config import load
from airflow_mirror.copy.dealing import deal_bulk
from airflow_mirror.copy.ranges import CopyRange, deal, total_offsets
from airflow_mirror.copy.results import PartitionResult, summarise
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.crew import Muster
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.held_lease import wait_until_safe, writer_lease
from airflow_mirror.jobs.driver.prepare import (
    prepare_to_copy,
    require_still_ours,
    resolve_window,
    shared,
    window_book,
    wishes_at_start,
)
from airflow_mirror.jobs.driver.publication import publish
from airflow_mirror.jobs.driver.reachable import check_reachable
from airflow_mirror.jobs.driver.rounds import copy_in_rounds, listening
from airflow_mirror.jobs.driver.stable import say
from airflow_mirror.jobs.driver.weights import WEIGH_S, bytes_to_copy
from airflow_mirror.jobs.driver.windows import Span
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.keeper import Progress
from airflow_mirror.jobs.request import BulkRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)


def copy(request: BulkRequest, status: StatusFile, publication: Publication, muster: Muster) -> Outcome:
    """Copy every partition to its end.

    :param muster: calls those together who copy.
    :raises InvalidField: the window's end is no point in time, or not after its start. Nothing was touched.
    :raises InputError: the copy of a partition began behind the window.
    """
    begun, mirror = time.monotonic(), request.mirror
    if request.end != "latest":
        Span.of(mirror.start, request.end, request.late_s)
    job = prepare_to_copy(request)
    wishes = wishes_at_start(job)
    with (
        WireCluster(load(request.source, "source")) as source,
        WireCluster(load(request.target, "target"), timeout_s=WEIGH_S) as target,
        window_book(request) as book,
    ):
        ranges, window, held_back = resolve_window(job, source, mirror.start, request.end, request.late_s, book)
        has_bounds = bool(request.start or request.end != "latest")
        if has_bounds:
            check_reachable(ranges, target, mirror.name, mirror.start)
        weights = bytes_to_copy(source, target, ranges)
    held_back = say(request.source, held_back)
    log.info("%d partitions, %s offsets to their ends", len(ranges), f"{total_offsets(ranges):,}")
    with writer_lease(request.target, mirror.name) as held:
        require_still_ours(job)
        status.update("starting")
        with muster(None) as crew:
            wait_until_safe(held, status)
            if has_bounds:  # who held the lease a moment ago may have copied a later window, and we would be at our end
                with WireCluster(load(request.target, "target")) as target:
                    check_reachable(ranges, target, mirror.name, mirror.start)
            clusters, committed = (request.source, request.target), job.options.committed_only
            progress = Progress(*clusters, ranges, committed, status, None if request.no_progress else crew.hosts)
            publish(publication, request, "bulk_copy", job, progress, held)

            def one_round(left: Sequence[CopyRange], wishes: Wishes, token: LeaseToken) -> list[PartitionResult]:
                status.update("copying")
                rate = wishes.rate_or(job.options.max_bytes_per_second)
                slots = crew.slots()
                if request.tasks:
                    # Each list has a share of a rate: none may wait for a slot that comes later.
                    dealt = deal(left, request.tasks if rate is None else min(request.tasks, slots), weights)
                else:
                    dealt = deal_bulk(left, slots, weights, at_once=rate is not None)
                options = shared(replace(job.options, max_bytes_per_second=rate), len(dealt))
                work = CopyWork(
                    source=clusters[0], target=clusters[1], options=options, lease=token, report_to=progress.report_to
                )
                return crew.copy(dealt, work)

            def has_failed() -> bool:
                return job.options.abort_on_send_failure and progress.table.has_stopped()

            results: list[PartitionResult] = []
            progress.start()
            try:
                with listening(job, held, status, wishes, has_failed, crew.has_lost) as ear:
                    results = copy_in_rounds(ranges, one_round, ear, held, progress.table.begin_turn)
            finally:
                progress.stop(results)
    summary = summarise(results, time.monotonic() - begun) | window
    summary["errors"] += _unfinished(results)
    error = entry.failure(results, summary["errors"])
    if held_back:
        summary["open_transactions"] = [str(one) for one in held_back]
        if error is None and not request.accept_open_transactions:
            error = TryAgain(
                "not copied, because transactions of the source are open",
                summary["open_transactions"],
                "Copy again once they have ended. End one that hangs: kafka-transactions.sh ... abort --topic T "
                "--partition P --start-offset OFFSET. To pass without these records: --accept-open-transactions.",
            )
    return summary, error


def _unfinished(results: list[PartitionResult]) -> list[str]:
    """Report partitions that neither failed nor reached their end: that must never look like success."""
    return [f"{r.topic}-{r.partition}: stopped at {r.position}" for r in results if not r.done and not r.error]
