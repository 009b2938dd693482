"""A walk whose target, ledger or disk is away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.steps import STEPS, walk
from airflow_mirror.errors import (
    OpenOutcomeUnknown,
    TryAgain,
    Undecided,
)
from tests.unit.cutover.builders import (
    Acls,
)
from tests.unit.cutover.running import Away
from tests.unit.cutover.walking import (
    AWAY,
    Recorder,
    a_run,
    away,
    next_process,
)


def test_target_that_is_away_does_not_keep_the_fence_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)
    away(monkeypatch, lambda report: bool(fence.calls))
    with pytest.raises(TryAgain, match="no broker answered"):
        walk(run, fence.steps())
    assert fence.calls == ["raise", "lift"] and not run.report.is_fenced


def test_original_error_is_raised_over_that_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Recorder(tmp_path, "drain")
    away(monkeypatch, lambda report: report.error is not None)
    with pytest.raises(RuntimeError, match="broken"):
        walk(a_run(tmp_path, fence), fence.steps())
    assert fence.calls[-1] == "lift"


def test_target_away_before_the_fence_means_no_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Recorder(tmp_path)
    away(monkeypatch, lambda _: True)
    with pytest.raises(TryAgain, match="no broker answered"):
        walk(a_run(tmp_path, fence), fence.steps())
    assert "raise" not in fence.calls


def test_full_disk_ends_no_cutover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on it is for people."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CutoverReport, "save", full)
    fence = Recorder(tmp_path)
    walk(a_run(tmp_path, fence), fence.steps())
    assert fence.on_record()["outcome"] == reports.DONE


@pytest.mark.parametrize("arrives", [True, False])
def test_end_that_could_not_be_recorded_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """That the target is open is decided; if the fence were lifted, both clusters would be open."""
    fence = Recorder(tmp_path)
    save, gone = ReportStore.save, list[str]()

    def gone_at_the_end(self: ReportStore, report: CutoverReport) -> None:
        if report.outcome == reports.DONE or gone:
            if arrives and not gone:
                save(self, report)
            gone.append("")
            raise AWAY
        save(self, report)

    with monkeypatch.context() as patched, pytest.raises(TryAgain, match="no broker answered"):
        patched.setattr(ReportStore, "save", gone_at_the_end)
        walk(a_run(tmp_path, fence), fence.steps())
    assert "lift" not in fence.calls
    found, calls = next_process(tmp_path)
    assert found is not None and (found.outcome, calls) == (
        (reports.DONE, []) if arrives else (reports.RUNNING, ["go on"])
    )


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("sent", [False, True])
def test_ledger_that_is_away_keeps_a_fence_up_only_behind_an_opening(tmp_path: Path, sent: bool) -> None:
    """Before the decision to open was sent nobody else can have opened the target, as the fence's name says."""
    acls = Acls()
    run = a_run(tmp_path, AclFence(acls, open_by_default=False), acls)  # type: ignore[arg-type]

    def fails(attempt: Attempt) -> dict[str, Any]:
        attempt.opening, attempt.on.target.ledger = sent, Away()  # type: ignore[misc]
        raise Undecided(["fence/flow"], "no broker answered")

    with pytest.raises(OpenOutcomeUnknown if sent else Undecided, match="no broker answered"):
        walk(run, [*STEPS[:1], replace(STEPS[1], do=fails)])
    assert bool(acls.acls) is sent and run.report.is_fenced is sent


def test_ledger_that_is_away_keeps_a_callable_up(tmp_path: Path) -> None:
    """Its owner may have slept: somebody else's cutover, which fences by the same function, is open behind it by now."""
    fence = Recorder(tmp_path, "drain")
    run = a_run(tmp_path, fence)

    def fails(attempt: Attempt) -> dict[str, Any]:
        attempt.on.target.ledger = Away()  # type: ignore[misc]
        raise Undecided(["fence/flow"], "no broker answered")

    with pytest.raises(OpenOutcomeUnknown, match="nothing there names a callable's attempt"):
        walk(run, [replace(step, do=fails) if step.name == "drain" else step for step in fence.steps()])
    assert "lift" not in fence.calls and run.report.is_fenced


@pytest.fixture
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """No log: nothing is asked of leaders before a fence."""
    monkeypatch.setattr(steps, "look_before", lambda _: {"by": "acls", "why": ""})
    monkeypatch.setattr(steps, "look_for_unseen", lambda _: "")
