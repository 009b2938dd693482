"""What is kept of drills on the target: each run's own, in order, and not for ever."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_mirror.drill import kept, page
from airflow_mirror.drill.kept import Drill, Drills
from tests.unit.ledger.memory import MemoryState

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GROUPS = {
    "mirror": "m", "at_ms": 1_700_000_000_000, "count": 3, "unplaced": 1, "reread": 1234, "skipped": 0,
    "rows": [
        {"group": "<b>app</b>", "partitions": 2, "reread": 1234, "skipped": 0, "exact": False, "unplaced": ["t-0: why"]},
    ],
    "left_behind": {"count": 2, "first": ["others"]},
}  # fmt: skip


def test_each_task_of_a_run_adds_to_what_is_kept() -> None:
    state = MemoryState()
    Drills(state, "m").save(Drill(run="monday", at_ms=7, groups=GROUPS))
    drill = Drills(state, "m").of("monday")
    assert drill is not None and drill.missed is None
    drill.missed = ["RTO"]
    Drills(state, "m").save(drill)
    assert Drills(state, "m").all() == [Drill(run="monday", at_ms=7, groups=GROUPS, missed=["RTO"])]
    assert Drills(state, "m").of("tuesday") is None and Drills(state, "other").all() == []
    assert kept.mirrors_in(state) == ["m"]


def test_the_last_hundred_drills_of_a_mirror_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEEP", 3)
    drills = Drills(MemoryState(), "m")
    for at_ms in (40, 10, 30, 20, 50):
        drills.save(Drill(run=f"run-{at_ms}", at_ms=at_ms))
    assert [one.at_ms for one in drills.all()] == [30, 40, 50]
    drills.save(Drill(run="run-40", at_ms=40, missed=[]))
    assert [one.at_ms for one in drills.all()] == [30, 40, 50]


def test_the_page_has_the_groups_and_escapes_their_names(tmp_path: Path) -> None:
    drill = Drill(run="monday", at_ms=7, figures={}, groups=GROUPS)
    path = page.write(tmp_path / "run", drill)
    assert json.loads(path.read_text())["groups"] == GROUPS
    html = path.with_suffix(".html").read_text()
    assert "&lt;b&gt;app" in html and "1,234 offsets" in html and "t-0: why" in html and "and 2 more" in html
    assert "2 group(s) read these topics and are not selected, as others" in html
    assert "Nothing was measured." in html and "Not judged yet" in html and "<script" not in html
