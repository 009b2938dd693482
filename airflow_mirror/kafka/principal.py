"""Who the mirror itself is on a cluster. No request of Kafka's tells a client that."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_mirror.errors import InvalidField
from airflow_mirror.kafka.admin import ClusterAdmin


def own_principal(cluster: ClusterAdmin, own: Mapping[str, str]) -> str:
    """Return the principal of the mirror itself on one cluster.

    :param own: by role; wins over what the connection says.
    :raises InvalidField: nobody says it.
    """
    principal = own.get(cluster.role) or cluster.principal
    if principal is None:
        raise InvalidField(
            "own_principals",
            dict(own),
            f"the {cluster.role}'s connection does not say which principal the brokers make of it (a certificate, a "
            "token, or Kerberos with sasl.kerberos.principal.to.local.rules), and its rules must not be touched",
            f'Name it: {{"{cluster.role}": "User:..."}}.',
        )
    return principal


def given_principal(option: str, text: str) -> str:
    """Return the principal that an option names.

    :raises InvalidField: it has no type in front; to brokers it would be nobody.
    """
    if not re.fullmatch(r"\w+:.+", text):
        raise InvalidField(option, text, "no principal", f"Write User:{text}.")
    return text
