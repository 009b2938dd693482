"""OffsetCommit 2 to 9: set a group's offsets. Left out: generations; who commits is no member."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.group import OffsetCommitResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, by_partition, check, committed, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 8, (2, 9)
_Topic = Response.OffsetCommitResponseTopic


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    commit = partial(_commit, broker, message, refusal)
    topics = by_partition(_Topic, _Topic.OffsetCommitResponsePartition, message, commit)
    return Response(throttle_time_ms=0, topics=topics)


def _commit(broker: Broker, message: Any, refusal: Refusal, tp: TopicPartition, asked: Any) -> ErrorCode:
    group, groups = message.group_id, broker.cluster.groups
    try:
        check(refusal, tp)
        coordinates(broker, 0)
        if groups.members.get(group):
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        broker.cluster.log(tp)
    except Refused as e:
        return e.code
    groups.committed.setdefault(group, {})[tp] = committed(asked)
    return ErrorCode.NONE
