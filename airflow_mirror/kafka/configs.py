"""Configs of topics and brokers: read them, change a topic's overrides.

For a topic's config, brokers before 1.1 report only whether the topic overrides it. If it does not, the value may be
Kafka's default or come from the broker's file. Such an entry is not a default, and its source is ``UNKNOWN_CONFIG``. If
it counted as a default, retention that is set in a broker's file would be dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from airflow_mirror.errors import InputError
from airflow_mirror.kafka.cluster import describe_cluster
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire.connection import Connection

Entries = dict[str, ConfigEntry]

_TOPIC, _BROKER = 2, 4  # resource types
_SET, _DELETE = 0, 1  # operations of IncrementalAlterConfigs
_OVERRIDE = "DYNAMIC_TOPIC_CONFIG"
# By Kafka's number (DescribeConfigsResponse.ConfigSource).
_SOURCES = (
    "UNKNOWN_CONFIG",
    _OVERRIDE,
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)


def topic_configs(session: AdminSession, names: Collection[str]) -> dict[str, Entries]:
    """Return the effective configs of each topic, defaults included."""
    return session.each(
        lambda name: f"read configs of topic {name!r}",
        sorted(set(names)),
        lambda some: ask_topics(session, some),
        "DescribeConfigs",
    )


def ask_topics(session: AdminSession, names: list[str]) -> Iterator[Reply[str, Entries]]:
    """Ask once for the configs of topics."""
    return _describe(session, session.anywhere(), _TOPIC, names)


def broker_configs(session: AdminSession, most: int | None = None) -> dict[int, Entries]:
    """Return the settings of each broker by its id, or of so many."""
    found = session.each(
        lambda broker: f"read configs of broker {broker!r}",
        [str(broker) for broker in describe_cluster(session).brokers][:most],
        # Each broker answers only for itself.
        lambda one: _describe(session, session.cluster.connection(int(one[0])), _BROKER, one),
        "DescribeConfigs",
        chunk=1,
    )
    return {int(broker): entries for broker, entries in found.items()}


def alter_topic_configs(
    session: AdminSession, topic: str, set: Mapping[str, str], delete: Collection[str], permit: Permit
) -> None:
    """Set and remove overrides of a topic; other keys stay as they are.

    Brokers before 2.3 can only replace all overrides: they are read first and written together with the change.
    Somebody else's change in between is lost; brokers of that age offer no other way.
    """
    if not set and not delete:
        return

    def ask(topics: list[str]) -> Iterator[Reply[str, bool]]:
        connection = session.anywhere()
        if _is_incremental(connection):
            yield from _alter(session, connection, topic, set, delete, permit)
        else:
            yield from _replace(session, connection, topic, set, delete, permit)

    session.each(lambda name: f"alter configs of topic {name!r}", [topic], ask, "AlterConfigs")


def _describe(
    session: AdminSession, connection: Connection, kind: int, names: list[str]
) -> Iterator[Reply[str, Entries]]:
    from kafka.protocol.admin import DescribeConfigsRequest as Request

    version = connection.newest(Request.API_KEY, 0, 4)
    asked = Request.DescribeConfigsResource
    resources = [asked(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    message = Request(resources=resources, include_synonyms=False, include_documentation=False, version=version)
    entry = _entry if version else _entry_of_topic_v0 if kind == _TOPIC else _entry_of_broker_v0
    for result in session.request(connection, message, version).results:
        entries = {config.name: entry(config) for config in result.configs}
        yield Reply(result.resource_name, result.error_code, result.error_message, entries)


def _entry(config: Any) -> ConfigEntry:
    number = config.config_source
    return _valued(config, _SOURCES[number] if 0 <= number < len(_SOURCES) else _SOURCES[0])


def _entry_of_topic_v0(config: Any) -> ConfigEntry:
    return _valued(config, "UNKNOWN_CONFIG" if config.is_default else _OVERRIDE)


def _entry_of_broker_v0(config: Any) -> ConfigEntry:
    return _valued(config, "DEFAULT_CONFIG" if config.is_default else "STATIC_BROKER_CONFIG")


def _valued(config: Any, source: str) -> ConfigEntry:
    value = None if config.is_sensitive else config.value
    return ConfigEntry(
        value=value,
        is_default=source == "DEFAULT_CONFIG",
        is_sensitive=config.is_sensitive,
        is_read_only=config.read_only,
        source=source,
    )


def _is_incremental(connection: Connection) -> bool:
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Request

    return connection.serves(Request.API_KEY, 0)


def _alter(
    session: AdminSession, connection: Connection, topic: str, set: Mapping[str, str], delete: Collection[str],
    permit: Permit,
) -> Iterator[Reply[str, bool]]:  # fmt: skip
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Request

    resource = Request.AlterConfigsResource
    asked: Callable[..., Any] = resource.AlterableConfig
    changes = [asked(name=key, config_operation=_SET, value=value) for key, value in sorted(set.items())]
    changes += [asked(name=key, config_operation=_DELETE, value=None) for key in sorted(delete)]
    version = connection.newest(Request.API_KEY, 0, 1)
    one = resource(resource_type=_TOPIC, resource_name=topic, configs=changes)
    message = Request(resources=[one], validate_only=False, version=version)
    yield from _altered(session.request(connection, message, version, permit))


def _replace(
    session: AdminSession, connection: Connection, topic: str, set: Mapping[str, str], delete: Collection[str],
    permit: Permit,
) -> Iterator[Reply[str, bool]]:  # fmt: skip
    from kafka.protocol.admin import AlterConfigsRequest as Request

    entries = {key: entry for key, entry in topic_configs(session, [topic])[topic].items() if entry.is_override}
    hidden = sorted(key for key, entry in entries.items() if entry.value is None and key not in {*set, *delete})
    if hidden:
        raise InputError(
            f"{session.config.role} cluster: topic {topic!r} overrides {', '.join(hidden)}, whose value the broker "
            "hides. Brokers before 2.3 only take all overrides at once, so it would be lost. Change this topic by hand."
        )
    values = {key: entry.value for key, entry in entries.items() if key not in delete} | dict(set)
    resource = Request.AlterConfigsResource
    asked: Callable[..., Any] = resource.AlterableConfig
    everything = [asked(name=key, value=value) for key, value in sorted(values.items())]
    version = connection.newest(Request.API_KEY, 0, 1)
    one = resource(resource_type=_TOPIC, resource_name=topic, configs=everything)
    message = Request(resources=[one], validate_only=False, version=version)
    yield from _altered(session.request(connection, message, version, permit))


def _altered(response: Any) -> Iterator[Reply[str, bool]]:
    for result in response.responses:
        yield Reply(result.resource_name, result.error_code, result.error_message, True)
