"""Configs of topics and brokers: read them, change a topic's overrides.

For a topic's config, brokers before 1.1 report only whether the topic overrides it. If it does not, the value may be
Kafka's default or come from the broker's file. Such an entry is not a default, and its source is ``UNKNOWN_CONFIG``. If
it counted as a default, retention that is set in a broker's file would be dropped silently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from airflow_mirror.errors import InputError, MirrorError, RequestRefused
from airflow_mirror.kafka.cluster import broker_ids
from airflow_mirror.kafka.model import ConfigEntry, NewConfigs
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.retry import Backoff

Entries = dict[str, ConfigEntry]

_POLICY = "cleanup.policy"
_HEARD_WITHIN_S = 10.0
_JUDGED = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)
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
    """Return the effective configs of each topic, defaults included; keys are Kafka's."""
    return session.each(
        lambda name: f"read configs of topic {name!r}",
        sorted(set(names)),
        lambda some: ask_topics(session, some),
        "DescribeConfigs",
    )


def ask_topics(session: AdminSession, names: list[str]) -> Iterator[Reply[str, Entries]]:
    """Ask once for the configs of topics."""
    return _describe(session, session.anywhere(), _TOPIC, names)


def broker_configs(session: AdminSession) -> dict[int, Entries]:
    """Return the settings of each broker by its id. Needs DESCRIBE_CONFIGS on the cluster."""
    found = session.each(
        lambda broker: f"read configs of broker {broker!r}",
        [str(broker) for broker in broker_ids(session)],
        # Each broker answers only for itself.
        lambda one: _describe(session, session.wire.connection(int(one[0])), _BROKER, one),
        "DescribeConfigs",
        chunk=1,
    )
    return {int(broker): entries for broker, entries in found.items()}


def alter_topic_configs(
    session: AdminSession, topic: str, permit: Permit, set: Mapping[str, str] | None = None, delete: Collection[str] = ()
) -> None:  # fmt: skip
    """Set and remove overrides of a topic; other keys stay as they are.

    A ``cleanup.policy`` of both kinds is set by way of ``compact`` where the cluster wants it so. Where the second step
    is refused for good, the topic gets back what it had. A process that dies between the two leaves ``compact``, and
    whoever asks again goes on from there.

    Brokers before 2.3 can only replace all overrides: they are read first and written together with the change.
    Somebody else's change in between is lost; brokers of that age offer no other way.
    """
    change = NewConfigs(set or {}, delete)
    if not change:
        return

    def alter(change: NewConfigs) -> None:
        def ask(_: list[str]) -> Iterator[Reply[str, bool]]:
            connection = session.anywhere()
            yield from _altered(session.request(connection, *_alteration(session, connection, {topic: change}), permit))

        session.each(_named, [topic], ask, "AlterConfigs")

    try:
        alter(change)
    except RequestRefused as e:
        if (detour := _detour(change, e)) is None:
            raise
        former = _undoing(topic_configs(session, [topic])[topic], detour)
        alter(detour)
        heard = Backoff(_HEARD_WITHIN_S)
        while True:  # who judges the second step may hear of the first a moment later
            try:
                return alter(change)
            except MirrorError as again:
                if heard.expired or not isinstance(again, RequestRefused):
                    # Compaction alone drops what a record of the same key, or one without a key, is to this topic.
                    alter(former)
                    raise
            heard.pause()


def refused_configs(
    session: AdminSession, changes: Mapping[str, NewConfigs], patience_s: float = 5.0
) -> dict[str, MirrorError]:
    """Return why the brokers would not change overrides of topics that exist, by name. Nothing is changed.

    :param patience_s: after which a temporary error counts.
    """

    def refused(changes: Mapping[str, NewConfigs]) -> dict[str, MirrorError]:
        def ask(topics: list[str]) -> Iterator[Reply[str, bool]]:
            connection, some = session.anywhere(), {topic: changes[topic] for topic in topics}
            yield from _altered(session.request(connection, *_alteration(session, connection, some, validate_only=True)))

        return session.each_apart(_named, changes, ask, "AlterConfigs", patience_s)[1]

    found = refused({topic: change for topic, change in changes.items() if change})
    detours = {topic: detour for topic, e in found.items() if (detour := _detour(changes[topic], e))}
    again = refused(detours)
    return {topic: e for topic, e in found.items() if topic not in detours or topic in again}


def _detour(change: NewConfigs, refused: MirrorError) -> NewConfigs | None:
    """Return what to change first, where a change was refused that may need two steps; None: it may not.

    Confluent Cloud lets no topic go from ``delete`` to ``compact,delete`` at once, only by ``compact``.
    """
    judged = isinstance(refused, RequestRefused) and refused.code in _JUDGED
    both = sorted(part.strip() for part in change.set.get(_POLICY, "").split(",")) == ["compact", "delete"]
    return NewConfigs({**change.set, _POLICY: "compact"}, change.delete) if judged and both else None


def _undoing(entries: Entries, change: NewConfigs) -> NewConfigs:
    """Return what gives a topic back the overrides that it has, where a change touches them."""
    touched = {*change.set, *change.delete}
    own = {key: entry.value for key, entry in entries.items() if key in touched and entry.is_override}
    return NewConfigs({key: value for key, value in own.items() if value is not None}, touched - own.keys())


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


def _named(topic: str) -> str:
    return f"alter configs of topic {topic!r}"


def _alteration(
    session: AdminSession, connection: Connection, changes: Mapping[str, NewConfigs], *, validate_only: bool = False
) -> tuple[Any, int]:
    """Return the request for changes, by topic, and its version."""
    from kafka.protocol.admin import AlterConfigsRequest, IncrementalAlterConfigsRequest

    incremental = connection.serves(IncrementalAlterConfigsRequest.API_KEY, 0)
    request: Any = IncrementalAlterConfigsRequest if incremental else AlterConfigsRequest
    resource = request.AlterConfigsResource
    asked = (_increments if incremental else _everything)(session, resource.AlterableConfig, changes)
    resources = [resource(resource_type=_TOPIC, resource_name=topic, configs=its) for topic, its in asked.items()]
    version = connection.newest(request.API_KEY, 0, 1)
    return request(resources=resources, validate_only=validate_only, version=version), version


def _altered(response: Any) -> Iterator[Reply[str, bool]]:
    for result in response.responses:
        yield Reply(result.resource_name, result.error_code, result.error_message, True)


def _increments(_: AdminSession, asked: Any, changes: Mapping[str, NewConfigs]) -> dict[str, list[Any]]:
    return {
        topic: [
            *(asked(name=key, config_operation=_SET, value=value) for key, value in sorted(change.set.items())),
            *(asked(name=key, config_operation=_DELETE, value=None) for key in sorted(change.delete)),
        ]
        for topic, change in changes.items()
    }


def _everything(session: AdminSession, asked: Any, changes: Mapping[str, NewConfigs]) -> dict[str, list[Any]]:
    found = {}
    for topic, entries in topic_configs(session, changes).items():
        set, delete = changes[topic].set, changes[topic].delete
        own = {key: entry.value for key, entry in entries.items() if entry.is_override and key not in {*set, *delete}}
        if hidden := sorted(key for key, value in own.items() if value is None):
            raise InputError(
                f"{session.config.role} cluster: topic {topic!r} overrides {', '.join(hidden)}, whose value the broker "
                "hides",
                "brokers before 2.3 only take all overrides at once: it would be lost",
                "Change this topic by hand.",
            )
        found[topic] = [asked(name=key, value=value) for key, value in sorted({**own, **set}.items())]
    return found
