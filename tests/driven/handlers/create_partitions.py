"""CreatePartitions 0 to 3: more partitions of topics. Left out: assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import CreatePartitionsResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, topic_of
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 37, (0, 3)


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each topic for itself; a refusal is asked for its partition 0."""
    result, only_asked = Response.CreatePartitionsTopicResult, message.validate_only
    codes = {topic.name: _grow(broker, topic, refusal, only_asked=only_asked) for topic in message.topics}
    results = [result(name=name, error_code=code, error_message=None) for name, code in codes.items()]
    return Response(throttle_time_ms=0, results=results)


def _grow(broker: Broker, asked: Any, refusal: Refusal, *, only_asked: bool) -> ErrorCode:
    try:
        topic = topic_of(broker, asked.name, refusal)
    except Refused as e:
        return e.code
    if asked.count <= len(topic.logs):
        return ErrorCode.INVALID_PARTITIONS
    if not only_asked:
        broker.cluster.grow(asked.name, asked.count)
    return ErrorCode.NONE
