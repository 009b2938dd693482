"""The settings of a cluster, from an Airflow connection of type ``kafka``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField, MissingSetting, UnknownConnection
from airflow_mirror.kafka.admin import ClusterAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_mirror.mirror import Mirror

__all__ = ["MirrorKafkaHook"]


class MirrorKafkaHook(KafkaBaseHook):  # type: ignore[misc]  # the Kafka provider ships no types
    """One cluster of a mirror. Uses the Kafka provider's connection type and registers none of its own.

    :param kafka_config_id: Airflow connection id.
    :param role: ``source`` or ``target``: the cluster's role in the mirror. Errors name it.
    """

    def __init__(self, kafka_config_id: str, role: str = "cluster") -> None:
        super().__init__(kafka_config_id=kafka_config_id)
        self.role = role

    def config(self) -> ClientConfig:
        """Return the connection's settings, and mask their secrets in this process's logs from now on.

        Airflow masks by key name and misses some of Kafka's keys (``ssl.key.pem``, ``sasl.jaas.config``).

        :raises UnknownConnection: there is no such connection.
        :raises MissingSetting: it has no ``bootstrap.servers``.
        :raises InvalidField: it needs a callback, which can't be passed to a Spark job.
        """
        conn_id = self.kafka_config_id
        try:
            extra = self.get_connection(conn_id).extra_dejson
        except AirflowNotFoundException:
            raise UnknownConnection(conn_id, self.role) from None
        if not extra.get("bootstrap.servers"):
            raise MissingSetting(f"connection {conn_id!r} (the {self.role} cluster)", "bootstrap.servers")
        properties = self._build_config()
        for key, value in properties.items():
            if callable(value):
                raise InvalidField(
                    key,
                    "a callback",
                    f"connection {conn_id!r} (the {self.role} cluster) gets its tokens from code, which can't "
                    "be passed to a Spark job",
                    "Use sasl.oauthbearer.method=oidc, SCRAM or TLS.",
                )
        config = ClientConfig(properties, self.role)
        for secret in config.secrets():
            mask_secret(secret)
        return config

    def admin(self) -> ClusterAdmin:
        """Return an admin facade of the cluster, for the caller to close; nothing is connected yet.

        Errors as :meth:`config`.
        """
        return ClusterAdmin(self.config())


def configs_of(mirror: Mirror) -> dict[str, ClientConfig]:
    """Return the settings of both clusters of a mirror, by role. Errors as :meth:`MirrorKafkaHook.config`."""
    return {
        role: MirrorKafkaHook(conn_id, role).config()
        for role, conn_id in (("source", mirror.source), ("target", mirror.target))
    }


@contextmanager
def admins_of(mirror: Mirror) -> Iterator[tuple[ClusterAdmin, ClusterAdmin]]:
    """Yield admin facades of the source and the target, open for the block. Errors as :meth:`MirrorKafkaHook.config`."""
    configs = configs_of(mirror)
    with ClusterAdmin(configs["source"]) as source, ClusterAdmin(configs["target"]) as target:
        yield source, target
