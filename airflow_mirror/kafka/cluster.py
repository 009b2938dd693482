"""The cluster itself: its id, its brokers, and their free disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire import requests

_USABLE = 4  # the version that tells free disk (KIP-827, brokers from 3.3 on)


class Description(NamedTuple):
    """A cluster's id, and the ids of the brokers that are registered and alive, sorted."""

    cluster_id: str
    brokers: list[int]


def describe_cluster(session: AdminSession) -> Description:
    """Query any broker."""

    def ask() -> Reply[str, Description]:
        answer = requests.metadata(session.anywhere(), [])
        return Reply("", 0, None, Description(str(answer.cluster_id), sorted(b.node_id for b in answer.brokers)))

    return session.one("describe cluster", ask, "Describe")


def cluster_id(session: AdminSession) -> str:
    """Return the id that the cluster was formatted with; equal ids mean the same cluster."""
    return describe_cluster(session).cluster_id


def broker_count(session: AdminSession) -> int:
    """Return the number of brokers that are registered and alive."""
    return len(describe_cluster(session).brokers)


def usable_bytes(session: AdminSession) -> dict[int, int | None]:
    """Return the free disk of each broker by its id, over all its log directories; None if it does not tell (before 3.3).

    :raises MissingRight: the principal lacks DESCRIBE on the cluster.
    """
    found = session.each(
        lambda broker: f"read log directories of broker {broker!r}",
        [str(broker) for broker in describe_cluster(session).brokers],
        lambda one: _usable(session, one[0]),  # each broker answers only for itself
        "Describe",
        chunk=1,
    )
    return {int(broker): usable for broker, usable in found.items()}


def _usable(session: AdminSession, broker: str) -> Iterator[Reply[str, int | None]]:
    from kafka.protocol.admin import DescribeLogDirsRequest as Request

    connection = session.wire.connection(int(broker))
    if not connection.serves(Request.API_KEY, _USABLE):
        yield Reply(broker, 0, None, None)
        return
    answer = session.request(connection, Request(topics=[], version=_USABLE), _USABLE)
    usable = [-1 if directory.error_code else directory.usable_bytes for directory in answer.results]
    yield Reply(broker, answer.error_code, None, None if not usable or min(usable) < 0 else sum(usable))
