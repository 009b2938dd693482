"""The report: a round trip, a golden file, and what a crash may find on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mirror.cutover import html
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, GroupRecord, StepRecord
from airflow_mirror.errors import InputError

GOLDEN = Path(__file__).parents[2] / "golden" / "cutover_report.json"


def a_report() -> CutoverReport:
    deny = {
        "resource_type": "TOPIC",
        "name": "orders",
        "pattern_type": "LITERAL",
        "principal": "User:*",
        "host": "*",
        "operation": "WRITE",
        "permission": "DENY",
    }
    return CutoverReport(
        mirror="flow",
        plan_hash="ab12",
        attempt=2,
        process={"host": "worker-3", "where": "worker-3/4026531836", "pid": 7, "started": 99, "job": "c0ffee"},
        outcome="cut_over",
        state="CUT_OVER",
        started=1_790_000_000.5,
        updated=1_790_000_009.25,
        fence=FenceRecord(
            kind="acl", name="acl", intent={"deny": [deny], "allow": [], "held": []}, requested=1_790_000_001.0,
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
        left_behind=["console-consumer-7"],
        lease={"transactional_id": "airflow-mirror.flow", "producer_id": 7001, "epoch": 5, "wait_s": 7.0},
        undone=[],
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
    (tmp_path / "report.json").write_text('{"version": 2}')
    with pytest.raises(InputError, match="version 2"):
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


def test_page_shows_what_matters_and_escapes_names() -> None:
    page = html.render(a_report())
    assert "Nobody could write for</th><td>predicted 8.2 s, measured 7.5 s" in " ".join(page.split()) and "kept" in page
    assert '<td class="n">0.12</td> <td class="n">0.25</td>' in " ".join(page.split()), (
        "predicted and measured, side by side"
    )
    assert "<td>2 GB free</td><td>Look.</td>" in page
    assert "billing &lt;script&gt;" in page and "<script" not in page
    assert "http" not in page and "src=" not in page


def test_page_of_every_outcome_renders() -> None:
    report = a_report()
    for outcome in ("running", "backed_out", "undo_failed"):
        report.outcome, report.fence = outcome, None
        assert "Cutover of flow" in html.render(report)
