"""Delete what a drill created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.errors import BrokerError

if TYPE_CHECKING:
    from airflow_mirror.config import ClientConfig


def clean_up(clusters: list[ClientConfig], topic: str, group: str) -> list[str]:
    """Delete the drill's topic and group on each cluster; return what could not be deleted, one line each."""
    from airflow_mirror.errors import MirrorError
    from airflow_mirror.kafka.admin import ClusterAdmin

    left = []
    for config in clusters:
        try:
            _delete_group(config, group)
            with ClusterAdmin(config) as admin:
                admin.delete_topics(admin.topics([topic]))
        except (MirrorError, TimeoutError) as e:  # the other cluster is cleaned up all the same
            left.append(f"{config.role}: {e}")
    return left


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
