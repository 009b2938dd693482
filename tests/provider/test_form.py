"""The connection form: what somebody fills in becomes a cluster's settings, and Airflow hides what is secret."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.models.connection import Connection
from airflow.sdk._shared.secrets_masker import DEFAULT_SENSITIVE_FIELDS
from airflow.utils.deprecation_tools import DeprecatedImportWarning

from airflow_mirror.errors import InvalidField, MissingSetting
from airflow_mirror.get_provider_info import get_provider_info
from airflow_mirror.hooks.form import CONN_TYPE, FIELDS, LOGINS
from airflow_mirror.hooks.kafka import KafkaClusterHook, MirrorKafkaHook
from tests.driven.cluster import DrivenCluster

PEM = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def fill_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fill in the form, and return the settings by the hook that every task uses."""

    def filled(login: str | None = None, password: str | None = None, **fields: Any) -> dict[str, str]:
        extra = {"bootstrap_servers": "b:9093", **{key.replace("__", "."): value for key, value in fields.items()}}
        one = {"conn_type": CONN_TYPE, "login": login, "password": password, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_FORM", json.dumps(one))
        found = dict(MirrorKafkaHook("form", "target").config().properties)
        assert found.pop("bootstrap.servers") == "b:9093"
        return found

    return filled


@pytest.mark.parametrize(("fields", "settings"), [
    ({"client__id": "m"}, {"client.id": "m"}),
    ({"log_in": "TLS"}, {"security.protocol": "SSL"}),
    ({"ca": "/ca.pem", "security__protocol": "SSL"}, {"security.protocol": "SSL", "ssl.ca.location": "/ca.pem"}),
    ({"ca": "/ca.pem", "security__protocol": "sasl_ssl"}, {
        "security.protocol": "sasl_ssl", "ssl.ca.location": "/ca.pem",
    }),
    ({"log_in": "none", "ca": "ignored"}, {"security.protocol": "PLAINTEXT"}),
    ({"log_in": "TLS", "ca": "/ca.pem", "certificate": "/me.pem", "private_key": PEM, "private_key_password": "p"}, {
        "security.protocol": "SSL", "ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/me.pem",
        "ssl.key.pem": PEM, "ssl.key.password": "p",
    }),
    ({"log_in": "TLS", "ca": f"Bag Attributes\n    friendlyName: me\n{PEM}"}, {
        "security.protocol": "SSL", "ssl.ca.pem": f"Bag Attributes\n    friendlyName: me\n{PEM}",
    }),
    ({"log_in": "SCRAM-SHA-512", "login": "mirror", "password": "hunter2", "tls": True, "aws_region": "", "ca": None}, {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mirror",
        "sasl.password": "hunter2",
    }),
    ({"log_in": "PLAIN", "login": "mirror", "password": "hunter2", "tls": False, "ca": "/ca.pem"}, {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "mirror",
        "sasl.password": "hunter2",
    }),
    ({"log_in": "AWS IAM", "aws_region": "eu-west-1", "aws_role_arn": "arn:aws:iam::1:role/m", "login": "left"}, {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "msk",
        "sasl.aws.region": "eu-west-1", "sasl.aws.role.arn": "arn:aws:iam::1:role/m",
    }),
    ({"log_in": "TLS", "client__id": "m", "security__protocol": "PLAINTEXT"}, {  # what is raw wins
        "security.protocol": "PLAINTEXT", "client.id": "m",
    }),
])  # fmt: skip
def test_filled_in_form_becomes_settings(fill_in: Any, fields: dict[str, Any], settings: dict[str, str]) -> None:
    assert fill_in(**fields) == settings


def test_wrong_form_is_refused_with_what_to_do(fill_in: Any) -> None:
    with pytest.raises(InvalidField, match="Use one of none, TLS, SCRAM-SHA-512"):
        fill_in(log_in="Kerberos")
    with pytest.raises(MissingSetting, match=r"bootstrap\.servers"):
        fill_in(bootstrap_servers="")


def the_form() -> dict[str, Any]:
    (one,) = get_provider_info()["connection-types"]
    return dict(one)


def test_form_has_the_fields_and_choices_that_the_hook_reads() -> None:
    fields = the_form()["conn-fields"]
    assert fields.keys() == FIELDS
    assert fields["log_in"]["schema"]["enum"] == list(LOGINS)
    assert all(field["description"] for field in fields.values())


def test_secrets_of_the_form_are_hidden_by_airflow_and_by_the_form() -> None:
    """The password is Airflow's own field; of the others only the key, and what it is encrypted with, are secret."""
    fields = the_form()["conn-fields"]
    known = {name for name in fields if any(word in name for word in DEFAULT_SENSITIVE_FIELDS)}
    assert known == {"private_key", "private_key_password"}
    assert fields["private_key_password"]["schema"]["format"] == "password"
    extra = json.dumps({"private_key": PEM, "private_key_password": "hunter2", "ssl.key.pem": "shown"})
    one = Connection(conn_id="x", conn_type=CONN_TYPE, login="me", password="hunter2", extra=extra)
    told = ConnectionResponse.model_validate(one, from_attributes=True).model_dump_json()
    assert "MII" not in told and "hunter2" not in told and "shown" in told, "the last is why fields have other names"


def test_airflow_takes_the_form_for_its_hook() -> None:
    hooks = {one.connection_type: one for one in HookMetaService.hook_meta_data()}
    found = hooks[CONN_TYPE]
    assert found.hook_name == "Kafka cluster" and found.extra_fields is not None and found.extra_fields.keys() == FIELDS
    assert str(hooks["kafka"].hook_class_name).startswith("airflow.providers.apache.kafka."), "theirs stays theirs"
    with warnings.catch_warnings():  # Airflow's own, at its own call
        warnings.simplefilter("ignore", DeprecatedImportWarning)
        assert isinstance(Connection(conn_id="x", conn_type=CONN_TYPE).get_hook(), KafkaClusterHook)


def test_connection_is_tested_by_the_login_that_tasks_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.hooks.kafka._TEST_S", 2.0)
    with DrivenCluster("one") as cluster:
        extra = {"log_in": "none", "bootstrap_servers": cluster.config.bootstrap}
        monkeypatch.setenv("AIRFLOW_CONN_FORM", json.dumps({"conn_type": CONN_TYPE, "extra": extra}))
        works, said = KafkaClusterHook("form").test_connection()
        assert works and cluster.cluster_id in said
        cluster.kill(1)
        works, said = KafkaClusterHook("form").test_connection()
        assert not works and "could be reached" in said
    extra["log_in"] = "magic"
    monkeypatch.setenv("AIRFLOW_CONN_FORM", json.dumps({"conn_type": CONN_TYPE, "extra": extra}))
    assert KafkaClusterHook("form").test_connection()[0] is False
