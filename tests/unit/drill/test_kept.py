"""What is kept of drills on the target: each run's own, in order, and not for ever."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.chart import Chart, Mark
from airflow_mirror.extras.drill import page, store
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.extras.drill.trend import charts
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


def test_drill_that_left_a_topic_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEEP", 2)
    drills = Drills(MemoryState(), "m")
    for day in range(1, 6):
        drills.save(Drill(run=str(day), at_ms=day, topics=["left"] if day == 1 else []))
    assert [one.run for one in drills.all()] == ["1", "4", "5"]


def test_the_last_hundred_drills_of_a_mirror_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEEP", 3)
    drills = Drills(MemoryState(), "m")
    for at_ms in (40, 10, 30, 20, 50):
        drills.save(Drill(run=f"run-{at_ms}", at_ms=at_ms))
    assert [one.at_ms for one in drills.all()] == [30, 40, 50]
    drills.save(Drill(run="run-40", at_ms=40, missed=[]))
    assert [one.at_ms for one in drills.all()] == [30, 40, 50]


def test_the_page_has_the_groups_and_escapes_their_names(tmp_path: Path) -> None:
    drill = Drill(run="monday", at_ms=7, figures={}, groups=GROUPS)
    path = page.write(tmp_path / "run", drill, [])
    assert json.loads(path.read_text())["groups"] == GROUPS
    html = path.with_suffix(".html").read_text()
    assert "&lt;b&gt;app" in html and "1,234 offsets" in html and "t-0: why" in html and "and 2 more" in html
    assert "2 group(s) read these topics and are not selected, as others" in html
    assert "Nothing was measured." in html and "Not judged yet" in html and "<script" not in html
    hidden = {**GROUPS, "count": 0, "rows": [], "hidden": ["some groups, perhaps: <none> may be seen"]}
    html = page.render(replace(drill, groups=hidden), [])
    assert "<li>some groups, perhaps: &lt;none&gt; may be seen</li>" in html


def a_drill(day: int, *, rto_s: float = 20.0, missed: list[str] | None = None, **more: Any) -> Drill:
    figures = {
        "rpo_s": 1.5, "rto_s": rto_s, "lost": day, "reread": 0, "acknowledged": 900, "skipped": 0, "first_read_s": 1.0,
        "first_write_s": rto_s,
    }  # fmt: skip
    wanted = {"rpo_s": 5.0, "rto_s": 30.0}
    values: dict[str, Any] = {"figures": figures, "wanted": wanted, "missed": missed or [], **more}
    return Drill(run=f"day-{day}", at_ms=day * 86_400_000, **values)


def test_the_page_has_a_row_and_a_point_for_each_drill() -> None:
    """The newest first; one that measured nothing is there as well, and the lines have a gap where it stands."""
    late = a_drill(3, rto_s=60.0, missed=["RTO 60.00 s, wanted at most 30 s"])
    drills = [a_drill(1), a_drill(2), late, a_drill(4, figures={}, missed=None, topics=["left"]), a_drill(5), a_drill(6)]
    drills[3].missed = None
    html = page.render(late, drills)
    rows = html[html.index("The last drills") :]
    table = rows[rows.index("<table") :]
    assert table.index("1970-01-07") < table.index("1970-01-02"), "the newest first"
    assert "nothing measured" in rows and "not judged; its topic left may still be there" in rows
    assert html.count("<svg") == 4 and html.count("<circle") == 4 * 5 and rows.count("×") == 4
    assert "<li>RTO 60.00 s, wanted at most 30 s</li>" in html and "wanted at most 30 g" not in html
    assert "RTO, wanted at most 30 s" in html and "prefers-color-scheme: dark" in html
    (rto,) = [chart for chart in charts(drills) if chart.title.startswith("RTO")]
    points = marks(rto, "circle")
    assert [point.at["class"] for point in points] == ["", "", "bad", "", ""] and points[2].text == "1970-01-04: 60 s"
    assert len(marks(rto, "polyline")) == 2 and "dashed: the objective" in rto.title
    assert [line.at["y1"] for line in marks(rto, "line") if line.at["class"] == "limit"] == [60.0]
    assert min(point.at["cy"] for point in points) == 10.0


def marks(chart: Chart, tag: str) -> list[Mark]:
    return [mark for mark in chart.marks if mark.tag == tag]


def test_drill_replaces_its_own_older_row_on_the_page() -> None:
    before = a_drill(1, missed=None, figures={})
    html = page.render(a_drill(1), [before])
    assert html.count("1970-01-02") == 2 and "nothing measured" not in html, "its head, and one row"
    assert "<svg" not in html, "one drill is no trend"


def test_charts_show_the_newest_thirty_readable_drills() -> None:
    unreadable = Drill(run="x", at_ms=0, missed=["a newer version"])
    found = charts([unreadable, *(a_drill(day) for day in range(1, 50))])[0]
    assert "1970-01-21" in [mark.text for mark in found.marks] and len(marks(found, "circle")) == 30
    assert "a newer version" in page.render(a_drill(1), [unreadable])
    few = charts([unreadable, a_drill(1), a_drill(2), a_drill(3, figures={}), a_drill(4)])[0]
    assert (len(marks(few, "circle")), len(marks(few, "polyline"))) == (3, 1), "a lone point has no line"
    flat = charts([a_drill(1, wanted={}), a_drill(2, wanted={})])[3]
    assert flat.title == "Read again (records)" and {point.at["cy"] for point in marks(flat, "circle")} == {110.0}
