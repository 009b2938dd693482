"""Whether all coordinators can answer: a partition of their topic without a leader has none, and nobody speaks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire import requests
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode

T = TypeVar("T")


class _Seen(NamedTuple):
    """The coordinators as all brokers know them: what is missing, and (partition, leader, epoch) of their topic."""

    code: int
    leaders: frozenset[tuple[int, int, int]]


def missing(session: AdminSession, topic: str) -> int:
    """Return the error of the coordinators' topic: a right that is missing, or a partition without a leader; 0: none."""
    return _look(session, topic).code


def at_each(session: AdminSession, topic: str, ask: Callable[[Connection], Reply[str, T]]) -> Reply[str, dict[int, T]]:
    """Query every coordinator, as :meth:`AdminSession.at_each_broker`; what is :func:`missing` is an error.

    So is a coordinator that moves meanwhile: its next broker may have answered before, and its last one behind that.
    """
    before = _look(session, topic)
    if before.code:
        return Reply("", before.code, f"topic {topic}", {})
    found = session.at_each_broker(ask)
    if not found.code and _look(session, topic, exists=bool(before.leaders)) != before:
        return Reply("", ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic {topic}: a coordinator moved", {})
    return found


def _look(session: AdminSession, topic: str, *, exists: bool = False) -> _Seen:
    _ = session.wire
    topics = list[Any]()
    for _node_id, broker in session.router.brokers():
        # An old broker that is asked for it lists all topics, lest it creates it: megabytes, for each of them every few
        # seconds. Where one has it there is nothing to create.
        topics += requests.known_metadata(broker, [topic], exists).topics
        exists = exists or bool(topics[-1].partitions)
    leaders = frozenset((p.partition_index, p.leader_id, p.leader_epoch) for one in topics for p in one.partitions)
    return _Seen(_code({int(one.error_code) for one in topics}, leaders), leaders)


def _code(codes: set[int], leaders: frozenset[tuple[int, int, int]]) -> int:
    if ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:  # nobody ever asked for one
        return ErrorCode.NONE
    led = all(leader >= 0 for _partition, leader, _epoch in leaders)
    # One that does not know the topic has just started, and knows as little of what it coordinates.
    return ErrorCode.NONE if led and codes == {ErrorCode.NONE} else ErrorCode.COORDINATOR_NOT_AVAILABLE
