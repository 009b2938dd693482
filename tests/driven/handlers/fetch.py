"""Fetch 4 to 13: batches as they lie in the log, cut where the limits end; in 13 topics by their ids.

Sessions are `sessions`. Left out: followers, racks, the new leader beside NOT_LEADER_OR_FOLLOWER, and that a real broker
ends an answer where a segment ends. A long poll ends when there is news, when the cluster's clock passes its time, or
after a few real milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.protocol.consumer import FetchResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, check, led
from tests.driven.log import READ_COMMITTED
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker
    from tests.driven.sessions import Session

KEY, SERVED, BY_ID = 1, (4, 13), 13
_Topic = Response.FetchableTopicResponse


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Wait for ``min_bytes`` like a broker, unless something is wrong."""
    cluster = broker.cluster
    if code := refusal(None):
        return Response(throttle_time_ms=0, error_code=code, session_id=0, responses=[])
    by_id = message.API_VERSION >= BY_ID
    try:
        session = broker.sessions.take(message, by_id=by_id)
    except Refused as e:
        return Response(throttle_time_ms=0, error_code=e.code, session_id=0, responses=[])
    due = cluster.clock.now_ms + message.max_wait_ms
    waiting = message.max_wait_ms > 0 and bool(session.kept)
    while True:
        if code := refusal(None):
            return Response(throttle_time_ms=0, error_code=code, session_id=0, responses=[])
        answers, size, wrong = _read(broker, session, message, refusal)
        if not waiting or wrong or size >= message.min_bytes or cluster.clock.now_ms >= due:
            told, number = session.news(answers), broker.sessions.keep(message, session)
            return Response(throttle_time_ms=0, error_code=0, session_id=number, responses=_topics(told, by_id=by_id))
        waiting = cluster.news.wait(min(cluster.long_poll_s, message.max_wait_ms / 1000))


def _read(
    broker: Broker, session: Session, message: Any, refusal: Refusal
) -> tuple[dict[TopicPartition, Any], int, bool]:
    answers, size, wrong = {}, 0, False
    # Anew for each request: a topic that a session names may have come, or gone, meanwhile.
    names = {str(topic.topic_id): name for name, topic in broker.cluster.topics.items()}
    for tp, kept in session.kept.items():
        room = message.max_bytes - size
        topic = names.get(tp.topic) if session.by_id else tp.topic
        answers[tp] = one = _partition(broker, topic, kept.asked, message, room, refusal, first=not size)
        size += len(one.records)
        wrong = wrong or one.error_code != 0
    return answers, size, wrong


def _topics(answers: dict[TopicPartition, Any], *, by_id: bool) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    # What a broker has never heard of it adds when the rest is read.
    unheard = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
    for tp, one in sorted(answers.items(), key=lambda item: item[1].error_code in unheard):
        topics.setdefault(tp.topic, []).append(one)
    if by_id:
        return [_Topic(topic_id=UUID(topic), partitions=partitions) for topic, partitions in topics.items()]
    return [_Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def _partition(
    broker: Broker, topic: str | None, asked: Any, message: Any, room: int, refusal: Refusal, *, first: bool
) -> Any:
    """``topic`` None: none has the id that was named."""
    common = {"partition_index": asked.partition, "preferred_read_replica": -1}
    committed = message.isolation_level == READ_COMMITTED
    try:
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        tp = TopicPartition(topic, asked.partition)
        check(refusal, tp)
        log = led(broker, tp, asked.current_leader_epoch)
        limit = max(0, min(room, asked.partition_max_bytes))
        if asked.fetch_offset < log.remote_below and message.max_wait_ms < log.remote_ms:
            limit, first = 0, False
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
