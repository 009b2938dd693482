"""``airflow-mirror report``: what the target knows of a cutover, as a list, a page and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, StepRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.ledger.state import State
from tests.driven.ledger import LedgerCluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(dst: LedgerCluster) -> State:
    return dst.state


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*options: str, mirror: str = "m") -> tuple[int, str, str]:
        status = main(["report", "--target", "dst", "--mirror", mirror, *options])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def cut_over(state: State, name: str, error: str = "", **fence: float) -> None:
    report = CutoverReport(mirror="m", plan_hash="p", started=1_790_000_000.0, error=error)
    report.steps = [StepRecord(name="fence", status="running", started=1_790_000_000.0)]
    if fence:
        report.fence = FenceRecord(kind="acl", intent={"topics": []}, **fence)  # type: ignore[arg-type]
    ReportStore(state, "m", name, None).save(report)


def test_every_run_is_listed_the_last_one_last(state: State, run: Run) -> None:
    cut_over(state, "monday")
    cut_over(state, "tuesday", requested=10.0, lifted=12.5)
    cut_over(state, "monday", requested=10.0)
    status, printed, _ = run()
    assert status == 0 and printed.splitlines() == [
        "tuesday: running, attempt 1, begun 2026-09-21 14:13:20 UTC on unknown, fenced for 2.5 s",
        "monday: running, attempt 1, begun 2026-09-21 14:13:20 UTC on unknown, fenced",
    ]


def test_page_of_a_killed_run_is_made_on_a_host_without_its_files(state: State, run: Run, tmp_path: Path) -> None:
    cut_over(state, "monday", error="killed, they say")
    cut_over(state, "tuesday", error="another")
    page, text = tmp_path / "page.html", tmp_path / "report.json"
    assert run("--run", "monday", "--html", str(page), "--json", str(text))[0] == 0
    assert "killed, they say" in page.read_text() and json.loads(text.read_text())["error"] == "killed, they say"
    assert "another" in run("--html", "-")[1] and "another" in run("--json", "-")[1]


def test_json_is_what_was_written_to_the_letter(state: State, run: Run) -> None:
    """A newer release may have written more than this one knows, and a digest covers all of it."""
    text = '{"mirror": "m",  "version": 1, "plan_hash": "p", "rollback": {"at": 1.50}}'
    state.write({"report/m/monday/000001-x/0/1": text.encode()})
    assert run("--json", "-")[1] == f"{text}\n"


def test_what_is_not_there_is_named_with_what_is(state: State, run: Run) -> None:
    cut_over(state, "monday")
    status, _, error = run("--run", "friday", "--html", "-")
    assert status == 2 and "friday" in error and "there are: monday" in error
    status, _, error = run(mirror="other")
    assert status == 2 and "it has of: m\n" in error
