"""The connection type ``kafka_cluster``: a form for how a cluster is reached, beside the raw settings of type ``kafka``.

Its fields are declared in :mod:`airflow_mirror.get_provider_info`, where Airflow reads them without an import; here is
what becomes of them. Names of fields are ours, because Airflow hides values by names: it knows ``private_key``, and not
``ssl.key.pem``. Whatever else the extra holds is a setting of librdkafka's, as in a connection of type ``kafka``, and
wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_mirror.errors import InvalidField

CONN_TYPE = "kafka_cluster"
TYPES = ("kafka", CONN_TYPE)  # of connections that lead to clusters


def _sasl(mechanism: str) -> Callable[[Mapping[str, Any], str, str], dict[str, Any]]:
    def settings(form: Mapping[str, Any], user: str, password: str) -> dict[str, Any]:
        protocol = "SASL_PLAINTEXT" if str(form.get("tls")).lower() == "false" else "SASL_SSL"
        by = {"security.protocol": protocol, "sasl.mechanism": mechanism}
        return {**by, "sasl.username": user, "sasl.password": password}

    return settings


def _iam(form: Mapping[str, Any], *_: str) -> dict[str, Any]:
    by = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "msk"}
    return {**by, "sasl.aws.region": form.get("aws_region"), "sasl.aws.role.arn": form.get("aws_role_arn")}


# How somebody logs in, by the choices of the form's field, from its other fields, the user and the password.
LOGINS: Mapping[str, Callable[[Mapping[str, Any], str, str], dict[str, Any]]] = {
    "none": lambda *_: {"security.protocol": "PLAINTEXT"},
    "TLS": lambda *_: {"security.protocol": "SSL"},
    "SCRAM-SHA-512": _sasl("SCRAM-SHA-512"),
    "SCRAM-SHA-256": _sasl("SCRAM-SHA-256"),
    "PLAIN": _sasl("PLAIN"),
    "AWS IAM": _iam,
}
# Of TLS: each takes the text of a PEM file, or its path.
_PEMS = {"ca": "ssl.ca", "certificate": "ssl.certificate", "private_key": "ssl.key"}
FIELDS = frozenset({"bootstrap_servers", "log_in", "tls", "private_key_password", "aws_region", "aws_role_arn", *_PEMS})


def settings_of(conn_id: str, extra: Mapping[str, Any], user: str | None, password: str | None) -> dict[str, Any]:
    """Return the settings of librdkafka's for what somebody has filled in. What is empty says nothing.

    :param extra: of the connection. :param user: its login.
    :raises InvalidField: ``log_in`` is none that there is.
    """
    form = {key: extra[key] for key in FIELDS & extra.keys() if extra[key] not in (None, "")}
    log_in = str(form.get("log_in", ""))
    if log_in and log_in not in LOGINS:
        remedy = f"Use one of {', '.join(LOGINS)}; for others a connection of type kafka, with librdkafka's settings."
        raise InvalidField("log_in", log_in, f"no way to log in (connection {conn_id!r})", remedy)
    found = {"bootstrap.servers": form.get("bootstrap_servers")}
    if log_in:  # else raw settings say it
        found |= LOGINS[log_in](form, user or "", password or "")
    raw = {key: value for key, value in extra.items() if key not in FIELDS}
    if str({**found, **raw}.get("security.protocol")).upper().endswith("SSL"):  # librdkafka takes either case
        for name, key in _PEMS.items():
            text = str(form.get(name, ""))
            # Anywhere in it: OpenSSL writes whose it is above what it takes out of a store.
            found[f"{key}.pem" if "-----BEGIN" in text else f"{key}.location"] = text
        found["ssl.key.password"] = form.get("private_key_password")
    return {**{key: value for key, value in found.items() if value not in (None, "")}, **raw}
