"""The streaming tail: follows the source until SIGTERM, in one turn (micro-batch) after another.

Exit status 0: stopped by SIGTERM or SIGINT, every partition cleanly. 1: failed, or partitions had failed when it was
stopped; partition and cause on stderr. 2: wrong arguments.

Nothing is copied for about a second between two turns, so turns are long. A turn ends early if partitions were added or
one stopped. A partition that stops for good (`errors.NeedsHuman`) ends the job after that turn, when the others have
stopped cleanly. A source topic that was deleted, or created again, does not: the next turn goes on without it.
"""

from __future__ import annotations

import argparse
import logging
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from airflow_mirror.config import load
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import summarise
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost, MirrorError, TryAgain
from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.executors import slots
from airflow_mirror.jobs.driver.followers import followers
from airflow_mirror.jobs.driver.prepare import (
    CopyJob,
    HeldLease,
    prepare,
    wait_until,
    writer_lease,
)
from airflow_mirror.jobs.driver.presence import Presence, presence
from airflow_mirror.jobs.driver.publication import open_publication, publish
from airflow_mirror.jobs.driver.session import spark_session
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.jobs.driver.watches import Watches
from airflow_mirror.jobs.driver.way_back import WayBack
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.keeper import Progress
from airflow_mirror.jobs.runner.guarding import guarded
from airflow_mirror.jobs.runner.spec import is_local
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.signals import set_in_handler
from airflow_mirror.wire.errors import Fenced, UnknownTopic

log = logging.getLogger(__name__)

DESCRIPTION = """Follow Kafka topics on another cluster: same records, same bytes, same offsets, milliseconds later.

Runs until SIGTERM. Safe to kill and start again: each partition continues at the target's log end offset."""
_TURN_S = 600.0
_TURN_UNTOLD_S = 60.0  # upper limit if tasks can't be told to end early
_MERCY_S = 5.0  # from the first partition that stops to the end of the turn: the same cause often stops others
_DISCOVER_EVERY_S = 10.0
_NO_WORKER = "Python worker failed to connect back"  # Spark's message; no setting changes how long it waits
_STARTS = 5
_LOOK_EVERY_S = 0.5
_GUARD_EVERY_S = 5.0  # whether a cutover has raised its fence
_GUARD_WAIT_S = 120.0  # a deposed tail's guard stays until that fence is decided
_WITHDRAW_AGAIN_S = 5.0


def main(argv: Sequence[str]) -> int:
    """Run the tail; see the module docstring for exit status."""
    parser = cli.parser("streaming_tail.py", DESCRIPTION)
    parser.add_argument(
        "--turn-s", type=float, default=_TURN_S, metavar="S", help="seconds that a micro-batch copies (default: 600)"
    )
    parser.add_argument(
        "--takeover", action="store_true", help="replace the mirror's tail even if it gives signs of life"
    )
    parser.add_argument("--replaces", default="", help=argparse.SUPPRESS)  # what was found to be lost
    cli.add_hold(parser)
    cli.add_progress(parser)
    cli.add_metrics(parser)
    return entry.run(parser, argv, _work)


def _work(arguments: argparse.Namespace, status: StatusFile) -> Outcome:
    with closing(open_publication(arguments, status)) as publication:
        return _run(arguments, status, publication)


def _run(arguments: argparse.Namespace, status: StatusFile, publication: Publication) -> Outcome:
    begun = time.monotonic()
    mirror = cli.mirror_of(arguments)
    if mirror.sync_acls:  # it may have changed since the plan
        for role in ("source", "target"):
            with ClusterAdmin(load(getattr(arguments, role), role)) as cluster:
                own_principal(cluster, mirror.own_principals)
    job = prepare(arguments, mirror)
    stopping = threading.Event()
    clusters = load(arguments.source, "source"), load(arguments.target, "target")
    with (
        presence(job, arguments, status, stopping) as there,
        guarded(*clusters, mirror.name, every_s=_GUARD_EVERY_S, wait_s=_GUARD_WAIT_S),
    ):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: set_in_handler(stopping))
        tail = _copy(job, arguments, status, stopping, there, publication)
        summary = summarise(tail.totals.values(), time.monotonic() - begun) | {"gone": sorted(tail.gone)}
        # While a tail runs, the next turn reopens failed partitions. There is no next turn any more.
        return there.ends_with((summary, entry.failure(tail.totals.values(), summary["errors"])))


def _copy(
    job: CopyJob, arguments: argparse.Namespace, status: StatusFile, stopping: threading.Event, there: Presence,
    publication: Publication,
) -> Tail:  # fmt: skip
    mirror = job.mirror
    with (
        tempfile.TemporaryDirectory(prefix="airflow-mirror-tail-") as scratch,
        writer_lease(arguments.target, mirror.name) as held,
    ):
        there.require_active()
        tail = Tail(job, arguments.tasks, Path(scratch, "turn.json"), stopping)
        tail.discover()
        status.update("starting Spark")
        with spark_session(f"airflow-mirror tail {mirror.name}", tail.stopping) as spark:
            tail.slots = partial(slots, spark)
            tail.hear(there.wishes)
            tail.deal()
            wait_until(held.safe_at, status, tail.stopping)
            _follow(spark, tail, job, held, there, arguments, status, Path(scratch), publication)
    return tail


def _follow(
    spark: Any,
    tail: Tail,
    job: CopyJob,
    held: HeldLease,
    there: Presence,
    arguments: argparse.Namespace,
    status: StatusFile,
    scratch: Path,
    publication: Publication,
) -> None:
    from airflow_mirror.copy.spark.tail import SOURCE_NAME, TailSource, work_to_json

    clusters, committed = (arguments.source, arguments.target), job.options.committed_only
    progress = Progress(*clusters, tail.ranges, committed, status, cli.progress_hosts(arguments, spark))
    tail.on_turn_end, tail.report_to = progress.table.begin_turn, progress.report_to
    tail.deal()
    spark.dataSource.register(TailSource)
    turn_s = arguments.turn_s if progress.report_to else min(arguments.turn_s, _TURN_UNTOLD_S)
    cluster = not is_local(spark.sparkContext.master)
    reader = {
        "turn_file": str(scratch / "turn.json"),
        "turn_s": str(turn_s),
        "hand_over": str(cluster and arguments.settings_from == "driver").lower(),
    }

    def start(number: int) -> Any:
        work = work_to_json(CopyWork(source=clusters[0], target=clusters[1], options=tail.options, lease=held.token))
        stream = spark.readStream.format(SOURCE_NAME).options(**reader, work=work).load()
        return (
            stream.writeStream.foreachBatch(tail.take_results)
            .trigger(processingTime="1 second")  # between turns in which there is nothing to do; others take longer
            # Turns are counted from 0 again. A path without a scheme might lie in the cluster's file system.
            .option("checkpointLocation", (scratch / f"checkpoint-{number}").as_uri())
            .queryName(f"mirror_{job.mirror.name}".replace("-", "_"))
            .start()
        )

    progress.start()
    try:
        with Watches(job, held, status, tail.gone) as watches:
            groups = DelayMeter()
            publish(publication, arguments, "streaming_tail", job, progress.table, held, watches.hold, groups)
            if not tail.stopping.is_set():  # else nobody waited until writing is safe
                with followers(tail, held, status, groups, by_hand=not arguments.plan):
                    _copy_on(start, tail, there, held, progress, watches, status)
    finally:
        progress.stop()
        _end(held, tail)
    if tail.failed is not None:
        raise tail.failed


def _copy_on(
    start: Callable[[int], Any], tail: Tail, there: Presence, held: HeldLease, progress: Progress, watches: Watches,
    status: StatusFile,
) -> None:  # fmt: skip
    """Let one stream copy, and after a pause or a lost lease the next one, until the tail is over.

    :param start: starts the stream of a number.
    """
    failed, back = 0, WayBack(there, held, status, tail.stopping)
    for number in count(1):
        _rest_while_paused(tail, there, held, watches, status)
        if tail.deposed is not None:
            back.go(tail.deposed, tail.job.plan)
            tail.deposed = None
        if tail.is_over():
            return
        tail.withdrawn.clear()
        status.update("copying")
        try:
            tail.query = start(number)
            _supervise(tail, there, progress, watches)
            failed = 0
        except LeaseLost as e:  # the watch of settings may find it first
            tail.deposed = str(e)
        except Exception as e:
            failed += 1
            if _NO_WORKER not in str(e) or failed == _STARTS:
                raise
            log.warning("start %d of %d: a Python worker took more than the 10 s that Spark gives it", failed, _STARTS)
        if tail.is_over():
            return  # the last words of its tasks are no progress any more
        _end(held, tail)  # others of the same turn may still be running
        progress.table.begin_turn()


def _end(held: HeldLease, tail: Tail) -> None:
    """Make all tasks in the cluster stop, if there are any: each finishes its requests in flight and reports."""
    if tail.query is None:
        return
    tail.reported.clear()
    _withdraw(held, tail)
    tail.reported.wait(lease.HANDOVER_S)
    tail.query.stop()
    tail.query = None


def _withdraw(held: HeldLease, tail: Tail) -> None:
    tail.withdrawn.set()
    try:
        held.withdraw()
    except MirrorError as e:
        tail.withdrawn.clear()
        if isinstance(e, Fenced):
            tail.deposed = str(e)
        log.warning("lease not withdrawn, tasks stop when they can't confirm it: %s", e)


def _rest_while_paused(tail: Tail, there: Presence, held: HeldLease, watches: Watches, status: StatusFile) -> None:
    """Return once the mirror is not paused (any more), or the tail has to end; meanwhile keep topics on hold.

    The lease stays held, so that nobody else begins to copy. What follows the data goes on following: it is never set
    beyond what was copied, and a failover during a pause needs it.
    """
    while there.wishes.pause is not None and not tail.is_over():
        rests = tail.withdrawn.is_set() or tail.deposed is not None
        if rests:
            status.update("paused")
        else:
            _withdraw(held, tail)  # a task that could not be told to end would copy for the rest of its turn
        try:
            watches.look()
        except LeaseLost as e:
            tail.deposed = str(e)
        tail.stopping.wait(_LOOK_EVERY_S if rests else _WITHDRAW_AGAIN_S)


def _supervise(tail: Tail, there: Presence, progress: Progress, watches: Watches) -> None:
    """Wait until asked to stop or rest, or the query has ended; meanwhile discover partitions, and watch."""
    looked = time.monotonic()
    followed = list[CopyRange]()  # so that what is gone is said at once
    well = looked  # last time at which no partition was known to have stopped
    while not tail.stopping.wait(_LOOK_EVERY_S) and there.wishes.pause is None:
        if not tail.query.isActive:
            error = tail.query.exception()
            if tail.failed is None and tail.deposed is None:
                raise TryAgain(f"the streaming query ended: {error}")
            return
        if not progress.table.has_stopped():
            well = time.monotonic()
        elif time.monotonic() - well > _MERCY_S:
            progress.end_turn()
        if tail.hear(there.wishes):
            tail.deal()
            progress.end_turn()
        if tail.is_crowded:
            progress.end_turn()  # ends waiting tasks too, as soon as they start: the next turn uses fewer tasks
        watches.look()
        amended = tail.amended.is_set()
        if amended:
            tail.amended.clear()
            watches.follow(tail.job.plan)
        if amended or time.monotonic() - looked > _DISCOVER_EVERY_S:
            looked = time.monotonic()
            _discover(tail, progress)
        if tail.ranges is not followed:
            followed = tail.ranges
            progress.table.follow(followed)
            watches.tell()


def _discover(tail: Tail, progress: Progress) -> None:
    try:
        if tail.discover():
            progress.end_turn()
    except (TryAgain, UnknownTopic) as e:
        # The task that copies a deleted topic reports it, because it knows up to where the topic was copied.
        log.warning("could not look for new partitions: %s", e)
