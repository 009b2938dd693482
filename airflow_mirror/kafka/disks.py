"""Free disk of a cluster's brokers (KIP-827, brokers from 3.3 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.kafka.cluster import describe_cluster
from airflow_mirror.kafka.session import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_mirror.kafka.session import AdminSession

_USABLE = 4  # the version that tells it


def usable_bytes(session: AdminSession) -> dict[int, int | None]:
    """Return what each broker can still write, over all its log directories; None if it does not tell."""
    found = session.each(
        lambda broker: f"read log directories of broker {broker!r}",
        [str(broker) for broker in describe_cluster(session).brokers],
        lambda one: _ask(session, one[0]),  # each broker answers only for itself
        "Describe",
        chunk=1,
    )
    return {int(broker): usable for broker, usable in found.items()}


def _ask(session: AdminSession, broker: str) -> Iterator[Reply[str, int | None]]:
    from kafka.protocol.admin import DescribeLogDirsRequest as Request

    connection = session.cluster.connection(int(broker))
    if not connection.serves(Request.API_KEY, _USABLE):
        yield Reply(broker, 0, None, None)
        return
    answer = session.request(connection, Request(topics=[], version=_USABLE), _USABLE)
    usable = [-1 if directory.error_code else directory.usable_bytes for directory in answer.results]
    yield Reply(broker, answer.error_code, None, None if not usable or min(usable) < 0 else sum(usable))
