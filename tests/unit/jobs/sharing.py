"""Shares of a mirror, what becomes of them, and a clock: what the tests of sharing deal with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.jobs.plain.shares import Share
from airflow_mirror.jobs.runner.active import ActiveTail
from airflow_mirror.mirror import Mirror

MIRROR = Mirror(name="m", source="a", target="b")
LEASE = LeaseToken(transactional_id="lease", producer_id=7, epoch=3, mark_ms=1004, wait_s=0.0)
OPTIONS = CopyOptions(mirror="m", tombstone_topics=["t"], max_bytes_per_second=10.0)
TAIL = "tail-1"


def ranges(*partitions: int) -> list[CopyRange]:
    return [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0) for p in partitions]


def share(*partitions: int, number: int = 1) -> Share:
    lists = [ranges(p) for p in partitions]
    return Share(number=number, lease=LEASE, options=OPTIONS, lists=lists, seconds=60.0)


def result(partition: int, **changed: Any) -> PartitionResult:
    return replace(
        PartitionResult(topic="t", target_topic="t", partition=partition, position=5, done=False, bytes=10), **changed
    )


def process(**changed: Any) -> ActiveTail:
    """One that shares, on another host."""
    given: dict[str, Any] = {"mirror": MIRROR.to_dict(), "plan": "", "inputs": "", "directory": "", "processes": 2}
    return ActiveTail(**{**given, "host": "elsewhere", "where": "elsewhere", **changed})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now
