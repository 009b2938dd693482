"""``airflow-mirror fence-on-return``: which words it takes, and what it prints."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import fence_on_return
from airflow_mirror.console.main import main
from airflow_mirror.cutover.failover.returned import Returned
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.kafka.admin import ClusterAdmin
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault

FOUND = Returned(mirror="m", at="noon", offsets=3, took=["a-0: 3 offsets"], fence=["DENY WRITE"], fenced_s=1.2)


@pytest.fixture
def asked(away: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def watch(
        source: ClientConfig, target: ClusterAdmin, mirror: str, *, fence: str, open_by_default: Any, signer: Any
    ) -> Returned:
        clusters = source.bootstrap, target.config.bootstrap
        calls.append((*clusters, mirror, fence, open_by_default, *([type(signer)] if signer else [])))
        return FOUND

    monkeypatch.setattr(fence_on_return, "watch", watch)
    return calls


def run(*words: str) -> int:
    return main(["fence-on-return", "--target", "dst", "--source", "src", "m", *words])


def test_report_is_signed_with_the_key_that_is_named(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(key)
    assert run("--sign", str(tmp_path / "key.pem")) == 0
    assert asked == [("src:1", "dst:1", "m", "acl", None, Signer)]
    assert run("--sign", str(tmp_path / "none.pem")) == 2
    assert "none.pem" in capsys.readouterr().err and len(asked) == 1


def test_source_that_returned_is_told_with_what_it_took(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert [run(), run("--fence", "mine.fence", "--open-by-default", "false", "--json")] == [0, 0]
    assert asked == [("src:1", "dst:1", "m", "acl", None), ("src:1", "dst:1", "m", "mine.fence", False)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "the source of mirror 'm' has returned, and was fenced at noon, 1.2 s after its first answer", "a-0: 3 offsets",
    ]  # fmt: skip
    assert json.loads("\n".join(lines[2:]))["offsets"] == 3


def test_being_ended_and_being_wrong_are_told_apart(
    src: DrivenCluster, dst: LedgerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 2 and "mirror 'm'" in capsys.readouterr().err
    me = threading.main_thread().ident
    assert me is not None
    dst.script.on("Fetch", Fault(before=lambda _: signal.pthread_kill(me, signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run beside others ignore it
    try:
        assert run() == 130
    finally:
        signal.signal(signal.SIGINT, before)
