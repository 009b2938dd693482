"""Fetch 4 to 11: batches as they lie in the log, cut where the limits end.

Left out: sessions, followers, racks, topic ids (13), and that a real broker ends an answer where a segment ends. A long
poll ends when there is news, when the cluster's clock passes its time, or after a few real milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import FetchResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.log import READ_COMMITTED
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 1, (4, 11)
_Topic = Response.FetchableTopicResponse


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Wait for ``min_bytes`` like a broker, unless something is wrong."""
    cluster = broker.cluster
    due = cluster.clock.now_ms + message.max_wait_ms
    waiting = message.max_wait_ms > 0
    while True:
        if code := refusal(None):
            return Response(throttle_time_ms=0, error_code=code, session_id=0, responses=[])
        response, size, wrong = _read(broker, message, refusal)
        if not waiting or wrong or size >= message.min_bytes or cluster.clock.now_ms >= due:
            return response
        waiting = cluster.news.wait(min(cluster.long_poll_s, message.max_wait_ms / 1000))


def _read(broker: Broker, message: Any, refusal: Refusal) -> tuple[Any, int, bool]:
    topics, size, wrong = [], 0, False
    for topic in message.topics:
        partitions = []
        for asked in topic.partitions:
            one = _partition(broker, topic.topic, asked, message, message.max_bytes - size, refusal, first=not size)
            size += len(one.records)
            wrong = wrong or one.error_code != 0
            partitions.append(one)
        topics.append(_Topic(topic=topic.topic, partitions=partitions))
    return Response(throttle_time_ms=0, error_code=0, session_id=0, responses=topics), size, wrong


def _partition(broker: Broker, topic: str, asked: Any, message: Any, room: int, refusal: Refusal, *, first: bool) -> Any:
    tp = TopicPartition(topic, asked.partition)
    common = {"partition_index": asked.partition, "preferred_read_replica": -1}
    committed = message.isolation_level == READ_COMMITTED
    try:
        check(refusal, tp)
        log = led(broker, tp, asked.current_leader_epoch)
        limit = max(0, min(room, asked.partition_max_bytes))
        content, aborted = log.read(asked.fetch_offset, limit, message.isolation_level, whole_first=first)
    except Refused as e:
        return _Topic.PartitionData(
            error_code=e.code, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1,
            aborted_transactions=[] if committed or e.code == ErrorCode.NONE else None, records=b"", **common,
        )  # fmt: skip
    transactions = [
        _Topic.PartitionData.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in aborted
    ]
    stable = log.last_stable if committed or log.release.always_stable else -1
    return _Topic.PartitionData(
        error_code=0, high_watermark=log.high_watermark, last_stable_offset=stable, log_start_offset=log.log_start,
        aborted_transactions=transactions if committed else None, records=content, **common,
    )  # fmt: skip
