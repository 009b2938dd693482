"""The partitions of a plan, as pairs to compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify.result import PartitionPair


def paired(
    plan: Plan, held: Collection[str], cleaned: Mapping[str, Collection[str]]
) -> Callable[[TopicPartition, int, int, int], PartitionPair]:
    """Return what makes a pair of a source partition, where its copy begins, the first offset to compare, and its end.

    :param held: target topics whose retention is off. :param cleaned: by target topic, the sides with a log cleaner.
    """
    topics = {t.source_topic: t for t in plan.topics}

    def pair(tp: TopicPartition, begin: int, start: int, end: int) -> PartitionPair:
        t = topics[tp.topic]
        return PartitionPair(
            source_topic=t.source_topic, target_topic=t.target_topic, partition=tp.partition, begin_offset=begin,
            start_offset=start, end_offset=end, mapped=t.mode == MAPPED, held=t.target_topic in held,
            cleaned_on=cleaned.get(t.target_topic, ()),
        )  # fmt: skip

    return pair
