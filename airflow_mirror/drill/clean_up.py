"""Delete what a drill created."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_mirror.drill.reading import patiently
from airflow_mirror.errors import BrokerError, MirrorError

if TYPE_CHECKING:
    from airflow_mirror.config import ClientConfig


def clean_up(clusters: list[ClientConfig], topic: str, group: str, timeout_s: float = 60.0) -> list[str]:
    """Delete the drill's topic and group on each cluster; return what could not be deleted, one line each.

    Nothing that fails keeps the rest from being tried.

    :param timeout_s: for one group: a coordinator that is being elected, or a member that was killed, goes by.
    """
    left = []
    for config in clusters:
        for delete in (
            partial(patiently, partial(_delete_group, config, group), timeout_s),
            partial(_delete_topic, config, topic),
        ):
            try:
                delete()
            except (MirrorError, TimeoutError) as e:
                left.append(f"{config.role}: {e}")
    return left


def _delete_topic(config: ClientConfig, topic: str) -> None:
    from airflow_mirror.kafka.admin import ClusterAdmin

    with ClusterAdmin(config) as admin:
        admin.delete_topics(admin.topics([topic]))


def _delete_group(config: ClientConfig, group: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(config.common())  # kept alive: garbage collected too early, it would lose its results
    for future in client.delete_consumer_groups([group], request_timeout=15).values():
        try:
            future.result(timeout=30)
        except KafkaException as e:
            if e.args[0].name() not in ("GROUP_ID_NOT_FOUND", "COORDINATOR_NOT_AVAILABLE"):
                raise BrokerError(f"delete group {group!r}", e.args[0].code(), e.args[0].name()) from e
