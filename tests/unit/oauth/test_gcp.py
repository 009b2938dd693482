"""Google's Managed Kafka: tokens of a service account, from a key or from the host."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth.exceptions import TransportError

from airflow_mirror.common.oauth import tokens
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InputError, InvalidField, MirrorError
from airflow_mirror.wire.login import _mechanism
from airflow_mirror.wire.settings import WireSettings
from tests.clouds import Server, serving

THERE = "bootstrap.orders.europe-west1.managedkafka.my-project.cloud.goog:9092"
ACCOUNT = "mirror@my-project.iam.gserviceaccount.com"


@pytest.fixture
def google() -> Iterator[Server]:
    with serving() as server:
        server.answers.append((200, json.dumps({"access_token": "ya29.secret", "expires_in": 3600})))
        yield server


@pytest.fixture(scope="module")
def private_key() -> str:
    made = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.PKCS8
    return made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


@pytest.fixture
def key(google: Server, private_key: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    tokens._forget()
    return {
        "type": "service_account", "client_email": ACCOUNT, "private_key": private_key, "private_key_id": "1",
        "token_uri": google.url, "project_id": "my-project",
    }  # fmt: skip


def built(**more: str) -> WireSettings:
    given = {"bootstrap.servers": THERE, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    given |= {key.replace("_", "."): value for key, value in more.items()}
    return WireSettings.from_config(ClientConfig(given, "target"))


def parts(settings: WireSettings) -> list[str]:
    """Return the decoded parts of a token."""
    sent = _mechanism(settings, "b1").auth_bytes().decode()
    token = sent.removeprefix("n,,\x01auth=Bearer ").rstrip("\x01")
    return [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode() for part in token.split(".")]


def encoded(key: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(key).encode()).decode()


def test_token_of_a_key_in_the_settings(key: dict[str, Any], google: Server) -> None:
    header, claims, secret = parts(built(**{"sasl_gcp_key_base64": encoded(key)}))
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"} and secret == "ya29.secret"
    said = json.loads(claims)
    assert (said["sub"], said["iss"], said["scope"]) == (ACCOUNT, "Google", "kafka")
    assert 3500 < said["exp"] - said["iat"] <= 3600 and len(google.asked) == 1


def test_key_of_a_file_goes_along_to_hosts_without_it(key: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key))
    handed = ClientConfig({"bootstrap.servers": THERE, "sasl.gcp.key": str(path)}).with_files()
    path.unlink()
    assert handed.properties["sasl.gcp.key.base64"] in handed.secrets()
    given = {key.replace(".", "_"): value for key, value in handed.properties.items()}
    assert json.loads(parts(built(**given))[1])["sub"] == ACCOUNT


def test_key_that_is_replaced_in_its_file_counts_for_the_next_token(key: dict[str, Any], tmp_path: Path) -> None:
    """It was read once in the life of a process, however often the settings were read again."""
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key))
    settings = built(sasl_gcp_key=str(path))
    assert json.loads(parts(settings)[1])["sub"] == ACCOUNT
    path.write_text(json.dumps(key | {"client_email": f"new-{ACCOUNT}"}))
    settings.oauth_tokens._stale_at = settings.oauth_tokens._ends_at = 0.0
    assert json.loads(parts(built(sasl_gcp_key=str(path)))[1])["sub"] == f"new-{ACCOUNT}"


def test_account_of_the_host(key: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    assert json.loads(parts(built())[1])["sub"] == ACCOUNT


def test_account_of_a_person_is_refused(
    key: dict[str, Any], google: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = {"type": "authorized_user", "client_id": "c", "client_secret": "x", "refresh_token": "r"}
    path = tmp_path / "person.json"
    path.write_text(json.dumps(person | {"token_uri": google.url}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(InputError, match="no service account: this host's Google credentials are a person's"):
        parts(built())


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"sasl_gcp_key": "/no/key.json"}, r"/no/key.json.*can't be read: No such file.*target, host.*key\.base64"),
        ({"sasl_gcp_key_base64": "eyJhIjogInMzY3IzdCJ9"}, "is no key of a service account"),
        ({"sasl_gcp_key_base64": "s3cr3t!"}, "is no key of a service account .target.*JSON that Google made"),
    ],
)
def test_key_that_is_none_is_refused_before_a_connection(more: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        built(**more)
    assert "s3cr3t" not in str(caught.value)


def test_refusal_by_google_and_a_google_that_is_not_there(key: dict[str, Any], google: Server) -> None:
    google.answers[:] = [(400, json.dumps({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}))]
    with pytest.raises(AuthenticationFailed, match="target cluster: Google gives no token.*Invalid JWT Signature.*clock"):
        parts(built(**{"sasl_gcp_key_base64": encoded(key)}))
    elsewhere = encoded(key | {"token_uri": "http://127.0.0.1:1"})
    with pytest.raises(ClusterUnreachable, match="Google gave no token"):
        parts(built(**{"sasl_gcp_key_base64": elsewhere}))


def test_google_that_is_busy_is_asked_again(key: dict[str, Any], google: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("google.oauth2._client._exponential_backoff.ExponentialBackoff", lambda: range(2))  # no pauses
    google.answers[:] = [(503, "{}")]
    with pytest.raises(ClusterUnreachable, match="Google gave no token"):
        parts(built(**{"sasl_gcp_key_base64": encoded(key)}))
    assert len(google.asked) > 1


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (("no metadata server",), ClusterUnreachable),
        (("bad gateway", SimpleNamespace(status=502)), ClusterUnreachable),
        (("no service account", SimpleNamespace(status=404)), InputError),
    ],
)
def test_metadata_server_that_is_not_there_is_asked_again_and_one_that_refuses_is_not(
    key: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: tuple[Any, ...], error: type[MirrorError]
) -> None:
    def away(*_: object, **__: object) -> None:
        raise TransportError(*said)

    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nowhere")
    monkeypatch.setattr("google.auth.compute_engine._metadata.is_on_gce", lambda request: True)
    monkeypatch.setattr("google.auth.compute_engine._metadata.get", away)
    with pytest.raises(error, match=said[0]):
        parts(built())


def test_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens._forget()
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(InputError, match=r"google-auth.*pip install 'airflow-mirror\[gcp\]'"):
        built()


def test_handler_of_googles_java_library_is_the_same_login() -> None:
    java = {
        "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    }
    given = {"bootstrap.servers": "b:1", "sasl.mechanism": "OAUTHBEARER"}
    assert ClientConfig(given | java).properties == given | {"sasl.oauthbearer.method": "gcp"}
