"""Produce 3 to 13: one batch for each partition, by the rules of `validation` and `producers`; in 13 topics by their ids.

Left out: replicas (where a test holds the high watermark, acks=all times out with the batch in the log), quotas, the
broker's recompression, the new leader beside NOT_LEADER_OR_FOLLOWER, and that a broker adds a partition to its
transaction by itself (from 12 on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import ProduceResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.log import Appended, PartitionLog
from tests.driven.refused import HungUp, Refused
from tests.driven.validation import check_request

if TYPE_CHECKING:
    from tests.driven.broker import Broker
    from tests.driven.cluster import DrivenCluster

KEY, SERVED = 0, (3, 13)
_BY_ID = 13
_Topic = Response.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse
_WITHOUT_LOG_START = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Without acks nothing is answered."""
    if broker.cluster.release.hangs_up:
        for p in _all(message):
            _check_or_hang_up(p.records)
    named = message.transactional_id is not None or not broker.cluster.release.names_transactions
    unnamed = not named and any(_is_transactional(p.records) for p in _all(message))
    topics = []
    name_topics(broker.cluster, message)
    for topic in message.topic_data:
        partitions = [
            _refused(p.index, Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            if unnamed
            else _partition(broker, TopicPartition(topic.name, p.index), p.records, message, refusal)
            for p in topic.partition_data
        ]
        topics.append(_Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    return Response(responses=topics, throttle_time_ms=0) if message.acks else None


def name_topics(cluster: DrivenCluster, message: Any) -> None:
    """Give topics that a request names by their ids their names; one that there is not gets an empty one."""
    if message.API_VERSION >= _BY_ID:
        names = {topic.topic_id: name for name, topic in cluster.topics.items()}
        for topic in message.topic_data:
            topic.name = names.get(topic.topic_id, "")


def _all(message: Any) -> list[Any]:
    return [p for topic in message.topic_data for p in topic.partition_data]


def _check_or_hang_up(content: Any) -> None:
    try:
        check_request(bytes(content or b""))
    except Refused as e:
        raise HungUp from e


def _is_transactional(content: bytes | None) -> bool:
    return content is not None and len(content) > 22 and content[16] == 2 and bool(content[22] & 0x10)


def _partition(broker: Broker, tp: TopicPartition, content: Any, message: Any, refusal: Refusal) -> Any:
    appending: PartitionLog | None = None
    try:
        check(refusal, tp)
        if not tp.topic:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        content = bytes(content or b"")
        header = check_request(content)
        if message.acks not in (-1, 0, 1):
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        log = led(broker, tp)
        verifies = broker.cluster.release.verifies and header.is_transactional
        if verifies and not _is_ongoing(log, header.producer_id, header.producer_epoch):
            log.producers.ask_to_begin(header)
            broker.cluster.transactions.verify(
                message.transactional_id, header.producer_id, header.producer_epoch, tp
            )  # fmt: skip
        appending = log
        appended = log.append(content, header)
    except Refused as e:
        if e.code == ErrorCode.INVALID_RECORD:
            e.code = broker.cluster.release.invalid_record
        return _refused(tp.partition, e, None if e.code in _WITHOUT_LOG_START else appending)
    waits = message.acks == -1 and log.high_watermark < log.end
    return _answered(tp.partition, ErrorCode.REQUEST_TIMED_OUT if waits else ErrorCode.NONE, appended, log.log_start)


def _is_ongoing(log: PartitionLog, producer_id: int, epoch: int) -> bool:
    known = log.producers.known.get(producer_id)
    return known is not None and known.epoch == epoch and known.txn_start is not None


def _answered(index: int, code: ErrorCode, appended: Appended, log_start: int) -> Any:
    return _Partition(
        index=index, error_code=code, base_offset=appended.base_offset, log_append_time_ms=appended.timestamp,
        log_start_offset=log_start, record_errors=[], error_message=None,
    )  # fmt: skip


def _refused(index: int, refused: Refused, log: PartitionLog | None = None) -> Any:
    errors = [
        _Partition.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text) for i, text in refused.records
    ]
    return _Partition(
        index=index, error_code=refused.code, base_offset=-1, log_append_time_ms=-1,
        log_start_offset=-1 if log is None else log.log_start, record_errors=errors, error_message=refused.message,
    )  # fmt: skip
