"""The report: a round trip, a golden file, and what a crash may find on disk."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.chart import Chart, Fold, Mark
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import html
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, GroupRecord, StepRecord
from airflow_mirror.cutover.timeline import fence_charts
from airflow_mirror.errors import InputError

GOLDEN = Path(__file__).parents[2] / "golden" / "cutover_report.json"


A_DIFFERENCE = {
    "source_topic": "orders", "target_topic": "orders", "partition": 0, "start_offset": 0, "end_offset": 9, "records": 9,
    "equal": True, "first_difference": {"kind": "value", "offset": 7}, "bytes": 700,
}  # fmt: skip


READERS = [
    {
        "group": "billing", "kind": "consumer", "state": "Stable", "clients": ["b-1 at 10.0.0.7"], "topics": ["orders"],
        "on_target": "",
    },
    {"group": "late", "kind": "consumer", "state": "Empty", "clients": [], "topics": ["orders", "pay"], "on_target": ""},
]  # fmt: skip
WRITERS = [
    {"name": "tx", "transactional": True, "topics": ["pay"], "last_ms": 1, "since_opening": False, "on_target": ""}
]
CLIENTS = {
    "before": {
        "at_ms": 1_789_999_990_000, "readers": READERS, "writers": WRITERS, "unseen": [], "waiting": [],
        "untold": "no broker lists",
    },
    "since": {
        "at_ms": 1_790_000_020_000, "newcomers": 2, "unseen": ["quotas: no"],
        "waiting": ["group 'late' has not come to the target"],
        "readers": [
            {**READERS[0], "on_target": "is a member", "state": "Empty"}, {**READERS[1], "on_target": "not yet"},
        ],
        "writers": [{**WRITERS[0], "since_opening": True, "on_target": "has written"}], "untold": "no broker lists",
    },
}  # fmt: skip


def a_report() -> CutoverReport:
    return CutoverReport(
        mirror="flow",
        plan_hash="ab12",
        attempt=2,
        process={"host": "worker-3", "where": "worker-3/4026531836", "pid": 7, "started": 99, "job": "c0ffee"},
        outcome="cut_over",
        state="CUT_OVER",
        max_fence_s=60.0,
        approved={"answer": "Approve", "by": "ann", "at": "2026-09-21T13:20:00+00:00"},
        versions={"airflow-mirror": "0.1.0", "source brokers": "3.8 or later"},
        lags=[{"at": 1_790_000_001.5, "lag": 40, "partitions": 1}, {"at": 1_790_000_002.5, "lag": 0, "partitions": 0}],
        started=1_790_000_000.5,
        updated=1_790_000_009.25,
        fence=FenceRecord(
            kind="acl", name="acl", intent={"topics": ["orders"]}, requested=1_790_000_001.0,
            opened=1_790_000_008.5, kept=True, proof={"by": "answers", "why": ""}, proven=1_790_000_002.5,
            unseen="",
        ),
        preview={
            "mirror": "flow", "plan": "ab12", "revision": "ab12", "at": 1_790_000_000.75,
            "findings": [
                {"level": "warn", "check": "disk", "object": "broker 1", "evidence": "2 GB free", "remedy": "Look."}
            ],
            "predicted": {"seconds": 8.2, "steps": {"fence": 0.125, "drain": None}},
        },
        steps=[
            StepRecord(name="fence", status="done", started=1_790_000_001.0, seconds=0.25, evidence={"fence": ["..."]})
        ],
        ends=[{"topic": "orders", "partition": 0, "end": 812}],
        groups=[
            GroupRecord(
                group="billing <script>",
                settled="at the end",
                source_state="Stable",
                positions=[
                    {
                        "topic": "orders", "partition": 0, "source_offset": 812, "target_topic": "orders",
                        "target_offset": 812, "lag": 0, "note": "", "action": "commit",
                    }
                ],
                before=[{"topic": "orders", "partition": 0, "offset": 3, "metadata": "m"}],
                committed=True,
            )
        ],
        clients=json.loads(json.dumps(CLIENTS)),
        left_behind=["console-consumer-7"],
        left_out={"broken <b>": "it has no position on the target"},
        schemas=[
            {"topic": "orders", "part": "value", "id": 7, "subjects": ["orders-value version 2"], "verdict": "same"}
        ],
        lease={"transactional_id": "airflow-mirror.flow", "producer_id": 7001, "epoch": 5, "wait_s": 7.0},
        undone=[],
        seal={
            "links": [{"v": 1, "mirror": "flow", "run": "monday", "number": 3, "report": "d1" * 32, "before": "e2" * 32}],
            "signature": "c2lnbmVk", "key": "f3" * 32,
        },
        earlier=[{"attempt": 1, "started": 1_789_999_000.0, "outcome": "backed_out", "seconds": {}, "error": None}],
    )  # fmt: skip


def test_golden_file() -> None:
    """Another release must be able to read this, or the version must change. Re-make it by hand, and say why."""
    assert json.loads(GOLDEN.read_text()) == json.loads(json.dumps(a_report().to_dict()))


def test_round_trip(tmp_path: Path) -> None:
    report = a_report()
    report.save(tmp_path)
    loaded = CutoverReport.load(tmp_path)
    assert loaded == report
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def text_of(report: CutoverReport) -> str:
    return json.dumps(report.to_dict(), separators=(",", ":"), sort_keys=True)


def test_what_is_said_of_a_group_later_is_in_its_next_text() -> None:
    """Its rows are made once; the rest of it is not."""
    report = a_report()
    assert report.to_json() == text_of(report)
    report.groups[0].committed, report.groups[0].restored, report.state = False, True, "FENCED"
    report.groups.append(GroupRecord(group="late", settled="empty", source_state="Dead"))
    assert report.to_json() == text_of(report)
    assert [group.restored for group in CutoverReport.from_json(report.to_json(), "here").groups] == [True, False]


@pytest.mark.parametrize(
    ("opened", "lifted", "expected"), [(None, None, None), (12.0, None, 2.0), (12.0, 15.0, 2.0), (None, 11.0, 1.0)]
)
def test_fence_is_as_long_as_nobody_could_write_anywhere(
    opened: float | None, lifted: float | None, expected: float | None
) -> None:
    assert FenceRecord(kind="acl", intent={}, requested=10.0, opened=opened, lifted=lifted).seconds == expected


def test_no_report_is_none_and_a_broken_one_an_error(tmp_path: Path) -> None:
    assert CutoverReport.load(tmp_path) is None
    (tmp_path / "report.json").write_text('{"version": 1, "mirror": "flow"')
    with pytest.raises(InputError, match="what a fence changed"):
        CutoverReport.load(tmp_path)
    (tmp_path / "report.json").write_text('{"version": 3}')
    with pytest.raises(InputError, match="version 3"):
        CutoverReport.load(tmp_path)


def test_failed_write_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = a_report()
    report.save(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    report.state = "FENCED"
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        report.save(tmp_path)
    loaded = CutoverReport.load(tmp_path)
    assert loaded is not None and loaded.state == "CUT_OVER"


HOSTILE = "<script>alert(1)</script>\"' onload='x'&{{ 123 * 1001 }}"


class Markup(HTMLParser):
    """The elements of a page, and the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements, self.attributes = set[str](), set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}


def hostile(value: Any) -> Any:
    """Return a report's values with a hostile text in place of each text."""
    if isinstance(value, dict):
        return {key: hostile(found) for key, found in value.items()}
    if isinstance(value, list):
        return [hostile(found) for found in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


def test_page_shows_what_matters_of_a_finished_cutover() -> None:
    page = html.render(a_report())
    shown = [
        "7.5 s",
        "at most 60 s",
        "kept",
        "ab12",
        "Approve by ann",
        "airflow-mirror 0.1.0",
        "console-consumer-7",
        "broken &lt;b&gt;</b>, by name: it has no position on the target",
        "predicted 8.2 s",
        "link 3",
        "<td>orders-value version 2</td>",
    ]
    assert [text for text in shown if text not in page] == []
    assert "<td>2 GB free</td><td>Look.</td>" in page
    assert '<td class="n">0.12</td><td class="n">0.25</td>' in page, "predicted and measured, side by side"


def test_no_text_of_a_report_becomes_markup_or_code() -> None:
    """Topics, groups, principals, hosts, errors: each text of a report is written by somebody else."""
    values = hostile(a_report().to_dict())
    values.update(version=1, verification=[{**hostile(A_DIFFERENCE), "equal": False}])
    values["fence"]["kind"], values["error"] = "acl", HOSTILE
    values["undone"] = [{"step": HOSTILE, "what": HOSTILE, "ok": ok, "error": HOSTILE} for ok in (True, False)]
    page = html.render(CutoverReport.from_dict(values))
    assert page.count("&lt;script&gt;") > 20 and "123123" not in page
    drawn = Markup(page)
    assert "script" not in drawn.elements and "onload" not in drawn.attributes


def test_page_asks_nobody_for_anything() -> None:
    page = html.render(a_report())
    assert not re.search(r"https?://|src=|href=|url\(|@import|<script|<link", page)
    assert "default-src 'none'" in page


def test_page_of_every_outcome_renders() -> None:
    report = a_report()
    for outcome in ("running", "backed_out", "undo_failed"):
        report.outcome, report.fence = outcome, None
        page = html.render(report)
        assert "Cutover of flow" in page and ("refresh" in page) == (outcome == "running")


def cells(page: str, head: str) -> list[list[str]]:
    table = page[page.index(head) :]
    rows = re.findall(r"<tr><td.*?</tr>", table[: table.index("</table>")], re.S)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall("<td.*?</td>", row)] for row in rows]


def test_page_says_who_was_there_before_and_who_has_come() -> None:
    report = a_report()
    before = report.clients["before"]
    before["readers"][0] |= {"wave": 2, "commit_ms": 1_789_999_980_000, "commit_is": "at"}
    before["writers"][0] |= {"producer_id": 4011, "waves": [1, 2]}
    page = html.render(report)
    assert "Clients: 3 before the fence" in page and "1 waited for" in page and "2 producer(s) without" in page
    assert cells(page, "<th>Client</th>") == [
        ["1, 2", "tx", "writes", "producer id 4011", "1970-01-01 00:00:00 UTC", "pay", "has written to the source"],
        ["", "late", "reads", "Empty: no member", "", "orders, pay", "not yet"],
        ["2", "billing", "reads", "Stable: b-1 at 10.0.0.7", "2026-09-21 14:13:00 UTC", "orders", "is a member"],
    ]
    assert cells(page, "<th>Read by</th>") == [["pay", "late", "tx", "2"], ["orders", "late, billing", "", "1"]]
    report.clients["since"]["readers"][0]["state"] = "Stable"
    assert cells(html.render(report), "<th>Client</th>")[1][6] == "still has members on the source"
    before["readers"][0]["commit_is"] = "before"
    report.clients = {"before": before}
    page = html.render(report)
    assert "<td>before 2026-09-21 14:13:00 UTC</td>" in page
    assert {row[6] for row in cells(page, "<th>Client</th>")} == {""} and "waited for" not in page
    report.clients = {"before": CLIENTS["before"]}
    assert cells(html.render(report), "<th>Client</th>")[0][0] == "", "an older release knew no waves"
    report.clients = {}
    assert "Clients:" not in html.render(report), "an older release has not looked"


def test_page_shows_first_what_blocks_and_what_to_look_at() -> None:
    report = a_report()
    assert report.preview is not None
    report.preview["findings"] = [
        {"level": level, "check": f"check-{level}", "object": "", "evidence": "", "remedy": ""}
        for level in ("pass", "warn", "block")
    ]
    page = html.render(report)
    assert re.findall(r"check-(\w+)", page) == ["block", "warn", "pass"] and "3, of which 2 to look at" in page


def test_page_of_ten_thousand_partitions_shows_what_differs_and_counts_the_rest() -> None:
    report = a_report()
    report.ends = [{"topic": f"topic-{n // 10:04d}", "partition": n % 10, "end": n} for n in range(10_000)]
    rows = [{**A_DIFFERENCE, "source_topic": r["topic"], "partition": r["partition"], "equal": True} for r in report.ends]
    rows[4321] = {**rows[4321], "equal": False}
    report.verification = rows
    position = report.groups[0].positions[0]
    report.groups = [
        GroupRecord(group=f"group-{n}", settled="empty", source_state="Empty", committed=True, positions=[position] * 30)
        for n in range(1000)
    ]  # fmt: skip
    report.drained = asdict(Fold.of((f"topic-{n // 10:04d}-{n % 10}", n / 1000) for n in range(10_000)))
    report.lags = [{"at": 1_790_000_001.0 + n / 1000, "lag": 10_000 - n, "copied": n} for n in range(7000)]
    page = html.render(report)
    assert len(page) < 400_000
    assert "topic-0432-1" in page and "topic-0432-2" not in page and "1 topic(s) differ" in page
    assert "Drained last: the first 12 of 10,000 partitions" in page and "Drained last: all of them" in page
    assert page.count("<svg") == 7 and "up to 10 s" in page and ">9.999 s<" in page
    assert "and 500 more: report.json has all of them" in page and "10,000" in page


def drawn(**changes: Any) -> list[Chart]:
    report = a_report()
    report.steps = [
        StepRecord(name="fence", status="done", started=1_790_000_001.0, seconds=0.5),
        StepRecord(name="drain", status="running", started=1_790_000_003.0),
        StepRecord(name="verify_again", status="done", started=1_790_086_400.0, seconds=3.0),
    ]
    for name, value in changes.items():
        setattr(report, name, value)
    return fence_charts(report)


def of(chart: Chart, tag: str, kind: str = "") -> list[Mark]:
    return [mark for mark in chart.marks if mark.tag == tag and kind in str(mark.at.get("class", ""))]


def texts(chart: Chart) -> list[str]:
    return [mark.text for mark in of(chart, "text")]


def test_time_line_lies_between_fence_and_opening() -> None:
    chart = drawn()[0]
    assert "verify_again" not in texts(chart), "a comparison on the next day is none of it"
    (shade,), (fence, drain) = of(chart, "rect", "shade"), of(chart, "rect", "bar")
    assert fence.at["x"] == shade.at["x"] == 130.0
    assert drain.at["x"] > fence.at["x"] + fence.at["width"] and "5.50 s, running" in texts(chart)
    assert drain.at["x"] + drain.at["width"] == pytest.approx(130.0 + shade.at["width"], abs=0.1)
    assert [text for text in texts(chart) if re.fullmatch(r"\d s", text)] == [f"{n} s" for n in range(8)]
    assert of(chart, "line", "limit") == []
    (limit,) = of(drawn(max_fence_s=7.6)[0], "line", "limit")
    assert limit.at["x1"] > 130.0 + shade.at["width"]


def test_time_line_of_a_killed_run_ends_with_what_was_last_heard() -> None:
    fence = FenceRecord(kind="acl", intent={"topics": []}, requested=1_790_000_001.0)
    steps = [StepRecord(name="fence", status="running", started=1_790_000_001.0)]
    assert "4.00 s, running" in texts(drawn(fence=fence, updated=1_790_000_005.0, steps=steps)[0])
    assert drawn(steps=[]) == []


def seen(*lags: int, copied: tuple[int, ...] = (), since: float = 1_790_000_001.0) -> list[dict[str, Any]]:
    rows = [{"at": since + n, "lag": lag, "partitions": 1} for n, lag in enumerate(lags)]
    return [row | {"copied": its} for row, its in zip(rows, copied, strict=True)] if copied else rows


def test_lag_is_drawn_as_it_was_seen_and_its_end_is_kept() -> None:
    lag = drawn(lags=seen(40, 10, 0))[1]
    assert lag.title == "Lag in offsets around the fence" and lag.text == "at most 40, at last 0, seen 3 times"
    (line,) = of(lag, "polyline")
    heights = [float(point.split(",")[1]) for point in line.at["points"].split()]
    assert heights == sorted(heights) and len(heights) == 5, "steps: between two looks nobody knows better"
    assert len(drawn(lags=[])) == 1


def test_rate_is_what_was_copied_between_two_looks() -> None:
    """An older release has noted no positions: it has the lag alone."""
    lag, rate = drawn(lags=seen(40, 10, 0, copied=(100, 130, 140)))[1:]
    assert rate.text == "at most 30/s, 20/s on average" and "30/s" in texts(rate)
    assert of(rate, "line", "grid")[0].at == of(lag, "line", "grid")[0].at, "above the same axis"
    assert len(drawn(lags=seen(40, 10, 0))) == 2


def test_average_rate_counts_each_look_by_its_time() -> None:
    """Twenty seconds before the fence at 5 per second, and one at 1,000."""
    rows = [{"at": 1_790_000_001.0 + at, "lag": 1, "copied": copied} for at, copied in ((-19, 0), (1, 100), (2, 1_100))]
    assert drawn(lags=rows)[-1].text == "at most 1,000/s, 52/s on average"


def test_what_was_seen_before_the_fence_begins_the_picture_of_it() -> None:
    before = drawn(lags=seen(7, 7, 0, since=1_789_999_991.0))
    assert "-10 s" in texts(before[0]) or "-5 s" in texts(before[0])
    assert of(before[0], "rect", "shade")[0].at["x"] > 400.0
    assert "-5 s" not in texts(drawn(lags=seen(7, 7, 0, since=1_789_990_000.0))[0]), "hours before are none of it"


def test_page_shows_how_the_mirror_caught_up() -> None:
    report = a_report()
    assert "caught up" not in html.render(report)
    report.course = [{"at": 1_789_900_000.0 + 600 * n, "lag": 900 - 100 * n, "copied": 9_000 * n} for n in range(10)]
    page = html.render(report)
    assert "Lag in offsets while the mirror caught up" in page and "at most 15/s, 15/s on average" in page
    assert ">10 min<" in page or ">30 min<" in page or ">20 min<" in page


def test_lag_is_noted_once_a_second_and_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    report, now = CutoverReport(mirror="m", plan_hash="p"), [100.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    for behind in ({"a": 5, "b": 1}, {"a": 5}, {"a": 4}, {}):
        report.saw_lag(behind, {TopicPartition("a", 0): 3, TopicPartition("b", 0): 4})
        now[0] += 0.3
    assert [(row["lag"], row["partitions"], row["copied"]) for row in report.lags] == [(6, 2, 7), (0, 0, 7)]
