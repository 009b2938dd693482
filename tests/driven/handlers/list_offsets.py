"""ListOffsets 1 to 6: log start (-2), end for an isolation (-1), first record as late as a time. Left out: -3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import ListOffsetsResponse as Response

from airflow_mirror.common.partition import TopicPartition
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.log import READ_COMMITTED, PartitionLog
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 2, (1, 6)
_EARLIEST, _LATEST = -2, -1
_Topic = Response.ListOffsetsTopicResponse


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    return Response(
        throttle_time_ms=0,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _partition(broker, topic.name, p, message.isolation_level, refusal) for p in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def _partition(broker: Broker, topic: str, asked: Any, isolation: int, refusal: Refusal) -> Any:
    tp = TopicPartition(topic, asked.partition_index)
    code, timestamp, offset, epoch = 0, -1, -1, -1
    try:
        check(refusal, tp)
        timestamp, offset, epoch = _found(led(broker, tp, asked.current_leader_epoch), asked.timestamp, isolation)
    except Refused as e:
        code = e.code
    return _Topic.ListOffsetsPartitionResponse(
        partition_index=tp.partition, error_code=code, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _found(log: PartitionLog, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch)."""
    end = log.last_stable if isolation == READ_COMMITTED else log.high_watermark
    if timestamp == _LATEST:
        return -1, end, log.epoch
    if timestamp == _EARLIEST:
        # Of an empty log the first offset belongs to the term that begins there.
        return -1, log.log_start, next((e for e, at in reversed(log.epochs) if at <= log.log_start), log.epoch)
    return log.offset_for_time(timestamp, end)
