"""Remove single positions of a consumer group (OffsetDelete, KIP-496), which confluent-kafka does not offer.

Setting a position to "none" is refused by librdkafka, and deleting the whole group would take positions in topics that
are none of this mirror's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import BrokerError, MissingRight
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_mirror.partition import TopicPartition
    from airflow_mirror.wire.cluster import WireCluster

_COORDINATOR_MOVED = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_NOT_AUTHORIZED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})


def forget_offsets(cluster: WireCluster, group: str, tps: Sequence[TopicPartition]) -> None:
    """Delete a group's committed offsets in these partitions; those that it has not are no error.

    :raises MissingRight: without DELETE on the group (and READ on the topics).
    :raises BrokerError: for any other refusal, such as GROUP_SUBSCRIBED_TO_TOPIC of one that consumes now.
    """
    if not tps:
        return
    backoff = Backoff(cluster.timeout_s)
    while True:
        code = _delete(cluster, group, tps)
        if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return
        what = f"{cluster.role} cluster: delete offsets of consumer group {group!r}"
        if code in _NOT_AUTHORIZED:
            raise MissingRight(what, error_name(code), cluster.settings.principal)
        if code not in _COORDINATOR_MOVED or backoff.expired:
            raise BrokerError(what, code, error_name(code))
        backoff.pause()


def _delete(cluster: WireCluster, group: str, tps: Sequence[TopicPartition]) -> int:
    """Ask once; return the first error code, 0 for none."""
    from kafka.protocol.consumer import OffsetDeleteRequest

    code, node_id = _coordinator(cluster, group)
    if code:
        return code
    by_topic: dict[str, list[int]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    asked = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [
        asked(name=topic, partitions=[asked.OffsetDeleteRequestPartition(partition_index=p) for p in partitions])
        for topic, partitions in by_topic.items()
    ]
    response = cluster.connection(node_id).request(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    codes = [response.error_code, *(p.error_code for t in response.topics for p in t.partitions)]
    return next((int(c) for c in codes if c), 0)


def _coordinator(cluster: WireCluster, group: str) -> tuple[int, int]:
    from kafka.protocol.metadata import FindCoordinatorRequest

    response: Any = cluster.any_connection().request(FindCoordinatorRequest(key=group, key_type=0), 2)
    return int(response.error_code), int(response.node_id)
