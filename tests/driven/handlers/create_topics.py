"""CreateTopics 2 to 7: with settings, or only asked whether it would. Left out: assignments, most policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.protocol.admin import CreateTopicsResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 19, (2, 7)
_NO_ID = UUID(int=0)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each topic for itself; a refusal is asked for its partition 0."""
    topics = [_create(broker, topic, refusal, only_asked=message.validate_only) for topic in message.topics]
    return Response(throttle_time_ms=0, topics=topics)


def _create(broker: Broker, asked: Any, refusal: Refusal, *, only_asked: bool) -> Any:
    cluster, topic_id = broker.cluster, _NO_ID
    code = refusal(TopicPartition(asked.name, 0))
    if not code and asked.name in cluster.topics:
        code = ErrorCode.TOPIC_ALREADY_EXISTS
    if not code and asked.replication_factor > len(cluster.brokers):
        code = ErrorCode.INVALID_REPLICATION_FACTOR
    if not code and not only_asked:
        made = cluster.create(asked.name, asked.num_partitions)
        made.set({one.name: one.value for one in asked.configs})
        topic_id = made.topic_id
    return Response.CreatableTopicResult(
        name=asked.name, topic_id=topic_id, error_code=code or ErrorCode.NONE, error_message=None,
        topic_config_error_code=0, num_partitions=asked.num_partitions, replication_factor=asked.replication_factor,
        configs=[],
    )  # fmt: skip
