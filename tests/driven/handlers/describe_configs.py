"""DescribeConfigs 1 to 4: of a topic or a broker. Left out: synonyms, most settings; no retention is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeConfigsResponse as Response

from airflow_mirror.kafka.acls import OPEN_BY_DEFAULT
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker
    from tests.driven.validation import TopicConfig

KEY, SERVED = 32, (1, 4)
_Result = Response.DescribeConfigsResult
_TOPIC, _OVERRIDE, _DEFAULT = 2, 1, 5  # a type of resource, and the sources of a value


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """Of brokers what a test has set, and what their authorizer does with what has no rule; of absent topics nothing."""
    results = []
    for one in message.resources:
        topic = broker.cluster.topics.get(one.resource_name) if one.resource_type == _TOPIC else None
        missing = ErrorCode.NONE if topic or one.resource_type != _TOPIC else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        given: dict[str, str | None] = {}
        own: dict[str, str] = {}
        if topic:
            given, own = {**_told(topic.logs[0].config)}, topic.settings
        elif one.resource_type != _TOPIC:
            given = {**_of_brokers(broker), **broker.settings}
        entries = [_entry(*entry, _DEFAULT) for entry in given.items() if entry[0] not in own]
        entries += [_entry(*entry, _OVERRIDE) for entry in own.items()]
        results.append(
            _Result(
                error_code=refusal(None) or missing, error_message=None, resource_type=one.resource_type,
                resource_name=one.resource_name, configs=entries,
            )
        )  # fmt: skip
    return Response(throttle_time_ms=0, results=results)


def _of_brokers(broker: Broker) -> dict[str, str]:
    rules = broker.cluster.rules
    return {} if rules is None else {OPEN_BY_DEFAULT: str(rules.open_by_default).lower()}


def _told(config: TopicConfig) -> dict[str, str]:
    return {
        "cleanup.policy": config.cleanup_policy, "max.message.bytes": str(config.max_message_bytes),
        "message.timestamp.type": "LogAppendTime" if config.append_time else "CreateTime", "min.insync.replicas": "1",
        "retention.bytes": "-1", "retention.ms": str(config.retention_ms), "segment.bytes": str(config.segment_bytes),
        "segment.ms": str(config.segment_ms), "unclean.leader.election.enable": "false",
    }  # fmt: skip


def _entry(name: str, value: str | None, source: int) -> Any:
    return _Result.DescribeConfigsResourceResult(
        name=name, value=value, read_only=False, is_default=source == _DEFAULT, config_source=source,
        is_sensitive=value is None, synonyms=[], config_type=0, documentation=None,
    )  # fmt: skip
