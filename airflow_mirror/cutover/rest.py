"""The comparison that runs behind the fence: only what was not compared before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.partition import TopicPartition
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionPair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_mirror.kafka.config import ClientConfig
    from airflow_mirror.plan.model import Plan
    from airflow_mirror.verify.result import PartitionComparison


def verify_rest(
    plan: Plan,
    source: ClientConfig,
    target: ClientConfig,
    since: Mapping[TopicPartition, int] | None = None,
    level: str = "batches",
) -> Callable[[Mapping[TopicPartition, int]], list[PartitionComparison]]:
    """Return the ``verify`` of a cutover: compares each partition from ``since`` up to the fenced end.

    Topics with mapped offsets are left out: their offsets differ, which this comparison would report.

    :param since: source offsets up to which an earlier comparison found both sides equal; partitions that it does not
        name are compared from their beginning, while producers wait.
    """
    done = dict(since or {})

    def verify(ends: Mapping[TopicPartition, int]) -> list[PartitionComparison]:
        pairs = [
            PartitionPair(t.source_topic, t.target_topic, p, done.get(tp), ends[tp])
            for t in plan.topics
            if t.mode == "identical"
            for p in range(t.partitions)
            for tp in [TopicPartition(t.source_topic, p)]
        ]
        return compare_partitions(pairs, source, target, level)

    return verify
