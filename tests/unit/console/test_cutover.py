"""``airflow-mirror cutover``: what a script reads from its exit status, and what it must not take for its own."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import cutover as command
from airflow_mirror.console import main
from airflow_mirror.cutover.decision import CLOSED, CLOSING, LIFTED, OPENED, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.report import BACKED_OUT, DONE, RUNNING, CutoverReport, FenceRecord, StepRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import (
    InputError,
    MirrorCutOver,
    MirrorError,
    MissingRight,
    OpeningUnfinished,
    OpenOutcomeUnknown,
    PlanOutdated,
    RegistryStillHeld,
    TryAgain,
)
from airflow_mirror.ledger.records import LAST_PLAN
from airflow_mirror.plan.direction import ARMED, FAILOVER, Direction, turn
from airflow_mirror.plan.requirements import require_planned_clusters
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import a_plan, kept_in

ASKED = argparse.Namespace(json=False, mirror="flow", target="dst")


def fence(phase: str, run: str = "r", *, kept: bool = True) -> FenceState:
    return FenceState(
        run=run, attempt=1, id="a", plan="p", revision="p", owner="a", max_fence_s=60.0, phase=phase, kept=kept
    )  # fmt: skip


def kept_of(directory: Path) -> ReportStore:
    directory = directory / "r"
    directory.mkdir()
    return kept_in(directory)


def ends(
    error: BaseException, directory: Path, *, fenced: bool = True, outcome: str = BACKED_OUT,
    decided: Callable[[], FenceState | None] = lambda: None,
) -> int:  # fmt: skip
    """Return the exit status of a cutover that ends so, with or without a fence that was up."""
    kept = kept_of(directory)

    def work() -> CutoverReport:
        report = CutoverReport(mirror="flow", plan_hash="p", outcome=outcome)
        if fenced:
            report.fence = FenceRecord(kind="acl", intent={}, requested=1.0, lifted=2.0)
        kept.save_here(report)
        raise error

    return command._do(ASKED, kept, "source", decided, work)


@pytest.mark.parametrize(
    ("error", "fenced", "status"),
    [
        (TryAgain("a broker is down"), True, 1),
        (PlanOutdated(["a topic is gone"]), False, 2),
        (PlanOutdated(["a topic is gone"]), True, 1),  # producers were kept out: that is not nothing
        (OpeningUnfinished("run 'r'", "its report is gone"), True, 3),
        (OpenOutcomeUnknown("source", "no answer"), True, 3),
        (RegistryStillHeld("target", "it is away"), True, 3),
    ],
)
def test_status_says_whether_the_target_may_be_open(
    error: MirrorError, fenced: bool, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(error, tmp_path, fenced=fenced) == status
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (fence(OPENED), 3),
        (fence(CLOSING), 3),
        (fence(CLOSED, kept=False), 3),
        (fence(CLOSED), 1),  # lifted since, by a person or a rollback, who say where producers write
        (fence(LIFTED), 1),
        (fence(OPENED, "another"), 1),
    ],
    ids=["opened", "closing", "closed-afterwards", "lifted-since", "backed-out", "of-another-run"],
)
def test_what_fails_behind_the_opening_is_no_backing_out(
    state: FenceState, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that goes by a 1 starts the producers on the source again."""
    assert ends(TryAgain("a broker is down"), tmp_path, outcome=DONE, decided=lambda: state) == status
    said = "The target is open, or may be: start no producers on the source. The same command does what is left."
    assert (said in capsys.readouterr().err) is (status == 3)


@pytest.mark.parametrize("error", [MissingRight("x", "REFUSED", "User:m"), OSError(28, "full"), KeyboardInterrupt()])
def test_whatever_ends_it_behind_the_opening(error: BaseException, tmp_path: Path) -> None:
    assert ends(error, tmp_path, outcome=DONE, decided=lambda: fence(OPENED)) == 3


def test_interrupt_that_opened_nothing_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ends(KeyboardInterrupt(), tmp_path)


@pytest.mark.parametrize(
    ("before", "outcome", "status"),
    [(None, BACKED_OUT, 1), (None, DONE, 3), (None, RUNNING, 3), (fence(OPENED), BACKED_OUT, 3)],
)
def test_target_that_does_not_answer_any_more_may_be_open(
    before: FenceState | None, outcome: str, status: int, tmp_path: Path
) -> None:
    answers = [before]

    def decided() -> FenceState | None:
        if not answers:
            raise TryAgain("no answer")
        return answers.pop()

    assert ends(TryAgain("a broker is down"), tmp_path, outcome=outcome, decided=decided) == status


@pytest.mark.parametrize("is_up", [True, False])
def test_kept_fence_is_said_to_stand_only_where_it_was_seen(
    is_up: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a finished cutover that is run again: producers write to the old source, and it said that it stays fenced."""
    report = CutoverReport(mirror="flow", plan_hash="p", outcome=DONE)
    report.fence = FenceRecord(kind="acl", intent={}, requested=1.0, opened=2.0, kept=True)
    report.steps = [StepRecord(name="verify_again", status="done", started=3.0, evidence={"fence_is_up": is_up})]
    assert command._do(ASKED, kept_of(tmp_path), "source", lambda: None, lambda: report) == 0
    said = capsys.readouterr().out
    assert ("the source stays fenced" in said) is is_up
    assert ("the fence of the source is gone or incomplete: deny WRITE" in said) is not is_up


@pytest.mark.parametrize("name", ["2026/11/20", "../../2026", "manual__2026-11-20T00:00:00+00:00", "monday"])
def test_report_of_a_run_is_found_whatever_it_is_called(
    name: str, dst: LedgerCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name is a part of the ledger's keys: a slash in it hid the report from every reader."""
    asked = argparse.Namespace(mirror="flow", run_name=name, home=tmp_path)
    request: Any = SimpleNamespace(plan=a_plan("orders"))
    clusters: Any = SimpleNamespace(on=SimpleNamespace(target=Side(dst.admin)))
    kept = command._kept(asked, request, clusters)
    kept.save(CutoverReport(mirror="flow", plan_hash="p", error="which was asked for"))
    assert kept.directory == tmp_path / "flow" / "runs" / kept.run
    again = command._kept(asked, request, clusters).load()
    assert again is not None and again.error == "which was asked for"
    for one in (name, kept.run):
        assert main.main(["report", "--target", "dst", "--mirror", "flow", "--run", one, "--json", "-"]) == 0
        assert "which was asked for" in capsys.readouterr().out


def test_done_is_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = CutoverReport(mirror="flow", plan_hash="p", outcome=DONE)
    assert command._do(ASKED, kept_of(tmp_path), "source", lambda: None, lambda: report) == 0
    assert ": cut_over" in capsys.readouterr().out


_DONE = """\
import argparse, pathlib, sys
from airflow_mirror.console import cutover, output
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore

output.tolerate()
report = CutoverReport(mirror="flow", plan_hash="p", outcome="cut_over")
kept = ReportStore(None, "flow", "r", pathlib.Path("r"))
sys.exit(cutover._do(argparse.Namespace(json=False), kept, "source", lambda: None, lambda: report))
"""


def test_output_that_can_not_be_written_undoes_nothing() -> None:
    """The end of ``--yes > night.log`` on a full disk was "Correct the path", and the status that of backing out.

    The interpreter writes what is left at its own end, and has a status of its own for that.
    """
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", _DONE], stdout=full, stderr=subprocess.PIPE, text=True, env=buffered
        )  # fmt: skip
    assert done.returncode == 3
    assert "No space left on device" in done.stderr and "start no producers on the source" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_is_closed_is_no_failure(closed: str) -> None:
    """Python has no standard output then, and the end of a cutover that was done had the status of backing out."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, _DONE], capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0 and "error" not in done.stdout + done.stderr


def test_error_is_no_output_where_errors_are_dropped() -> None:
    program = "import sys; from airflow_mirror.console.main import main; sys.exit(main(['no']))"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program], capture_output=True, text=True
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")


def test_errors_that_can_not_be_written_either_keep_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as out, Path("/dev/full").open("w") as errors:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", errors)
        done = CutoverReport(mirror="flow", plan_hash="p", outcome=DONE)
        statuses = [command._do(ASKED, kept_of(tmp_path), "source", lambda: None, lambda: done)]
        statuses.append(ends(TryAgain("a broker is down"), tmp_path / "r", decided=lambda: fence(OPENED)))
        os.dup2(os.open(os.devnull, os.O_WRONLY), errors.fileno())
    assert statuses == [3, 3]


def test_name_that_the_terminal_can_not_show_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="iso-8859-1")
    report = CutoverReport(mirror="flow", plan_hash="p", outcome=DONE, left_behind=["caf\u00e9-\u4e2d"])
    kept = kept_of(tmp_path)
    run = argparse.Namespace(run=lambda _: command._do(ASKED, kept, "source", lambda: None, lambda: report))
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(main, "parser", lambda _: SimpleNamespace(parse_args=lambda *_: run))
    assert main.main(["cutover"]) == 0
    assert b"group caf\xe9-\\u4e2d: left where it was" in shown.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_way_back_is_cut_over_by_rollback_alone(dst: LedgerCluster) -> None:
    """A cutover of it would open the old source without a direction, behind the first cutover's fence."""
    one = Direction(generation=1, primary="new", by=ARMED, attempt="r", plan="p", at="noon")
    dst.ledger.decide(lambda _: turn("flow", one))
    with pytest.raises(InputError, match="it is a way back.*airflow-mirror rollback"):
        command._plan(ASKED)


@pytest.mark.parametrize("by", [FAILOVER, "cutover", ""])
def test_fence_of_a_source_that_returned_is_no_finished_cutover(dst: LedgerCluster, by: str) -> None:
    """It was compared once more, and told as cut over: no group had been set, and no record compared.

    Also once its way back was armed, or the mirror was retired without its source.
    """
    if by:
        attempt = "a1" if by == FAILOVER else "failover-a1"
        one = Direction(generation=1, primary="new", by=by, attempt=attempt, plan="p", at="noon")
        dst.ledger.decide(lambda _: turn("flow", one))
    note_copy(dst.ledger, "flow", replace(fence(OPENED, "failover-a1"), max_fence_s=0.0))
    with pytest.raises(MirrorCutOver, match=r"was cut over \(by a failover\)"):
        command._plan(ASKED)


def test_name_that_was_planned_anew_is_not_cut_over_by_the_plan_of_its_failover(
    dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor under that fence's run: the cutover's checks find the fence, which is to be lifted first."""
    returned = replace(fence(OPENED, "failover-a1"), max_fence_s=0.0)
    note_copy(dst.ledger, "flow", returned)
    dst.ledger.decide(lambda _: LAST_PLAN.put({"hash": "new"}, "flow"))
    plan = a_plan("orders")
    monkeypatch.setattr(command, "last_plan", lambda _: plan)
    assert command._plan(ASKED) is plan
    monkeypatch.setattr(command, "_decided", lambda *_: returned)
    target = SimpleNamespace(reports=lambda _: None)
    asked = argparse.Namespace(run_name=None, home=str(tmp_path))
    request = SimpleNamespace(plan=plan)
    kept = command._kept(asked, request, SimpleNamespace(on=SimpleNamespace(target=target)))  # type: ignore[arg-type]
    assert kept.run.startswith("by-hand-")


def test_clusters_of_another_plan_are_refused() -> None:
    """A file of settings may be the wrong one, or name one cluster twice: both sides would be equal, and proven."""
    plan = a_plan("orders")
    named: Callable[[str, str], Any] = lambda role, its: SimpleNamespace(role=role, cluster_id=lambda: its)  # noqa: E731
    require_planned_clusters(plan, named("source", plan.source_cluster_id), named("target", plan.target_cluster_id))
    with pytest.raises(InputError, match="source cluster: it is staging, and mirror 'flow' was planned for"):
        require_planned_clusters(plan, named("source", "staging"), named("target", plan.target_cluster_id))
