"""WriteTxnMarkers 0 to 1: markers straight into logs, in the order given; nothing tells a repeated one from a new one.

Left out: version 2, rights. A real broker answers one entry for each producer id, and so does this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import WriteTxnMarkersResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 27, (0, 1)
_Marker = Response.WritableTxnMarkerResult
_Topic = _Marker.WritableTxnMarkerTopicResult


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each marker for itself; of several of one producer id the last one's outcome is told."""
    outcomes: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in message.markers:
        told = outcomes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for p in topic.partition_indexes:
                tp = TopicPartition(topic.name, p)
                told[tp] = _write(broker, marker, tp, refusal)
    return Response(
        markers=[
            _Marker(producer_id=producer_id, topics=[_told(tp, code) for tp, code in told.items()])
            for producer_id, told in outcomes.items()
        ]
    )


def _write(broker: Broker, marker: Any, tp: TopicPartition, refusal: Refusal) -> ErrorCode:
    try:
        check(refusal, tp)
        led(broker, tp).append_marker(
            marker.producer_id, marker.producer_epoch, commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )  # fmt: skip
    except Refused as e:
        return e.code
    return ErrorCode.NONE


def _told(tp: TopicPartition, code: ErrorCode) -> Any:
    one = _Topic.WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=code)
    return _Topic(name=tp.topic, partitions=[one])
