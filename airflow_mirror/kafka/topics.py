"""Topics of one cluster: describe, create, grow, delete.

Creating, growing and deleting must not simply be repeated: after a lost response, "exists already" may mean our own
topic. Only then is the topic compared with the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka import configs
from airflow_mirror.kafka.model import NewTopicSpec, Replicas, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire import requests
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.topology import id_of, topic_of

_WITH_IDS = 6  # DeleteTopics takes ids from 2.8 on
_NEWS_S = 5.0  # every live broker learns of a change within this time


def describe_topics(session: AdminSession, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
    """Return topics by name; all visible ones if ``names`` is None. Topics that do not exist are omitted."""

    def ask(some: list[str] | None) -> Iterator[Reply[str, TopicInfo]]:
        for topic in requests.known_metadata(session.anywhere(), some).topics:
            # Without partitions the topic is still being created; with them the error concerns a leader.
            code = 0 if topic.partitions else topic.error_code
            yield Reply(topic.name, code, None, _info(topic) if topic.partitions else TopicInfo(topic.name, "", 0, 0))

    if names is None:
        return session.one("list topics", lambda: _whole(ask(None)), "Describe")
    return session.each(
        lambda name: f"describe topic {name!r}",
        sorted(set(names)),
        ask,
        "Describe",
        absent=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def topic_names(session: AdminSession) -> list[str]:
    """Return the names of all visible topics, including internal ones, sorted."""
    return sorted(describe_topics(session))


def describe_replicas(session: AdminSession, names: Collection[str]) -> dict[TopicPartition, Replicas]:
    """Return the replicas of each partition. Topics that do not exist are omitted."""

    def ask(some: list[str]) -> Iterator[Reply[str, dict[TopicPartition, Replicas]]]:
        for topic in requests.known_metadata(session.anywhere(), some).topics:
            found = {
                TopicPartition(topic.name, p.partition_index): Replicas(
                    len(p.replica_nodes), len(p.isr_nodes), p.leader_id >= 0
                )
                for p in topic.partitions
            }
            yield Reply(topic.name, 0 if found else topic.error_code, None, found)

    by_topic = session.each(
        lambda name: f"describe topic {name!r}", sorted(set(names)), ask, "Describe",
        absent=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )  # fmt: skip
    return {tp: one for of_topic in by_topic.values() for tp, one in of_topic.items()}


def _whole(replies: Iterable[Reply[str, TopicInfo]]) -> Reply[str, dict[str, TopicInfo]]:
    """Return all topics sorted by name, or the error of one of them: a partial list would lose topics silently."""
    found: dict[str, TopicInfo] = {}
    for name, code, _text, info in sorted(replies):
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return Reply("", code, f"topic {name!r}", {})
        if not code:
            found[name] = info
    return Reply("", 0, None, found)


def create_topics(session: AdminSession, specs: Iterable[NewTopicSpec], permit: Permit) -> None:
    """Create topics and wait until the controller has them.

    :raises BrokerError: with code 36 (TOPIC_ALREADY_EXISTS) if one exists; the others were created.
    """
    wanted = {spec.name: spec for spec in specs}

    def is_ours(name: str, code: int) -> bool | None:
        return True if code == ErrorCode.TOPIC_ALREADY_EXISTS and _is_as_asked(session, wanted[name]) else None

    ask = _creating(session, wanted, permit)
    session.each(lambda name: f"create topic {name!r}", wanted, ask, "Create", done=is_ours)


def refused_topics(
    session: AdminSession, specs: Iterable[NewTopicSpec], patience_s: float = 5.0
) -> dict[str, MirrorError]:
    """Return why the controller would not create topics, by name. None is created.

    :param patience_s: after which a temporary error counts.
    """
    wanted = {spec.name: spec for spec in specs}
    ask = _creating(session, wanted, unfenced, validate_only=True)
    return session.each_apart(lambda name: f"create topic {name!r}", wanted, ask, "Create", patience_s)[1]


def _creating(
    session: AdminSession, wanted: Mapping[str, NewTopicSpec], permit: Permit, *, validate_only: bool = False
) -> Callable[[list[str]], Iterator[Reply[str, bool]]]:
    from kafka.protocol.admin import CreateTopicsRequest as Request

    asked = Request.CreatableTopic

    def ask(names: list[str]) -> Iterator[Reply[str, bool]]:
        topics = [
            asked(
                name=name,
                num_partitions=wanted[name].partitions,
                replication_factor=wanted[name].replication_factor,
                assignments=[],
                configs=[asked.CreatableTopicConfig(name=k, value=v) for k, v in sorted(wanted[name].configs.items())],
            )
            for name in names
        ]
        answer = session.newest(  # from 1 on there is the controller's error message
            session.controller(), Request, (1, 7), permit, topics=topics, timeout_ms=session.write_timeout_ms,
            validate_only=validate_only,
        )  # fmt: skip
        yield from _replies(answer.topics)

    return ask


def grow_partitions(session: AdminSession, topic: str, total: int, permit: Permit) -> None:
    """Raise a topic's partition count to ``total``. Kafka can't lower it.

    :raises ApiNotServed: by a broker before 1.0.
    """
    from kafka.protocol.admin import CreatePartitionsRequest as Request

    def ask(names: list[str]) -> Iterator[Reply[str, bool]]:
        topics = [Request.CreatePartitionsTopic(name=name, count=total, assignments=None) for name in names]
        answer = session.newest(
            session.controller(), Request, (0, 3), permit, topics=topics, timeout_ms=session.write_timeout_ms,
            validate_only=False,
        )  # fmt: skip
        yield from _replies(answer.results)

    def is_grown(name: str, code: int) -> bool | None:
        return True if code == ErrorCode.INVALID_PARTITIONS and _has_partitions(session, name, total) else None

    session.each(lambda name: f"grow to {total} partitions topic {name!r}", [topic], ask, "Alter", done=is_grown)


def delete_topics(session: AdminSession, names: Collection[str], permit: Permit) -> None:
    """Delete topics with all their records."""
    from kafka.protocol.admin import DeleteTopicsRequest as Request

    def ask(some: list[str]) -> Iterator[Reply[str, bool]]:
        answer = session.newest(  # from 5 on there is the controller's error message; 6 uses topic ids
            session.controller(), Request, (1, 5), permit, topic_names=some, timeout_ms=session.write_timeout_ms
        )
        yield from _replies(answer.responses)

    session.each(
        lambda name: f"delete topic {name!r}", sorted(set(names)), ask, "Delete",
        done=lambda name, code: True if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None,
    )  # fmt: skip


def delete_topic(session: AdminSession, name: str, topic_id: str, permit: Permit) -> None:
    """Delete the topic of this id, and no other one of its name; nothing if there is none. Errors name it ``name``.

    :raises ApiNotServed: by a broker before 2.8, which knows no ids.
    """
    from kafka.protocol.admin import DeleteTopicsRequest as Request

    def ask(some: list[str]) -> Iterator[Reply[str, bool]]:
        wanted = [Request.DeleteTopicState(name=None, topic_id=id_of(one), version=_WITH_IDS) for one in some]
        answer = session.newest(
            session.controller(), Request, (_WITH_IDS, _WITH_IDS), permit, topics=wanted,
            timeout_ms=session.write_timeout_ms,
        )  # fmt: skip
        for one, result in zip(some, answer.responses, strict=True):
            yield Reply(one, result.error_code, result.error_message, True)

    session.each(
        lambda one: f"delete topic {name!r}, id {one}", [topic_id], ask, "Delete", name=lambda one, code: name,
        absent=ErrorCode.UNKNOWN_TOPIC_ID,
    )  # fmt: skip


def _replies(results: Iterable[Any]) -> Iterator[Reply[str, bool]]:
    for result in results:
        yield Reply(result.name, result.error_code, result.error_message, True)


def _info(topic: Any) -> TopicInfo:
    first = min(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(topic.name, topic_of(topic).topic_id, len(topic.partitions), len(first.replica_nodes))


def _has_partitions(session: AdminSession, topic: str, count: int) -> bool:
    """Return whether a topic has this many partitions; brokers learn of the controller's changes a moment later."""
    backoff = Backoff(min(_NEWS_S, session.timeout_s))
    while True:
        info = describe_topics(session, [topic]).get(topic)
        if info is not None and info.partitions == count:
            return True
        if backoff.expired:
            return False
        backoff.pause()


def _is_as_asked(session: AdminSession, spec: NewTopicSpec) -> bool:
    """Return whether the topic is as requested; False if it can't be read."""
    try:
        if not _has_partitions(session, spec.name, spec.partitions):
            return False
        replicas = describe_topics(session, [spec.name])[spec.name].replication_factor
        entries = configs.topic_configs(session, [spec.name])[spec.name]
    except (MirrorError, KeyError):  # KeyError: deleted in between
        return False
    overrides = {key: entry.value for key, entry in entries.items() if entry.is_override}
    return (replicas, overrides) == (spec.replication_factor, dict(spec.configs))
