"""DescribeProducers 0: the producers that a leader remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeProducersResponse as Response

from airflow_mirror.common.partition import TopicPartition
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 61, (0, 0)
_Topic = Response.TopicResponse
_State = _Topic.PartitionResponse.ProducerState


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each partition for itself."""
    return Response(
        throttle_time_ms=0,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[_partition(broker, TopicPartition(topic.name, p), refusal) for p in topic.partition_indexes],
            )
            for topic in message.topics
        ],
    )


def _partition(broker: Broker, tp: TopicPartition, refusal: Refusal) -> Any:
    code, message, states = 0, None, []
    try:
        check(refusal, tp)
        states = [
            _State(
                producer_id=producer_id, producer_epoch=known.epoch, last_sequence=known.last_sequence,
                last_timestamp=known.touched, coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=-1 if known.txn_start is None else known.txn_start,
            )
            for producer_id, known in led(broker, tp).producers.known.items()
        ]  # fmt: skip
    except Refused as e:
        code, message = e.code, e.message
    return _Topic.PartitionResponse(
        partition_index=tp.partition, error_code=code, error_message=message, active_producers=states
    )
