"""Whether a drill's own producer and consumers can log in: they are librdkafka's, as those of applications are."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.wire.settings import WireSettings


def check_logins(clusters: Iterable[ClientConfig]) -> None:
    """Return if librdkafka can log in to each cluster.

    :raises InvalidField: one asks for Kerberos, which librdkafka's wheels don't have.
    """
    for config in clusters:
        settings = WireSettings(config.properties, config.role)
        if settings.uses_kerberos:
            raise InvalidField(
                "sasl.mechanism",
                "GSSAPI",
                f"a drill writes and reads with librdkafka, whose wheels have no Kerberos ({config.role})",
                "Give the drill's mirror a connection with another login.",
            )
