"""Which name brokers make of a Kerberos principal: known only where they have no rules of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import MissingRight
from airflow_mirror.kafka import local_name
from airflow_mirror.kafka.model import ConfigEntry

RULES, BUILDER = "sasl.kerberos.principal.to.local.rules", "principal.builder.class"
KAFKAS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def principal(
    monkeypatch: pytest.MonkeyPatch, *brokers: dict[str, str | None], name: str | None = "mirror"
) -> str | None:
    told = {i: {key: ConfigEntry(value=value) for key, value in configs.items()} for i, configs in enumerate(brokers)}
    monkeypatch.setattr(local_name, "broker_configs", lambda _: told)
    session: Any = SimpleNamespace(kerberos_name=name, known_principal="User:of-the-settings")
    return local_name.principal(session)


@pytest.mark.parametrize(
    ("configs", "known"),
    [
        ({}, True),
        ({RULES: "DEFAULT", BUILDER: KAFKAS}, True),
        ({RULES: None, BUILDER: None}, True),
        ({RULES: "RULE:[1:$1@$0](.*@TWO)s/@.*//,DEFAULT"}, False),
        ({RULES: "DEFAULT", f"listener.name.sasl.{RULES}": "RULE:[2:$1]"}, False),
        ({BUILDER: "com.example.Builder"}, False),
    ],
)
def test_the_first_part_is_the_name_where_no_broker_has_rules(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, str | None], known: bool
) -> None:
    assert principal(monkeypatch, {RULES: "DEFAULT"}, configs) == ("User:mirror" if known else None)


def test_other_logins_ask_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert principal(monkeypatch, {RULES: "RULE:[1:x]"}, name=None) == "User:of-the-settings"


def test_who_may_not_read_the_rules_knows_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise MissingRight("DescribeConfigs", "CLUSTER_AUTHORIZATION_FAILED", "User:mirror")

    monkeypatch.setattr(local_name, "broker_configs", refuse)
    session: Any = SimpleNamespace(kerberos_name="mirror", principal=None)
    assert local_name.principal(session) is None
