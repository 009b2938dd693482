"""Hadoop's token files: written for spark-submit, read in a container."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common import tokens
from airflow_mirror.config import load
from airflow_mirror.errors import InputError

# As a NodeManager writes it: first a token of Hadoop's own, whose parts are binary, then our secret.
OF_A_CONTAINER = (
    b"HDTS\x00\x01" + b"\x00" + b"\x03\xff\x00\x80" + b"\x8f\xc8" + b"\xfe" * 200 + b"\x10YARN_AM_RM_TOKEN" + b"\x00"
    b"\x02" + b"\x04mine" + b'\x1c{"bootstrap.servers": "x:1"}' + b"\x05other" + b"\x02\xff\xfe"
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=300), st.text(max_size=70_000), max_size=4))
def test_secrets_of_any_length_come_back_as_they_were(secrets: dict[str, str]) -> None:
    assert tokens.decode(tokens.encode(secrets)) == secrets


@pytest.mark.parametrize(
    ("length", "encoded"), [(0, "00"), (127, "7f"), (128, "8f80"), (255, "8fff"), (256, "8e0100"), (70_000, "8d011170")]
)
def test_lengths_are_written_as_hadoop_writes_them(length: int, encoded: str) -> None:
    """WritableUtils.writeVInt: up to 127 in one byte, else minus the number of bytes, from -113 down."""
    assert tokens._number(length).hex() == encoded


def test_tokens_of_a_container_and_foreign_secrets_are_passed_over() -> None:
    assert tokens.decode(OF_A_CONTAINER) == {"mine": '{"bootstrap.servers": "x:1"}'}


@pytest.mark.parametrize(
    "content", [b"", b"HDTS", b"HDTS\x01rest", b"PK\x03\x04", OF_A_CONTAINER[:40], OF_A_CONTAINER[:-1], b"HDTS\x00\x81"]
)
def test_what_is_no_whole_token_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        tokens.decode(content)


def test_settings_are_read_from_the_containers_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "container_tokens"
    file.write_bytes(OF_A_CONTAINER)
    monkeypatch.setenv(tokens.FILE_VARIABLE, str(file))
    assert load("hadoop:mine", "source").bootstrap == "x:1"
    with pytest.raises(InputError, match="source settings: .* hold no secret 'yours'"):
        load("hadoop:yours", "source")


@pytest.mark.parametrize("content", [b"hunter2", tokens.encode({"mine": "hunter2"}), tokens.encode({"mine": "[1]"})])
def test_malformed_credentials_are_refused_without_their_values(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "container_tokens"
    file.write_bytes(content)
    monkeypatch.setenv(tokens.FILE_VARIABLE, str(file))
    with pytest.raises(InputError) as caught:
        load("hadoop:mine", "target")
    assert "hunter2" not in str(caught.value) and "target settings" in str(caught.value)


def test_credentials_outside_of_a_container_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tokens.FILE_VARIABLE, raising=False)
    with pytest.raises(InputError, match="HADOOP_TOKEN_FILE_LOCATION is not set"):
        load("hadoop:mine")
    monkeypatch.setenv(tokens.FILE_VARIABLE, "/nowhere")
    with pytest.raises(InputError, match="can't be read: .*No such file"):
        load("hadoop:mine")


def test_a_secret_that_is_settings_survives_the_way_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"bootstrap.servers": "x:1", "ssl.key.pem": "-----BEGIN\nä" * 500}
    file = tmp_path / "tokens"
    file.write_bytes(tokens.encode({"a": json.dumps(settings)}))
    monkeypatch.setenv(tokens.FILE_VARIABLE, str(file))
    assert load("hadoop:a").properties == settings
