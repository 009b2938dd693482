"""AddPartitionsToTxn 0 to 2: open a transaction, or add to it. Left out: batches of transactions (4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import AddPartitionsToTxnResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, coordinates
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 24, (0, 2)
_Topic = Response.AddPartitionsToTxnTopicResult


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """All partitions or none; the others of an unknown one are not attempted."""
    tps = [TopicPartition(t.name, p) for t in message.v3_and_below_topics for p in t.partitions]
    codes = dict.fromkeys(tps, ErrorCode.NONE)
    try:
        for tp in tps:
            check(refusal, tp)
        unknown = [tp for tp in tps if not _exists(broker, tp)]
        if unknown:
            codes = dict.fromkeys(tps, ErrorCode.OPERATION_NOT_ATTEMPTED)
            codes.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            coordinates(broker, 1)
            broker.cluster.transactions.add(
                message.v3_and_below_transactional_id, message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch, set(tps),
            )  # fmt: skip
    except Refused as e:
        code = e.code
        if code == ErrorCode.PRODUCER_FENCED and message.API_VERSION is not None and message.API_VERSION < 2:
            code = ErrorCode.INVALID_PRODUCER_EPOCH  # old clients know no other word
        codes = dict.fromkeys(tps, code)
    return Response(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=[
            _Topic(
                name=topic.name,
                results_by_partition=[
                    _Topic.AddPartitionsToTxnPartitionResult(
                        partition_index=p, partition_error_code=codes[TopicPartition(topic.name, p)]
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ],
    )


def _exists(broker: Broker, tp: TopicPartition) -> bool:
    try:
        broker.cluster.log(tp)
    except Refused:
        return False
    return True
