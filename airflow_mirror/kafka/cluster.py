"""The cluster itself: its id, its brokers, and their free disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire import requests

_USABLE = 4  # the version that tells free disk (KIP-827, brokers from 3.3 on)


def describe_cluster(session: AdminSession) -> Any:
    """Return what any broker says of its cluster, without topics."""
    return session.one(
        "describe cluster", lambda: Reply("", 0, None, requests.known_metadata(session.anywhere(), [])), "Describe"
    )


def broker_ids(session: AdminSession) -> list[int]:
    """Return the ids of the brokers that are registered and alive, sorted."""
    return sorted(broker.node_id for broker in describe_cluster(session).brokers)


def cluster_id(session: AdminSession) -> str:
    """Return the id that the cluster was formatted with; equal ids mean the same cluster."""
    return str(describe_cluster(session).cluster_id)


def broker_count(session: AdminSession) -> int:
    """Return the number of brokers that are registered and alive."""
    return len(broker_ids(session))


def usable_bytes(session: AdminSession) -> dict[int, int | None]:
    """Return the free disk of each broker by its id, over all its log directories; None if it does not tell (before 3.3).

    :raises MissingRight: the principal lacks DESCRIBE on the cluster.
    """
    found = session.each(
        lambda broker: f"read log directories of broker {broker!r}",
        [str(broker) for broker in broker_ids(session)],
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
