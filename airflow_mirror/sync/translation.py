"""The positions of a mirror's groups, from one cluster to the other: read, translated, and committed or only shown."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan.life import require_alone
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.groups import GroupReport, commit_groups, read_positions, reverse, translate_positions
from airflow_mirror.sync.maps import OffsetMaps


def translate_groups(
    plan: Plan,
    source: ClientConfig,
    target: ClientConfig,
    *,
    commit: bool = False,
    allow_rewind: bool = False,
    back: bool = False,
) -> GroupReport:
    """Translate the positions of the plan's groups; commit them, or only report.

    :param allow_rewind: also commit where the group is already further on the other cluster.
    :param back: from the target to the source, for groups that return.
    :raises GroupActive: a group has members where its positions are to be set; no group was changed.
    :raises TopicsShared: a position on the target stands for other sources, too.
    :raises OffsetOutOfRange: the other cluster does not hold a position (yet). Without ``commit`` it is a problem of the
        report.
    """
    require_alone(plan, "translate positions of groups")
    topics = reverse(plan.topics) if back else plan.topics
    left, right = (target, source) if back else (source, target)
    with ClusterAdmin(left) as here, ClusterAdmin(right) as there:
        before = _partitions(here, (t.source_topic for t in topics))
        after = _partitions(there, (t.target_topic for t in topics))
        # Positions first: a map that is completed afterwards covers them, unless the copy has not reached them.
        positions = read_positions(here, plan.mirror, [t.source_topic for t in topics])
        with OffsetMaps(plan, source, target) as maps:
            translated = translate_positions(
                positions,
                topics,
                here.offsets(before, "earliest"),
                there.offsets(after, "earliest"),
                there.offsets(after, "latest"),
                maps.to_source if back else maps.to_target,
                strict=commit,
            )
        return commit_groups(there, translated, allow_rewind=allow_rewind, dry_run=not commit)


def _partitions(cluster: ClusterAdmin, topics: Iterable[str]) -> list[TopicPartition]:
    found = cluster.topics(list(topics)).values()
    return [TopicPartition(info.name, p) for info in found for p in range(info.partitions)]
