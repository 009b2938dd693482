"""``airflow-mirror arm-reverse``: which words it takes, and what it prints."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import arm_reverse
from airflow_mirror.console.main import main
from airflow_mirror.cutover.platform import Platform
from tests.driven.ledger import LedgerCluster


@pytest.fixture
def asked(away: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def arm(on: Platform, report_of: str, plan: Any, *, exclude_topics: Any, check_only: bool) -> Any:
        calls.append((report_of, on.source.admin.config.bootstrap, exclude_topics, check_only))
        return SimpleNamespace(to_dict=lambda: {"armed": True}, lines=lambda: ["armed"])

    plan = SimpleNamespace(mirror=SimpleNamespace(source="planned"))
    monkeypatch.setattr(arm_reverse, "cutover_of", lambda name, _: (f"report of {name}", plan))
    monkeypatch.setattr(arm_reverse, "arm", arm)
    return calls


def run(*words: str) -> int:
    return main(["arm-reverse", "--target", "dst", "m", *words])


def test_source_is_that_of_the_plan_unless_given(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert [run(), run("--yes", "--source", "src", "--exclude-topic", "a", "--json")] == [0, 0]
    assert asked == [("report of m", "planned:1", [], True), ("report of m", "src:1", ["a"], False)]
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == "armed" and json.loads(rest) == {"armed": True}


def test_no_way_back_is_said_with_its_reasons(dst: LedgerCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 1
    assert "no way back after opening" in (said := capsys.readouterr().err)
    assert "why: no cutover of it has opened the target" in said
