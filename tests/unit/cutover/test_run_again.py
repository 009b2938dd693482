"""A run that is called again: what an earlier attempt, a guard or a person has left."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from airflow_mirror.cutover import lifting
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import CLOSED, CLOSING, LIFTED, LIFTING, OPENED, end_lifting, fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import Assurance
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, as_recorded
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import (
    CutoverRunning,
    CutoverTakenOver,
    InputError,
    NotUndone,
    OpeningUnfinished,
)
from tests.unit.cutover.builders import (
    Acls,
    a_plan,
    a_run,
    kept_in,
    ledger_of,
    not_kept,
    target_of,
)
from tests.unit.cutover.running import (
    DENY,
    Steps,
    fenced,
    lifts,
)

pytestmark = pytest.mark.usefixtures("silent")


@pytest.mark.parametrize("outcome", [reports.RUNNING, reports.UNDO_FAILED])
def test_interrupted_attempt_is_undone_before_anything_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable", outcome)
    report = cutover._run(a_run(tmp_path, seen.fence))
    assert seen.calls == ["off", "precheck", "walk"]
    assert report.attempt == 2 and [e["outcome"] for e in report.earlier] == [reports.BACKED_OUT]
    assert report.earlier[0]["error"] == "the process was ended in state CAUGHT_UP"


def test_what_was_taken_back_already_is_not_taken_back_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable", reports.BACKED_OUT)
    assert cutover._run(a_run(tmp_path, seen.fence)).attempt == 2
    assert seen.calls == ["precheck", "walk"]


def test_attempt_that_a_guard_took_back_without_a_word_is_told_as_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has decided that the fence is down; its report comes behind that, and a retry may be in between."""
    seen = Steps(monkeypatch)
    left = fenced(tmp_path, "callable", reports.BACKED_OUT)
    left.outcome, left.state = reports.RUNNING, "PROVEN"
    kept = kept_in(tmp_path)
    kept.load()
    kept.save(left)
    (earlier,) = cutover._run(a_run(tmp_path, seen.fence)).earlier
    assert (earlier["outcome"], earlier["state"]) == (reports.BACKED_OUT, "CAUGHT_UP")
    assert earlier["error"] == "the process was ended in state PROVEN" and seen.calls == ["precheck", "walk"]


def test_failed_undo_lets_no_new_attempt_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch, broken="off")
    report = fenced(tmp_path, "callable", reports.UNDO_FAILED)
    report.undone = [reports.UndoneRecord(step="commit_groups", ok=False, error="of an earlier time")]
    kept_in(tmp_path).save(report)
    for _ in range(2):
        with pytest.raises(NotUndone, match="fence: RuntimeError: off") as caught:
            cutover._run(a_run(tmp_path, seen.fence))
        assert len(caught.value.failures) == 1  # of this time
    assert seen.calls == ["off", "off"]
    assert kept_in(tmp_path).load().is_fenced  # type: ignore[union-attr]


def test_finished_cutover_of_another_plan_is_not_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Steps(monkeypatch)
    report = fenced(tmp_path, "callable", reports.DONE)
    report.plan_hash = "0" * 64
    kept_in(tmp_path).save(report)
    with pytest.raises(InputError, match="holds the cutover of another plan"):
        cutover._run(a_run(tmp_path, seen.fence))
    assert seen.calls == []


def test_rerun_of_a_finished_cutover_lifts_its_fence_under_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cutover was killed between its end and the lift of its fence."""
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable", reports.DONE)
    not_kept(a_run(tmp_path, seen.fence))
    cutover._run(a_run(tmp_path, seen.fence))
    assert seen.calls == ["hold_lease", "off"]
    assert not kept_in(tmp_path).load().is_fenced  # type: ignore[union-attr]


def test_new_attempt_waits_until_a_guard_has_lifted_the_old_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be refused because of a fence that comes down anyway."""
    seen = Steps(monkeypatch)
    report = fenced(tmp_path, "callable", reports.BACKED_OUT)
    report.attempt, life = 7, ledger_of(tmp_path)
    assert report.attempt == 7
    there = replace(fence_state(life.values(), "flow"), run="another run", phase=LIFTING)  # type: ignore[type-var]
    life.decide(lambda _: {"fence/flow": {"v": 1, **asdict(there)}})
    run, waited = a_run(tmp_path, seen.fence), list[object]()

    def pause(_: Attempt, seconds: object = None) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            end_lifting(life, "flow", there)

    monkeypatch.setattr(Attempt, "pause", pause)
    cutover._run(run)
    assert len(waited) == 3 and run.before is not None and run.before.phase == LIFTED


@pytest.mark.parametrize(
    ("outcome", "include_retained", "calls"),
    [
        (reports.RUNNING, False, ["off"]),
        (reports.UNDO_FAILED, True, ["off"]),
        (reports.DONE, False, []),
        (reports.DONE, True, ["end_writing", "off"]),
    ],
)
def test_teardown_lifts_what_was_not_meant_to_stay_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, include_retained: bool, calls: list[str]
) -> None:
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable", outcome)
    for _ in range(2):
        lifts(tmp_path, seen.fence, include_retained=include_retained)
    assert seen.calls == calls


def test_opening_that_a_person_gives_up_is_not_gone_on_with(tmp_path: Path) -> None:
    """Nor waited for: the person may have been interrupted, and lift-fence ends what they began."""
    fenced(tmp_path, "acl")
    ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], "phase": CLOSING}})
    with pytest.raises(CutoverTakenOver):
        recover(a_run(tmp_path, AclFence(Acls(DENY)), Acls(DENY)))  # type: ignore[arg-type]


def test_opening_that_a_person_gave_up_is_not_told_as_backed_out(tmp_path: Path) -> None:
    """Its report got a link by which everything was restored, and the groups stood where it had set them."""
    fenced(tmp_path, "callable")
    ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], "phase": CLOSED}})
    found = recover(a_run(tmp_path, CallableFence(print, print)))
    assert found is not None and found.outcome == reports.RUNNING


@pytest.mark.parametrize("report", ["of a process that died", "gone"])
def test_person_may_end_an_opening_that_nobody_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    """The cutover itself said that its report is gone, and to lift the fence; which said to run the cutover again."""
    seen = Steps(monkeypatch)
    fenced(tmp_path, "callable")
    ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], "phase": OPENED}})
    if report == "gone":
        target_of(tmp_path).write({key: None for key in target_of(tmp_path).read() if key.startswith("report/")})
        shutil.rmtree(tmp_path)
    with pytest.raises(OpeningUnfinished, match="--include-retained"):
        lifts(tmp_path, seen.fence)

    def lives(*_: object) -> None:
        raise CutoverRunning("on host w-3")

    with monkeypatch.context() as alive, pytest.raises(CutoverRunning):
        alive.setattr(lifting, "require_over", lives)
        lifts(tmp_path, seen.fence, known=Assurance(unfinished_too=True))
    assert seen.calls == []
    assert lifts(tmp_path, seen.fence, known=Assurance(unfinished_too=True)) and seen.calls == ["end_writing", "off"]


def test_teardown_without_a_cutover_does_nothing(tmp_path: Path) -> None:
    assert lifts(tmp_path, None) == []
    assert list(tmp_path.iterdir()) == []


def test_report_that_somebody_made_up_is_not_lifted(tmp_path: Path) -> None:
    """Who may write reports, and no decision, changes nothing at the source."""
    source, intent = Acls(DENY), as_recorded(Intent(topics=("orders",)))
    record = FenceRecord(kind="acl", intent=intent, requested=1.0)
    made_up = CutoverReport(mirror="flow", plan_hash=a_plan("orders", "payments").hash, id="any", fence=record)
    kept_in(tmp_path).save(made_up)
    assert lifts(tmp_path, None, source, include_retained=True) == [] and source.acls == {DENY}
