"""DeleteTopics 1 to 6: by name, or by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka.protocol.admin import DeleteTopicsResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 20, (1, 6)
_NO_ID = UUID(int=0)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each topic for itself; a refusal is asked for its partition 0."""
    asked = [(one.name, one.topic_id or _NO_ID) for one in message.topics or ()]
    asked += [(name, _NO_ID) for name in message.topic_names or ()]
    return Response(throttle_time_ms=0, responses=[_delete(broker, *one, refusal) for one in asked])


def _delete(broker: Broker, name: str | None, topic_id: UUID, refusal: Refusal) -> Any:
    topics = broker.cluster.topics
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name is None:
        name = next((topic.name for topic in topics.values() if topic.topic_id == topic_id), None)
        absent = ErrorCode.UNKNOWN_TOPIC_ID
    code = refusal(TopicPartition(name or "", 0)) or (ErrorCode.NONE if name in topics else absent)
    if not code and name is not None:
        broker.cluster.delete(name)
    return Response.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=None)
