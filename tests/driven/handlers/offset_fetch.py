"""OffsetFetch 1 to 7: committed offsets of one group. Left out: batches of groups (8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.group import OffsetFetchResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.topology import by_topic
from tests.driven.groups import Committed
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 9, (1, 7)
_Topic = Response.OffsetFetchResponseTopic
_NONE = Committed(-1, "", -1)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """What a transaction is about to change is no answer to one who asks for stable offsets (KIP-447)."""
    try:
        check(refusal)
        coordinates(broker, 0)
    except Refused as e:
        return Response(throttle_time_ms=0, topics=[], error_code=e.code)
    groups = broker.cluster.groups
    committed = groups.committed.get(message.group_id, {})
    wanted = by_topic(sorted(committed))
    if message.topics is not None:
        wanted = {topic.name: topic.partition_indexes for topic in message.topics}
    topics = []
    for name, partitions in wanted.items():
        found = []
        for p in partitions:
            tp = TopicPartition(name, p)
            unstable = message.require_stable and groups.is_pending(message.group_id, tp)
            offset = _NONE if unstable else committed.get(tp, _NONE)
            found.append(
                _Topic.OffsetFetchResponsePartition(
                    partition_index=p, committed_offset=offset.offset, committed_leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE,
                )
            )  # fmt: skip
        topics.append(_Topic(name=name, partitions=found))
    return Response(throttle_time_ms=0, topics=topics, error_code=0)
