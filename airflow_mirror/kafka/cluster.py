"""The cluster itself: its id and its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_mirror.kafka.session import Reply
from airflow_mirror.wire import requests

if TYPE_CHECKING:
    from airflow_mirror.kafka.session import AdminSession


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
