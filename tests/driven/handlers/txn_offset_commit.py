"""TxnOffsetCommit 0 to 2: offsets that count once the transaction is committed. Left out: members and generations (3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import TxnOffsetCommitResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, by_partition, check, committed, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 28, (0, 2)
_Topic = Response.TxnOffsetCommitResponseTopic


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    commit = partial(_commit, broker, message, refusal)
    topics = by_partition(_Topic, _Topic.TxnOffsetCommitResponsePartition, message, commit)
    return Response(throttle_time_ms=0, topics=topics)


def _commit(broker: Broker, message: Any, refusal: Refusal, tp: TopicPartition, asked: Any) -> ErrorCode:
    try:
        check(refusal, tp)
        broker.cluster.log(tp)
        coordinates(broker, 0)
        broker.cluster.transactions.verify_group(
            message.transactional_id, message.producer_id, message.producer_epoch, message.group_id
        )
    except Refused as e:
        return e.code
    broker.cluster.groups.commit_later(message.producer_id, message.group_id, tp, committed(asked))
    return ErrorCode.NONE
