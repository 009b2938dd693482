"""``airflow-mirror failover``: which words it takes, and what it prints."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import failover
from airflow_mirror.console.main import main
from tests.driven.ledger import LedgerCluster


@pytest.fixture
def asked(away: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def answer(what: str) -> Any:
        def found(*given: Any, **how: Any) -> Any:
            calls.append((what, given[-1], how))
            return SimpleNamespace(to_dict=lambda: {"what": what}, lines=lambda: [f"{what} it"])

        return found

    for name in ("check", "run"):
        monkeypatch.setattr(failover, name, answer(name))
    monkeypatch.setattr(failover, "after", lambda *given: calls.append(("after", given[-1], {})) or [])
    return calls


def run(*words: str) -> int:
    return main(["failover", "--target", "dst", "m", *words])


def test_each_word_asks_for_its_part_alone(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert [run(), run("--yes"), run("--yes", "--force"), run("--after", "--source", "src")] == [0, 0, 0, 0]
    assert asked == [
        ("check", "m", {}),
        ("run", "m", {"force": False}),
        ("run", "m", {"force": True}),
        ("after", "m", {}),
    ]
    assert capsys.readouterr().out.splitlines() == [
        "check it", "nothing was changed (--yes does it)", "run it", "run it",
        "the source took nothing after the last copied offset",
    ]  # fmt: skip


def test_json_is_all_that_is_printed(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--yes") == 0
    assert json.loads(capsys.readouterr().out) == {"what": "run"}


@pytest.mark.parametrize("words", [("--after",), ("--source", "src"), ("--yes", "--source", "src"), ("--force",)])
def test_a_source_is_asked_only_for_what_it_took(asked: list[Any], words: Any) -> None:
    assert run(*words) == 2 and asked == []


def test_a_refusal_is_told_and_changes_nothing(dst: LedgerCluster, capsys: pytest.CaptureFixture[str]) -> None:
    found = dict(dst.ledger.values())
    assert run("--yes") == 2
    assert "the target knows no mirror 'm'; it knows none. Nothing was changed" in (said := capsys.readouterr()).err
    assert not said.out
    assert dst.ledger.values() == found and not dst.asked("InitProducerId")
