"""OffsetForLeaderEpoch 2 to 4: where a leader's term ended; that of now ends at the log's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetForLeaderEpochResponse as Response

from airflow_mirror.common.partition import TopicPartition
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 23, (2, 4)
_Topic = Response.OffsetForLeaderTopicResult


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    return Response(
        throttle_time_ms=0,
        topics=[
            _Topic(topic=topic.topic, partitions=[_partition(broker, topic.topic, p, refusal) for p in topic.partitions])
            for topic in message.topics
        ],
    )


def _partition(broker: Broker, topic: str, asked: Any, refusal: Refusal) -> Any:
    tp = TopicPartition(topic, asked.partition)
    code, epoch, end = 0, -1, -1
    try:
        check(refusal, tp)
        epoch, end = led(broker, tp, asked.current_leader_epoch).epoch_end(asked.leader_epoch)
    except Refused as e:
        code = e.code
    return _Topic.EpochEndOffset(error_code=code, partition=tp.partition, leader_epoch=epoch, end_offset=end)
