"""Offsets of partitions: read log start and log end offsets, delete records. Each partition's leader is queried.

Errors are those of :class:`airflow_mirror.wire.cluster.WireCluster`, which finds the leaders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession
from airflow_mirror.wire.cluster import WireCluster


def offsets(
    session: AdminSession, partitions: Iterable[TopicPartition], spec: str | int = "latest"
) -> dict[TopicPartition, int]:
    """Return one offset per partition.

    :param spec: ``earliest`` (log start), ``latest`` (high watermark), ``latest_committed`` (last stable offset, the end
        for a read_committed consumer), or a timestamp in ms: the first record at or after it, -1 if none is.
    :raises UnknownTopic: there is no such topic or partition.
    """
    asked = list(dict.fromkeys(partitions))
    if not asked:
        return {}
    cluster = session.wire
    ask = {"earliest": cluster.log_starts, "latest": cluster.high_watermarks, "latest_committed": cluster.last_stable}
    try:
        return cluster.offsets_for_time(asked, spec) if isinstance(spec, int) else ask[spec](asked)
    finally:
        _forget(cluster, asked)


def delete_records(
    session: AdminSession, before: Mapping[TopicPartition, int], permit: Permit
) -> dict[TopicPartition, int]:
    """Delete all records below the given offsets; return the resulting log start offsets."""
    if not before:
        return {}
    cluster = session.wire
    try:
        return cluster.delete_records(before, permit)
    finally:
        _forget(cluster, before)


def _forget(cluster: WireCluster, partitions: Iterable[TopicPartition]) -> None:
    """Drop the cached leaders: minutes may pass between two admin calls, and topics may be deleted."""
    for topic in {tp.topic for tp in partitions}:
        cluster.forget(topic)
