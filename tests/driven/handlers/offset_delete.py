"""OffsetDelete 0: forget offsets of a group. Left out: which topics its members read; they read all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetDeleteResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 47, (0, 0)
_Topic = Response.OffsetDeleteResponseTopic


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself, unless there is no such group."""
    groups, group = broker.cluster.groups, message.group_id
    try:
        check(refusal)
        coordinates(broker, 0)
        if groups.state(group) == "Dead":
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    except Refused as e:
        return Response(throttle_time_ms=0, error_code=e.code, topics=[])
    topics = []
    for topic in message.topics:
        partitions = [
            _Topic.OffsetDeleteResponsePartition(
                partition_index=p.partition_index,
                error_code=_forget(broker, group, TopicPartition(topic.name, p.partition_index), refusal),
            )
            for p in topic.partitions
        ]
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return Response(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)


def _forget(broker: Broker, group: str, tp: TopicPartition, refusal: Refusal) -> ErrorCode:
    groups = broker.cluster.groups
    try:
        check(refusal, tp)
        broker.cluster.log(tp)
        if groups.members.get(group):
            raise Refused(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    except Refused as e:
        return e.code
    groups.committed.get(group, {}).pop(tp, None)
    return ErrorCode.NONE
