"""OffsetCommit 2 to 9: set a group's offsets. Left out: generations; who commits is no member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.group import OffsetCommitResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.groups import Committed
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 8, (2, 9)
_Topic = Response.OffsetCommitResponseTopic


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    topics = []
    for topic in message.topics:
        partitions = [
            _Topic.OffsetCommitResponsePartition(
                partition_index=p.partition_index, error_code=_commit(broker, message.group_id, topic.name, p, refusal)
            )
            for p in topic.partitions
        ]
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return Response(throttle_time_ms=0, topics=topics)


def _commit(broker: Broker, group: str, topic: str, asked: Any, refusal: Refusal) -> ErrorCode:
    tp, groups = TopicPartition(topic, asked.partition_index), broker.cluster.groups
    try:
        check(refusal, tp)
        coordinates(broker, 0)
        if groups.members.get(group):
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        broker.cluster.log(tp)
    except Refused as e:
        return e.code
    offset = Committed(asked.committed_offset, asked.committed_metadata or "", asked.committed_leader_epoch)
    groups.committed.setdefault(group, {})[tp] = offset
    return ErrorCode.NONE
