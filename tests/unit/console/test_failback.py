"""``airflow-mirror failback``: which words it takes, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import failback
from airflow_mirror.console.main import main
from airflow_mirror.errors import ExportBroken


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    @contextmanager
    def cluster(name: Any) -> Iterator[str]:
        yield name if isinstance(name, str) else "dst"

    def prepare(*given: Any, export_to: Any, recreate: Any) -> Any:
        mirror, on = given
        calls.append((mirror, on.source.admin, on.target.admin, export_to, recreate))
        return SimpleNamespace(to_dict=lambda: {"gone": []}, lines=lambda: ["1 delta"])

    monkeypatch.setattr(failback, "target_of", cluster)
    monkeypatch.setattr(failback, "config_of", lambda name, _: name)
    monkeypatch.setattr(failback, "ClusterAdmin", cluster)
    monkeypatch.setattr(failback, "failback", prepare)
    return calls


def run(*words: str) -> int:
    return main(["failback", "--target", "dst", "--source", "src", "m", *words])


def test_each_topic_to_delete_is_named(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert [run(), run("--export", "there", "--recreate", "a", "--recreate", "b", "--json")] == [0, 0]
    assert asked == [("m", "src", "dst", None, []), ("m", "src", "dst", Path("there"), ["a", "b"])]
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == "1 delta" and json.loads(rest) == {"gone": []}


def test_export_that_can_not_be_relied_on_is_told(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ExportBroken("a", "/there/a.1", "no finished export is there")

    monkeypatch.setattr(failback, "failback", broken)
    assert run() == 1 and "Nothing was deleted" in capsys.readouterr().err
