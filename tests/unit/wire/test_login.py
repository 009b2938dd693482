"""SASL logins: what is sent, in which frame, and what a refusal says. Real ones: integration/test_wire_security.py."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.login import log_in
from airflow_mirror.wire.settings import WireSettings

HANDSHAKE, AUTHENTICATE = 17, 36
PASSWORD = "s3cr3t-value"
Answer = Callable[[bytes], bytes]


class Broker:
    """One listener's side of a login.

    :param authenticate: newest version of SaslAuthenticate; None for brokers before 1.0, which take bare tokens.
    :param refusal: error code and message of SaslAuthenticate.
    """

    host, address, timeout_s = "b1", "b1:9092", 30.0

    def __init__(
        self,
        answer: Answer,
        authenticate: int | None = 2,
        handshake: int = 0,
        refusal: tuple[int, str | None] = (0, None),
    ) -> None:
        self.answer, self.authenticate, self.handshake, self.refusal = answer, authenticate, handshake, refusal
        self.versions: list[tuple[int, int]] = []
        self.tokens: list[bytes] = []

    def serves(self, api_key: int, version: int) -> bool:
        return api_key == AUTHENTICATE and self.authenticate is not None

    def newest(self, api_key: int, lowest: int, highest: int) -> int:
        assert self.authenticate is not None
        return min(self.authenticate, highest)

    def request(self, message: Any, version: int) -> Any:
        self.versions.append((message.API_KEY, version))
        if message.API_KEY == HANDSHAKE:
            return SaslHandshakeResponse(version=version, error_code=self.handshake, mechanisms=["PLAIN", "GSSAPI"])
        self.tokens.append(message.auth_bytes)
        error, text = self.refusal
        token = b"" if error else self.answer(message.auth_bytes)
        return SaslAuthenticateResponse(
            version=version, error_code=error, error_message=text, auth_bytes=token, session_lifetime_ms=90_000
        )

    def exchange_token(self, token: bytes, *, last: bool = False) -> bytes:
        self.tokens.append(token)
        return b"" if last else self.answer(token)


class Scram:
    """A broker's side of SCRAM-SHA-256 (RFC 5802) for one password; ``honest``: it signs with what the user has."""

    def __init__(self, honest: bool = True) -> None:
        self.honest, self.first = honest, ""

    def __call__(self, token: bytes) -> bytes:
        text = token.decode()
        if not self.first:
            self.first = text.removeprefix("n,,")
            self.challenge = f"r={self.first.rpartition('r=')[2]}more,s={base64.b64encode(b'salt').decode()},i=4096"
            return self.challenge.encode()
        salted = hashlib.pbkdf2_hmac("sha256", (PASSWORD if self.honest else "guess").encode(), b"salt", 4096)
        key = hmac.digest(salted, b"Server Key", "sha256")
        said = f"{self.first},{self.challenge},{text.rpartition(',p=')[0]}"
        return b"v=" + base64.b64encode(hmac.digest(key, said.encode(), "sha256"))


def settings(mechanism: str = "PLAIN", user: str = "alice") -> WireSettings:
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORD}
    config = {"bootstrap.servers": "b1:9092", "security.protocol": "SASL_PLAINTEXT"} | login
    return WireSettings.from_config(ClientConfig(config, "target"))


def test_user_and_password_go_in_one_framed_token() -> None:
    broker = Broker(lambda _: b"")
    assert log_in(broker, settings()) == 90_000
    assert broker.versions == [(HANDSHAKE, 1), (AUTHENTICATE, 2)]
    assert broker.tokens == [b"\0".join([b"alice", b"alice", PASSWORD.encode()])]


def test_brokers_before_kip_368_tell_no_lifetime() -> None:
    broker = Broker(lambda _: b"", authenticate=0)
    assert log_in(broker, settings()) == 0
    assert broker.versions == [(HANDSHAKE, 1), (AUTHENTICATE, 0)]


def test_brokers_before_kip_152_get_bare_tokens() -> None:
    broker = Broker(Scram(), authenticate=None)
    assert log_in(broker, settings("SCRAM-SHA-256")) == 0
    assert broker.versions == [(HANDSHAKE, 0)] and len(broker.tokens) == 2


def test_scram_sends_a_proof_and_never_the_password() -> None:
    broker = Broker(Scram())
    log_in(broker, settings("SCRAM-SHA-256", user="a=b,c"))
    assert len(broker.tokens) == 2 and not any(PASSWORD.encode() in token for token in broker.tokens)
    assert broker.tokens[0].startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize("authenticate", [2, None])
def test_a_broker_without_the_password_is_not_believed(authenticate: int | None) -> None:
    """SCRAM proves both sides: without that, whoever answers at the address could take the records."""
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256: ") as failed:
        log_in(Broker(Scram(honest=False), authenticate), settings("SCRAM-SHA-256"))
    assert PASSWORD not in str(failed.value)


@pytest.mark.parametrize(
    ("broker", "cause"),
    [
        (
            Broker(lambda _: b"", handshake=ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            "it serves the SASL mechanisms PLAIN, GSSAPI, not SCRAM-SHA-512",
        ),
        (
            Broker(lambda _: b"", handshake=ErrorCode.ILLEGAL_SASL_STATE),
            "SaslHandshake answered ILLEGAL_SASL_STATE; this listener may want no login",
        ),
        (
            Broker(lambda _: b"", refusal=(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong credentials")),
            "SCRAM-SHA-512: wrong credentials",
        ),
        (
            Broker(lambda _: b"", refusal=(ErrorCode.SASL_AUTHENTICATION_FAILED, None)),
            "SCRAM-SHA-512: SASL_AUTHENTICATION_FAILED",
        ),
    ],
    ids=["mechanism", "no-sasl-here", "said-why", "said-nothing"],
)
def test_a_refusal_names_the_broker_and_the_cause(broker: Broker, cause: str) -> None:
    with pytest.raises(AuthenticationFailed, match=cause) as failed:
        log_in(broker, settings("SCRAM-SHA-512"))
    assert "b1:9092" in str(failed.value) and "target" in str(failed.value) and PASSWORD not in str(failed.value)
