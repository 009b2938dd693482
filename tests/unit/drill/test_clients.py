"""A drill needs logins that librdkafka has."""

from __future__ import annotations

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField
from airflow_mirror.extras.drill.clients import check_logins


def config(role: str, **properties: str) -> ClientConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClientConfig({"bootstrap.servers": "b:1", **named}, role)


def test_a_drill_by_kerberos_is_refused_before_anything_is_created() -> None:
    plain = config("source", security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="m", sasl_password="s")
    check_logins([plain, config("target"), config("target", sasl_mechanism="GSSAPI")])  # the last one has no SASL at all
    for mechanism in ({"sasl_mechanism": "gssapi"}, {}):
        with pytest.raises(InvalidField, match=r"sasl.mechanism='GSSAPI'.*librdkafka.*\(target\)"):
            check_logins([plain, config("target", security_protocol="SASL_SSL", **mechanism)])
