"""``airflow-mirror drills``: what the target keeps of drills, as a list, a page and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.console import drills as command
from airflow_mirror.console.main import main
from airflow_mirror.drill import kept
from airflow_mirror.drill.kept import Drill, Drills
from tests.unit.ledger.memory import MemoryState

FIGURES = {
    "rpo_s": 1.5, "rto_s": 20.0, "lost": 1200, "reread": 3, "acknowledged": 9000, "skipped": 0, "first_read_s": 1.0,
    "first_write_s": 20.0,
}  # fmt: skip


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> MemoryState:
    one = MemoryState()

    @contextmanager
    def target_of(_: Any) -> Iterator[None]:
        yield None

    monkeypatch.setattr(command, "target_of", target_of)
    for module in (command, kept):
        monkeypatch.setattr(module, "state_of", lambda *_, **__: one)
    Drills(one, "dr-drill").save(Drill(run="monday", at_ms=1_790_000_000_000, figures=FIGURES, missed=["RPO"]))
    Drills(one, "dr-drill").save(Drill(run="sunday", at_ms=1_780_000_000_000, topics=["left"]))
    return one


@pytest.mark.usefixtures("state")
def test_drills_are_listed_the_newest_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drills", "--target", "dst"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-05-28 20:26 UTC: nothing measured: not judged; its topic left may still be there",
        "2026-09-21 14:13 UTC: RPO 1.50 s, RTO 20.00 s, 1,200 lost, 3 read again: RPO",
    ]
    assert main(["drills", "--target", "dst", "--json"]) == 0
    sunday, monday = json.loads(capsys.readouterr().out)
    assert (sunday["run"], monday["run"], monday["lost"]) == ("sunday", "monday", 1200) and "figures" not in monday


@pytest.mark.usefixtures("state")
def test_the_last_drill_is_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drills", "--target", "dst", "--html", str(tmp_path / "x.html")]) == 0
    assert main(["drills", "--target", "dst", "--html", "-"]) == 0
    page = (tmp_path / "x.html").read_text()
    assert capsys.readouterr().out.endswith(page) and "1,200 of 9,000 acknowledged records lost" in page


@pytest.mark.usefixtures("state")
def test_mirror_without_drills_is_told_which_have_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drills", "--target", "dst", "--mirror", "m"]) == 2
    assert "no drill of it. It knows drills of: dr-drill." in capsys.readouterr().err
