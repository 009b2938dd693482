"""Which name an authorizer has for us.

With Kerberos, brokers make it of the principal by rules of theirs. A client can read these rules, but not the brokers'
default realm, without which most of them mean nothing. One case needs no realm: a broker whose only rule is ``DEFAULT``
lets principals of its default realm in and nobody else, and names them by their first part. Who could ask it is in.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_mirror.errors import MissingRight
from airflow_mirror.kafka.configs import broker_configs
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.session import AdminSession

_RULES, _BUILDER = "sasl.kerberos.principal.to.local.rules", "principal.builder.class"


def principal(session: AdminSession) -> str | None:
    """Our principal for the cluster's authorizer, ``User:mirror``; None where only the brokers know it, or our rights do
    not suffice. With Kerberos they are asked for the rules by which they make it.
    """
    name = session.kerberos_name
    if name is None:
        return session.known_principal
    try:
        brokers = broker_configs(session).values()
    except MissingRight:
        return None
    return f"User:{name}" if all(_takes_the_first_part(configs) for configs in brokers) else None


def _takes_the_first_part(configs: Mapping[str, ConfigEntry]) -> bool:
    """Return whether a broker has no rules of its own; a listener may have some, under a prefix."""
    usual = {_RULES: ("", "DEFAULT"), _BUILDER: ("", "DefaultKafkaPrincipalBuilder")}
    return all(
        (entry.value or "").rpartition(".")[2] in values
        for setting, values in usual.items()
        for key, entry in configs.items()
        if key.endswith(setting)
    )
