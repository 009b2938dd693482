"""Copies between two driven clusters, in this thread and in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import IDENTICAL, CopyRange
from airflow_mirror.partition import TopicPartition
from tests.driven.cluster import DrivenCluster


def ranges_of(source: DrivenCluster, topic: str, mode: str = IDENTICAL, *, committed: bool = True) -> list[CopyRange]:
    """Return the whole of a topic as it stands now."""
    found = []
    for log in source.topics[topic].logs:
        end = log.last_stable if committed else log.high_watermark
        found.append(CopyRange(topic, topic, log.tp.partition, log.log_start, end, mode=mode))
    return found


def copy(
    source: DrivenCluster, target: DrivenCluster, ranges: Iterable[CopyRange], *,
    check: Callable[[], None] = lambda: None, should_stop: Callable[[], bool] = lambda: False, **options: Any,
) -> list[PartitionCopy]:  # fmt: skip
    """Copy until every range has ended or stopped. No lease is taken; ``check`` stands for it.

    :raises LeaseLost: what ``check`` raised.
    """
    clusters = Clusters.of(source.config, target.config)
    loop = CopyLoop(ranges, clusters, CopyOptions("m", **options), check)
    return loop.run(should_stop)


def errors(copies: Iterable[PartitionCopy]) -> dict[TopicPartition, Exception | None]:
    """Return what stopped each partition."""
    return {p.range.source: p.error for p in copies}
