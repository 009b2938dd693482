"""Offsets of partitions: read log start and log end offsets, move log starts. Each partition's leader is asked.

Errors are those of :class:`airflow_mirror.wire.cluster.WireCluster`, which finds the leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_mirror.kafka.session import AdminSession
    from airflow_mirror.partition import TopicPartition
    from airflow_mirror.wire.cluster import WireCluster


def offsets(session: AdminSession, partitions: Iterable[TopicPartition], spec: str | int) -> dict[TopicPartition, int]:
    """Return one offset per partition; ``spec`` as for ``ClusterAdmin.offsets``."""
    asked = list(dict.fromkeys(partitions))
    if not asked:
        return {}
    cluster = session.cluster
    ask = {"earliest": cluster.log_starts, "latest": cluster.high_watermarks, "latest_committed": cluster.last_stable}
    try:
        return cluster.offsets_for_time(asked, spec) if isinstance(spec, int) else ask[spec](asked)
    finally:
        _forget(cluster, asked)


def delete_records(session: AdminSession, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Move log starts up to the given offsets; return the log starts afterwards."""
    if not before:
        return {}
    cluster = session.cluster
    try:
        return cluster.delete_records(before)
    finally:
        _forget(cluster, before)


def _forget(cluster: WireCluster, partitions: Iterable[TopicPartition]) -> None:
    """Forget the leaders: between two admin calls minutes may pass, and topics may be deleted."""
    for topic in {tp.topic for tp in partitions}:
        cluster.forget(topic)
