"""IncrementalAlterConfigs 0 and 1: set and remove settings of topics. Left out: brokers, lists, what is a valid value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import IncrementalAlterConfigsResponse as Response

from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal, topic_of
from tests.driven.refused import Refused

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 44, (0, 1)
_SET = 0


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Each topic for itself, all of it or nothing; a refusal is asked for its partition 0."""
    return Response(
        throttle_time_ms=0,
        responses=[
            Response.AlterConfigsResourceResponse(
                error_code=_alter(broker, one, refusal, only_asked=message.validate_only), error_message=None,
                resource_type=one.resource_type, resource_name=one.resource_name,
            )
            for one in message.resources
        ],
    )  # fmt: skip


def _alter(broker: Broker, asked: Any, refusal: Refusal, *, only_asked: bool) -> ErrorCode:
    try:
        topic = topic_of(broker, asked.resource_name, refusal)
    except Refused as e:
        return e.code
    if not only_asked:
        topic.set({one.name: one.value if one.config_operation == _SET else None for one in asked.configs})
    return ErrorCode.NONE
