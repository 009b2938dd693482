"""The comparison while the source is fenced: only offsets that were not compared before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import LedgerMissing
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.configs import cleaned_sides, held_topics
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import active_topics
from airflow_mirror.sync.maps import map_source
from airflow_mirror.verify.pairs import paired
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.proof import standing
from airflow_mirror.verify.result import PartitionComparison


def verify_rest(
    plan: Plan,
    source: ClientConfig,
    target: ClientConfig,
    since: Mapping[TopicPartition, int] | None = None,
    level: str = "batches",
) -> Callable[[Mapping[TopicPartition, int]], list[PartitionComparison]]:
    """Return the ``verify`` of a cutover, which compares each partition from ``since`` up to the fenced end.

    :param since: source offsets up to which an earlier comparison found both sides equal, from the plan's start on
        (`verify.proof`). What lies before is not read again, but has to be there still. Partitions that it does not name,
        and those of topics that a log cleaner works on against the plan, are compared from the plan's start, while
        producers wait.
    """
    maps = map_source(plan)
    names = [t.target_topic for t in plan.topics]

    def verify(ends: Mapping[TopicPartition, int]) -> list[PartitionComparison]:
        with ClusterAdmin(target) as admin:
            configs = admin.topic_configs(names)
            held = held_topics(plan, configs)
            # Whatever its settings say at this moment: who has set retention on a target before applications write
            # there has had records of the copy deleted.
            with suppress(LedgerMissing):
                held |= active_topics(Ledger(admin), plan, admin)
        done = standing(since or {}, plan, configs)
        pair = paired(plan, held, cleaned_sides(plan, configs))
        pairs = [
            pair(tp, begin, max(begin, done.get(tp, 0)), ends[tp])
            for t in plan.topics
            for p in range(t.partitions)
            for tp, begin in [(TopicPartition(t.source_topic, p), t.starts.get(p, 0))]
        ]
        return compare_partitions(pairs, source, target, level, maps=maps, isolation=plan.mirror.isolation)

    return verify
