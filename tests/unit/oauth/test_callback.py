"""Tokens by a function that a connection names."""

from __future__ import annotations

import time
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InvalidField, TryAgain
from airflow_mirror.wire.login import _mechanism
from airflow_mirror.wire.settings import WireSettings

ANSWERS: dict[str, Any] = {}


def token(config: str) -> Any:
    """What a connection may name."""
    answer = ANSWERS[config]
    if isinstance(answer, Exception):
        raise answer
    return answer


def sent(config: str, name: str = f"{__name__}.token") -> bytes:
    given = {
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": name,
        "sasl.oauthbearer.config": config,
    }  # fmt: skip
    settings = WireSettings.from_config(ClientConfig(given, "source"))
    return bytes(_mechanism(settings, "b1").auth_bytes())


def test_function_gives_token_end_and_extensions() -> None:
    ANSWERS.update(two=("t2", time.time() + 60), four=("t4", time.time() + 60, "me", {"a": "b"}))
    assert sent("two") == b"n,,\x01auth=Bearer t2\x01\x01"
    assert sent("four") == b"n,,\x01auth=Bearer t4\x01a=b\x01\x01"


def test_function_that_fails_is_named_and_asked_again() -> None:
    ANSWERS["fails"] = ConnectionError("vault is sealed")
    with pytest.raises(TryAgain, match="source cluster: oauth_cb=.*token failed: ConnectionError: vault is sealed"):
        sent("fails")
    ANSWERS["fails"] = ("now", time.time() + 60)
    assert b"now" in sent("fails")


def test_function_that_returns_something_else_is_refused_without_it() -> None:
    ANSWERS["odd"] = {"access_token": "s3cr3t"}
    with pytest.raises(InvalidField, match="oauth_cb=.*returned something else .source.*end in seconds") as caught:
        sent("odd")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("name", ["no.such.module.token", f"{__name__}.ANSWERS"])
def test_function_that_is_not_there_is_refused_before_a_connection(name: str) -> None:
    with pytest.raises(InvalidField, match=f"oauth_cb='{name}'.*source cluster.*on executors"):
        sent("two", name)
