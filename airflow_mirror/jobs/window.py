"""Can a time window still be copied? With identical offsets a log grows at its end only."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from airflow_mirror.errors import WindowUnreachable
from airflow_mirror.partition import TopicPartition

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.plan import Plan


def check_reachable(plan: Plan, source: ClusterAdmin, target: ClusterAdmin, start: str) -> None:
    """Refuse a window that begins before what the target holds: those offsets can't be put in front of a log.

    :param start: ISO 8601 with a time zone; ``earliest`` and ``latest`` are always reachable.
    :raises WindowUnreachable: naming every such partition.
    """
    if start in ("earliest", "latest"):
        return
    start_ms = round(datetime.fromisoformat(start).timestamp() * 1000)
    there = target.topics([t.target_topic for t in plan.topics])
    pairs = {
        TopicPartition(t.source_topic, p): TopicPartition(t.target_topic, p)
        for t in plan.topics
        if t.mode == "identical" and t.target_topic in there
        for p in range(min(t.partitions, there[t.target_topic].partitions))
    }
    wanted = source.offsets(pairs, start_ms)
    begins, ends = target.offsets(pairs.values(), "earliest"), target.offsets(pairs.values(), "latest")
    refused = [
        (str(tp), wanted[tp], begins[there_tp])
        for tp, there_tp in sorted(pairs.items())
        # -1: no record is that young. A target log of length 0 can begin anywhere.
        if 0 <= wanted[tp] < begins[there_tp] and ends[there_tp] > begins[there_tp]
    ]
    if refused:
        raise WindowUnreachable(start, refused)
