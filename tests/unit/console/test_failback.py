"""``airflow-mirror failback``: which words it takes, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import failback
from airflow_mirror.console.main import main
from airflow_mirror.errors import ExportBroken


@pytest.fixture
def asked(away: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def prepare(*given: Any, export_to: Any, recreate: Any) -> Any:
        mirror, on = given
        calls.append((mirror, *(side.admin.config.bootstrap for side in (on.source, on.target)), export_to, recreate))
        return SimpleNamespace(to_dict=lambda: {"gone": []}, lines=lambda: ["1 delta"])

    monkeypatch.setattr(failback, "failback", prepare)
    return calls


def run(*words: str) -> int:
    return main(["failback", "--target", "dst", "--source", "src", "m", *words])


def test_each_topic_to_delete_is_named(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert [run(), run("--export", "there", "--recreate", "a", "--recreate", "b", "--json")] == [0, 0]
    assert asked == [("m", "src:1", "dst:1", None, []), ("m", "src:1", "dst:1", Path("there"), ["a", "b"])]
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == "1 delta" and json.loads(rest) == {"gone": []}


def test_export_that_can_not_be_relied_on_is_told(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ExportBroken("a", "/there/a.1", "no finished export is there")

    monkeypatch.setattr(failback, "failback", broken)
    assert run() == 1 and "Nothing was deleted" in capsys.readouterr().err
