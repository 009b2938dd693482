"""DeleteRecords 0 to 2: move the log start up. Left out: that a broker forgets it when it dies within a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DeleteRecordsResponse as Response

from airflow_mirror.common.partition import TopicPartition
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 21, (0, 2)
_Topic = Response.DeleteRecordsTopicResult


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    return Response(
        throttle_time_ms=0,
        topics=[
            _Topic(name=topic.name, partitions=[_partition(broker, topic.name, p, refusal) for p in topic.partitions])
            for topic in message.topics
        ],
    )


def _partition(broker: Broker, topic: str, asked: Any, refusal: Refusal) -> Any:
    tp = TopicPartition(topic, asked.partition_index)
    code, start = 0, -1
    try:
        check(refusal, tp)
        start = led(broker, tp).delete_records(asked.offset)
    except Refused as e:
        code = e.code
    return _Topic.DeleteRecordsPartitionResult(partition_index=tp.partition, low_watermark=start, error_code=code)
