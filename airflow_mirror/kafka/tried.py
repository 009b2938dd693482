"""What a connection's principal may do with topics that need not exist: tried out, without any effect.

Brokers tell what is allowed on topics that exist (:mod:`.allowed`). To say the same of a topic that somebody will create,
each request is sent as it will be, about a partition that no topic has: a broker asks its authorizer before it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError, MissingRight
from airflow_mirror.kafka import configs
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire import fetch, requests
from airflow_mirror.wire.error_codes import ErrorCode

_NO_PARTITION = (1 << 31) - 1


class _Way(NamedTuple):
    """How an operation is tried.

    :ivar right: its name, as in kafka-acls. :ivar what: it is, in errors. :ivar ask: yields the broker's code by topic.
    """

    right: str
    what: str
    ask: Callable[[AdminSession, list[str]], Iterator[tuple[str, int]]]


def lacking(session: AdminSession, needed: Mapping[str, Collection[str]]) -> dict[str, list[MissingRight]]:
    """Return an error for each operation that is not allowed on a topic; topics on which all are allowed are omitted.

    :param needed: operations by topic: ``WRITE``, ``READ``, ``DESCRIBE_CONFIGS``. Nothing is read or written.
    :raises MirrorError: nobody knows whether one is allowed.
    """
    found: dict[str, list[MissingRight]] = {}
    for operation, way in _WAYS.items():
        for topic, error in _try(session, way, [topic for topic, its in needed.items() if operation in its]).items():
            if not isinstance(error, MissingRight):
                raise error
            found.setdefault(topic, []).append(error)
    return found


def _try(session: AdminSession, way: _Way, topics: list[str]) -> dict[str, MirrorError]:
    def ask(some: list[str]) -> Iterator[Reply[str, None]]:
        for topic, code in way.ask(session, some):
            yield Reply(topic, 0 if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code, None, None)

    return session.each_apart(
        lambda topic: f"{way.what} topic {topic!r}", topics, ask, way.right, session.timeout_s
    )[1]  # fmt: skip


def _write(session: AdminSession, topics: list[str]) -> Iterator[tuple[str, int]]:
    nowhere = [TopicPartition(topic, _NO_PARTITION) for topic in topics]
    for tp, code in requests.write_refusals(session.anywhere(), nowhere):
        yield tp.topic, code


def _read(session: AdminSession, topics: list[str]) -> Iterator[tuple[str, int]]:
    connection = session.anywhere()
    nowhere = [fetch.FetchSpec(TopicPartition(topic, _NO_PARTITION), 0, 1) for topic in topics]
    error, partitions = fetch.at_once(connection, nowhere, 1, fetch.READ_UNCOMMITTED)
    for one in partitions:
        yield one.tp.topic, error or one.error


def _describe_configs(session: AdminSession, topics: list[str]) -> Iterator[tuple[str, int]]:
    for reply in configs.ask_topics(session, topics):
        yield reply.key, reply.code


_WAYS = {
    "WRITE": _Way("Write", "write to", _write),
    "READ": _Way("Read", "read", _read),
    "DESCRIBE_CONFIGS": _Way("DescribeConfigs", "read configs of", _describe_configs),
}
