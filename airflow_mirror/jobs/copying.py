"""What the bulk copy and the tail have in common: plan or load a plan, resolve ranges, hold the lease."""

from __future__ import annotations

import argparse
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from airflow_mirror.copy import lease
from airflow_mirror.copy.loop import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.config import load
from airflow_mirror.mirror import Mirror
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan import Plan, build
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CopyJob:
    """A copy, ready to be run: what, from where, to where."""

    mirror: Mirror
    source: str
    target: str
    plan: Plan
    options: CopyOptions


def prepare(arguments: argparse.Namespace, mirror: Mirror) -> CopyJob:
    """Load the plan, or make one and create what it says: a job run by hand needs no operator before it.

    :raises PlanBlocked: with every finding, before anything is written.
    """
    if arguments.plan:
        plan = Plan.load(Path(arguments.plan))
    else:
        source = ClusterAdmin(load(arguments.source, "source"))
        target = ClusterAdmin(load(arguments.target, "target"))
        # Existing target topics are judged by the copy itself: it compares their last batch with the source's.
        known = [mirror.naming.target_topic(t) for t in source.topics() if mirror.selects_topic(t)]
        plan = build(mirror, source, target, known_topics=known)
        plan.raise_if_blocked()
        create_target_topics(plan, target)
    admin = ClusterAdmin(load(arguments.target, "target"))
    configs = admin.topic_configs([t.target_topic for t in plan.topics])
    limits = {topic: int(entries["max.message.bytes"].value or 0) for topic, entries in configs.items()}
    options = CopyOptions(mirror.name, mirror.isolation == "read_committed", limits)
    return CopyJob(mirror, arguments.source, arguments.target, plan, options)


def resolve_ranges(
    job: CopyJob, source: WireCluster, start: str, end: str | None, topics: Mapping[str, tuple[str, str]] | None = None
) -> list[CopyRange]:
    """Resolve the plan's topics to offset ranges, partition by partition, as the source stands now.

    :param start: ``earliest``, ``latest`` or ISO 8601; where a partition begins that the target holds nothing of.
    :param end: ``latest`` (the last stable offset now, or the high watermark), ISO 8601, or None to follow.
    :param topics: source topic -> (target topic, source topic id); default: those of the plan.
    """
    wanted = topics or {t.source_topic: (t.target_topic, t.source_topic_id) for t in job.plan.topics}
    source.refresh(wanted)
    partitions = [TopicPartition(t, p) for t in wanted for p in range(source.partitions(t))]
    starts = _offsets_at(source, partitions, start, job.options.committed_only)
    ends = _offsets_at(source, partitions, end, job.options.committed_only) if end is not None else {}
    return [
        CopyRange(tp.topic, wanted[tp.topic][0], tp.partition, starts[tp], ends.get(tp), wanted[tp.topic][1])
        for tp in partitions
    ]


def _offsets_at(
    source: WireCluster, partitions: list[TopicPartition], when: str, committed_only: bool
) -> Mapping[TopicPartition, int]:
    if when == "earliest":
        return source.log_starts(partitions)
    latest = source.last_stable(partitions) if committed_only else source.high_watermarks(partitions)
    if when == "latest":
        return latest
    at_ms = round(datetime.fromisoformat(when).timestamp() * 1000)
    found = source.offsets_for_time(partitions, at_ms)
    # -1: no record is as young as that, so the point in time lies at the end of the log.
    return {tp: latest[tp] if found[tp] < 0 else found[tp] for tp in partitions}


def wait_until(safe_at: float, status: StatusFile, stopping: threading.Event | None = None) -> None:
    """Let the tasks of a job that did not end cleanly notice that the lease is gone."""
    pause_s = safe_at - time.monotonic()
    if pause_s > 0:
        status.update("waiting for an older job's writers to stop")
        log.info("waiting %.1f s: an older job of this mirror may still be writing", pause_s)
        (stopping or threading.Event()).wait(pause_s)


class HeldLease:
    """The writer lease as a job's driver holds it.

    :ivar token: for the tasks.
    :ivar safe_at: monotonic time from which writing is safe.
    """

    def __init__(self, target: WireCluster, mirror: str) -> None:
        self._target = target
        self.token = lease.take(target, mirror)
        self.safe_at = time.monotonic() + self.token.wait_s

    def withdraw(self) -> None:
        """Make every task stop by itself."""
        self.token = lease.withdraw(self._target, self.token)

    def release(self) -> None:
        """Say that no task is left."""
        lease.release(self._target, self.token)


@contextmanager
def writer_lease(reference: str, mirror: str) -> Iterator[HeldLease]:
    """Take the writer lease, and release it when the block ends well.

    After an exception it stays held: tasks of a Spark job that failed may still be writing, and the next job waits for
    them.
    """
    with WireCluster(load(reference, "target")) as target:
        held = HeldLease(target, mirror)
        yield held
        held.release()
