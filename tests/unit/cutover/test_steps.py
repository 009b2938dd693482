"""The walk through the steps: in order, and back again from every place at which it can break."""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover import decision, steps
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import (
    CLOSED,
    LIFTED,
    LIFTING,
    UP,
    fence_state,
)
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import Assurance
from airflow_mirror.cutover.report import CAUGHT_UP, CUT_OVER, CutoverReport, GroupRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.steps import STEPS, Step, walk
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import (
    BrokerError,
    CutoverCancelled,
    CutoverTakenOver,
    DecidedLate,
    FenceNotLifted,
    FenceTooLong,
    GroupActive,
    NotUndone,
    TryAgain,
)
from airflow_mirror.kafka.permit import Permit
from tests.unit.cutover.builders import (
    Acls,
    go_up,
    kept_in,
    ledger_of,
    open_behind,
    target_of,
)
from tests.unit.cutover.walking import (
    Recorder,
    a_run,
    lift_elsewhere,
    lifts,
    next_process,
    raising,
)

NAMES = [step.name for step in STEPS]


def test_each_step_leads_from_where_the_last_one_ended() -> None:
    assert [step.leads_from for step in STEPS[1:]] == [step.to for step in STEPS[:-1]]
    assert STEPS[0].leads_from == CAUGHT_UP and STEPS[-1].to == CUT_OVER


def test_all_steps_in_order_and_nothing_undone(tmp_path: Path) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)
    walk(run, fence.steps())
    assert fence.calls == ["raise", *NAMES[1:]]
    assert (run.report.outcome, run.report.state, run.report.undone) == (reports.DONE, CUT_OVER, [])
    assert fence.on_record()["outcome"] == reports.DONE


@pytest.mark.repeats
@pytest.mark.parametrize("broken", NAMES)
@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), KeyboardInterrupt(), SystemExit(1)], ids=lambda e: type(e).__name__
)
def test_failure_in_any_step_is_undone_backwards_and_reraised(tmp_path: Path, broken: str, error: BaseException) -> None:
    fence = Recorder(tmp_path, broken, error)
    run = a_run(tmp_path, fence)
    with pytest.raises(type(error)):
        walk(run, fence.steps())
    done = NAMES[: NAMES.index(broken) + 1]
    restored = ["restore"] if "commit_groups" in done else []
    assert fence.calls == ["raise", *done[1:], "lift", *restored], "producers come first"
    on_record = fence.on_record()
    assert on_record["outcome"] == reports.BACKED_OUT and on_record["state"] == CAUGHT_UP
    assert on_record["fence"]["lifted"] is not None and on_record["error"].startswith(type(error).__name__)
    assert on_record["steps"][-1]["name"] == broken and on_record["steps"][-1]["status"] == "failed"


@pytest.mark.parametrize("error", [None, RuntimeError("broken")], ids=["done", "undone"])
def test_garbage_is_looked_for_again_behind_the_fence(tmp_path: Path, error: Exception | None) -> None:
    seen = []

    def look(_: Attempt) -> dict[str, Any]:
        seen.append(gc.isenabled())
        if error is not None:
            raise error
        return {}

    first = replace(STEPS[0], do=look, to=CUT_OVER)
    assert gc.isenabled()
    with nullcontext() if error is None else pytest.raises(RuntimeError):
        walk(a_run(tmp_path, Recorder(tmp_path)), [first])
    assert (seen, gc.isenabled()) == ([False], True)


def test_after_going_back_the_same_walk_finishes(tmp_path: Path) -> None:
    fence = Recorder(tmp_path, "verify")
    with pytest.raises(RuntimeError):
        walk(a_run(tmp_path, fence), fence.steps())
    again = Recorder(tmp_path)
    walk(a_run(tmp_path, again), again.steps())
    assert again.on_record()["outcome"] == reports.DONE


def test_undo_that_fails_does_not_keep_the_fence_up(tmp_path: Path) -> None:
    class GroupsStuck(Recorder):
        def _break(self, name: str) -> None:
            if name in ("open_target", "restore"):
                raise RuntimeError(name)

    fence = GroupsStuck(tmp_path)
    run = a_run(tmp_path, fence)
    with pytest.raises(RuntimeError, match="open_target"):
        walk(run, fence.steps())
    assert fence.calls[-2:] == ["lift", "restore"]
    assert run.report.outcome == reports.UNDO_FAILED and not run.report.is_fenced
    undone = [(row.step, row.ok) for row in run.report.undone]
    assert undone == [("fence", True), ("commit_groups", False), ("stop_writers", True), ("decision", True)]


def died_before_the_opening(tmp_path: Path) -> Attempt:
    """An owner dies with its fence up and its groups set, and undoes nothing."""
    walked = Recorder(tmp_path, "open_target")
    run = a_run(tmp_path, walked)
    with pytest.MonkeyPatch.context() as killed, suppress(RuntimeError):
        killed.setattr(steps, "back_out", lambda *_: None)
        walk(run, walked.steps())
    return run


def test_groups_that_nobody_answers_for_are_restored_by_who_goes_on(tmp_path: Path) -> None:
    """Producers write again at once; that the fence is lifted is decided when the groups have their positions back."""
    died_before_the_opening(tmp_path)
    away = Recorder(tmp_path, "restore", TryAgain("no coordinator"))
    for _ in range(3):  # as a guard does
        with pytest.raises(FenceNotLifted, match="commit_groups: TryAgain: no coordinator"):
            lifts(tmp_path, away, known=Assurance(listened=True))
    report = kept_in(tmp_path).load()
    assert report is not None and [row.step for row in report.undone] == ["fence", "commit_groups", "stop_writers"]
    assert away.calls == 3 * ["lift", "restore"] and fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTING  # type: ignore[union-attr]
    again = Recorder(tmp_path)
    assert lifts(tmp_path, again, known=Assurance(listened=True))
    assert again.calls == ["lift", "restore"] and fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTED  # type: ignore[union-attr]


def test_group_that_is_refused_for_good_is_told_apart_from_a_fence_that_stays(tmp_path: Path) -> None:
    """It was said that producers may still be kept out; they were in."""
    died_before_the_opening(tmp_path)
    refused = Recorder(tmp_path, "restore", GroupActive("g", "target", "stable"))
    with pytest.raises(NotUndone, match="commit_groups: GroupActive"):
        lifts(tmp_path, refused, known=Assurance(listened=True))
    assert fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTED  # type: ignore[union-attr]


def left_with_a_group(tmp_path: Path) -> None:
    """An attempt is undone by somebody, but for a group that has got a member."""
    died_before_the_opening(tmp_path)
    with pytest.raises(NotUndone):
        lifts(
            tmp_path, Recorder(tmp_path, "restore", GroupActive("g", "target", "stable")), known=Assurance(listened=True)
        )


def test_group_that_was_refused_is_restored_by_the_next_try(tmp_path: Path) -> None:
    """It was told as backed out, with everything restored, and got a link; nobody ever restored it."""
    left_with_a_group(tmp_path)
    refused = Recorder(tmp_path, "restore", GroupActive("g", "target", "stable"))
    for _ in range(2):
        with pytest.raises(NotUndone, match="commit_groups: GroupActive"):
            recover(a_run(tmp_path, refused))
    report = kept_in(tmp_path).load()
    assert report is not None and report.outcome == reports.UNDO_FAILED and report.seal is None
    assert [row.step for row in report.undone].count("commit_groups") == 2, "once more, and not with each try"
    found, calls = next_process(tmp_path)
    assert found is not None and calls == ["restore"] and found.outcome == reports.BACKED_OUT
    assert (found.undone[-1].step, found.undone[-1].ok) == ("commit_groups", True)


def test_group_for_which_nobody_answers_is_tried_again_without_a_person(tmp_path: Path) -> None:
    """Its coordinator is away for a moment: the task failed for good, with the advice to remove members."""
    left_with_a_group(tmp_path)
    with pytest.raises(TryAgain, match="no coordinator"):
        recover(a_run(tmp_path, Recorder(tmp_path, "restore", TryAgain("no coordinator"))))
    report = kept_in(tmp_path).load()
    assert report is not None and report.outcome == reports.UNDO_FAILED
    assert report.undone[-1].error == "TryAgain: no coordinator"
    found, calls = next_process(tmp_path)
    assert found is not None and calls == ["restore"] and found.outcome == reports.BACKED_OUT


@pytest.mark.parametrize("phase", [UP, CLOSED])
def test_group_that_was_refused_is_another_fences_once_that_has_gone_up(tmp_path: Path, phase: str) -> None:
    """Or its readers' by now."""
    left_with_a_group(tmp_path)
    another = {"id": "2", "run": "another", "phase": phase}
    ledger_of(tmp_path).decide(lambda values: {"fence/flow": {**values["fence/flow"], **another}})
    found, calls = next_process(tmp_path)
    assert found is not None and calls == [] and found.outcome == reports.UNDO_FAILED


@pytest.mark.parametrize("by", ["its retry", "a lifter"])
def test_groups_that_the_owner_set_until_its_lifting_was_decided_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It was frozen when its report was read, went on, and died; until the decision its permits let it set groups."""
    run = died_before_the_opening(tmp_path)
    moved, run.report.groups = run.report.groups, []
    assert moved
    run.save()
    begin_lifting = decision.begin_lifting

    def goes_on(*given: Any) -> Any:
        run.report.groups = moved
        run.save()
        return begin_lifting(*given)

    monkeypatch.setattr(decision, "begin_lifting", goes_on)
    if by == "a lifter":
        fence = Recorder(tmp_path)
        assert lifts(tmp_path, fence, known=Assurance(listened=True))
        calls = fence.calls
    else:
        _, calls = next_process(tmp_path)
    assert calls == ["lift", "restore"]


def test_fence_that_cannot_be_lifted_is_the_error(tmp_path: Path) -> None:
    """The error names the topics that are left fenced."""

    class Stuck(Recorder):
        def _break(self, name: str) -> None:
            if name in ("drain", "lift"):
                raise ValueError(name)

    fence = Stuck(tmp_path)
    with pytest.raises(FenceNotLifted, match=r"orders, payments") as caught:
        walk(a_run(tmp_path, fence), fence.steps())
    assert isinstance(caught.value.__cause__, ValueError)
    loaded = kept_in(tmp_path).load()
    assert loaded is not None and loaded.is_fenced and loaded.outcome == reports.UNDO_FAILED


def test_lift_is_retried_while_a_broker_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flaky(Recorder):
        def _break(self, name: str) -> None:
            if name == "drain":
                raise RuntimeError(name)
            if name == "lift" and self.calls.count("lift") < 4:
                raise BrokerError("delete ACL", 7, "REQUEST_TIMED_OUT")

    fence = Flaky(tmp_path)
    run = a_run(tmp_path, fence)
    monkeypatch.setattr(run.on.source, "clock", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))
    with pytest.raises(RuntimeError, match="drain"):
        walk(run, fence.steps())
    assert fence.calls.count("lift") == 4 and run.report.outcome == reports.BACKED_OUT


def test_time_of_the_fence_ends_it_in_whatever_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in one that has a longer limit of its own, which is cut so that its own error comes first."""
    for at in NAMES[1:]:
        fence, clock = Recorder(tmp_path / at), [0.0]
        run = a_run(tmp_path / at, fence)
        monkeypatch.setattr(Attempt, "now", lambda _, clock=clock: clock[0])

        def late(attempt: Attempt, clock: list[float] = clock) -> dict[str, Any]:
            assert (
                attempt.at_most(300.0) < attempt.limits.max_fence_s == attempt.at_most(300.0) + 2 * attempt.limits.poll_s
            )
            clock[0] += attempt.limits.max_fence_s
            attempt.pause(0.0)
            return {}

        with pytest.raises(FenceTooLong, match=f"60 s .max_fence_s., and the cutover was still at '{at}'"):
            walk(run, [replace(step, do=late) if step.name == at else step for step in fence.steps()])
        assert "lift" in fence.calls and fence.on_record()["outcome"] == reports.BACKED_OUT


def test_log_says_each_second_what_a_fence_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in one long wait, and not before the fence is raised."""
    clock = [0.0]
    run = a_run(tmp_path, Recorder(tmp_path))
    monkeypatch.setattr(Attempt, "now", lambda _: clock[0])

    def wait(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(run.stop, "wait", wait)
    caplog.set_level("INFO", "airflow_mirror.cutover")
    run.pause(5.0)
    assert caplog.messages == []
    run.report.steps.append(reports.StepRecord(name="drain", status="running", started=0.0))
    run.fenced_until, run.waits_for = clock[0] + 60.0, "the tail"
    for _ in range(12):
        run.pause(0.25)
    run.waits_for = ""
    run.pause(3.5)
    said = ["drain waits for the tail; 60 of 60 s are left", "drain waits for the tail; 59 of 60 s are left"]
    said += ["drain waits for the tail; 58 of 60 s are left"] + [f"drain; {n} of 60 s are left" for n in (57, 56, 55, 54)]
    assert caplog.messages == said and clock[0] == 11.5


def test_opening_that_the_broker_appends_too_late_is_void(tmp_path: Path) -> None:
    """The owner was frozen between its last look at the clock and its request."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def frozen(attempt: Attempt) -> dict[str, Any]:
        attempt.ledger.now_ms += 60_000  # type: ignore[attr-defined]
        open_behind(attempt)
        return {}

    with pytest.raises(DecidedLate):
        walk(run, [replace(step, do=frozen) if step.name == "open_target" else step for step in fence.steps()])
    assert "lift" in fence.calls and fence_state(run.ledger.values(), "flow").phase == LIFTED  # type: ignore[union-attr]
    assert not [key for key in run.ledger.values() if key.startswith("topic/")]


@pytest.mark.repeats
@pytest.mark.parametrize("woken_in", NAMES)
@pytest.mark.parametrize("cleared", [False, True])
def test_owner_that_was_frozen_in_any_step_opens_nothing(tmp_path: Path, woken_in: str, cleared: bool) -> None:
    """Somebody has decided to lift its fence, and perhaps is done with that. The owner undoes what it did, and stops."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def lifted(step: Step) -> Step:
        def do(attempt: Attempt) -> dict[str, Any]:
            lifting = lift_elsewhere(tmp_path, cleared=cleared)
            assert lifting is not None or step.name == "fence"
            fence.calls.append("woken")
            return step.do(attempt)

        return replace(step, do=do) if step.name == woken_in else step

    if woken_in == "fence":  # nothing was decided yet: it is as alive as any
        walk(run, [lifted(step) for step in fence.steps()])
        return
    with pytest.raises(CutoverTakenOver):
        walk(run, [lifted(step) for step in fence.steps()])
    its = fence.calls[fence.calls.index("woken") :]
    assert ("lift" in its) is not cleared, "what somebody else is not done with it takes over"
    state = fence_state(run.ledger.values(), "flow")
    assert state is not None and state.phase == LIFTED
    assert not [key for key in run.ledger.values() if key.startswith("topic/")]


@pytest.mark.repeats
@pytest.mark.parametrize("written", [False, True])
def test_next_process_on_an_empty_disk_undoes_a_kill_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The first process dies right before, or after, its n-th writing arrives. Its host is lost with it."""
    save, killed = ReportStore.save, 0
    for fatal in range(60):
        run_dir = tmp_path / f"run-{fatal}"
        first, writings = Recorder(run_dir), 0

        def save_or_die(self: ReportStore, report: CutoverReport, fatal: int = fatal) -> None:
            nonlocal writings
            writings += 1
            if written or writings <= fatal:
                save(self, report)
            if writings > fatal:
                raise SystemExit

        with monkeypatch.context() as patched, suppress(SystemExit, FenceNotLifted):
            patched.setattr(ReportStore, "save", save_or_die)
            patched.setattr(steps, "back_out", lambda *_, **__: None)  # nobody lives to do that
            walk(a_run(run_dir, first), first.steps())
        found, calls = next_process(run_dir)
        if first.calls[-1:] == ["open_target"]:
            assert found is not None and calls == ([] if found.outcome == reports.DONE else ["go on"])
            if writings <= fatal:
                break
            continue
        killed += 1
        assert ("raise" not in first.calls) or "lift" in calls
        moved = ("commit_groups" in first.calls) and bool(found and found.groups)
        assert calls == ["lift", "restore"][: 2 if moved else 1] or "raise" not in first.calls
        assert found is None or found.outcome == reports.BACKED_OUT
    assert killed >= 9


def test_interrupt_after_the_end_is_on_record_undoes_nothing(tmp_path: Path) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    class Interrupting:
        def info(self, msg: str, *args: object) -> None:
            if args[:1] == ("open_target",) and "done" in msg:
                raise KeyboardInterrupt

        warning = info

    run.log = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        walk(run, fence.steps())
    assert "lift" not in fence.calls and fence.on_record()["outcome"] == reports.DONE


def test_second_interrupt_does_not_disturb_going_back(tmp_path: Path) -> None:
    class Impatient(Recorder):
        def lift(self, intent: Intent, name: str, permit: Permit) -> None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
                os.kill(os.getpid(), number)
            super().lift(intent, name, permit)

    fence = Impatient(tmp_path, "drain", KeyboardInterrupt())
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        walk(a_run(tmp_path, fence), fence.steps())
    assert fence.calls[-1] == "lift" and fence.on_record()["outcome"] == reports.BACKED_OUT
    assert signal.getsignal(signal.SIGINT) is before


def test_decision_of_a_killed_attempt_is_enough_to_go_back(tmp_path: Path) -> None:
    """Nothing else is left of the process; kill -9 on real brokers is in the integration tests."""
    dead = Recorder(tmp_path)
    attempt: Attempt = a_run(tmp_path, dead)
    with pytest.MonkeyPatch.context() as killed, suppress(RuntimeError):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        killed.setattr(ReportStore, "save", lambda *_: None)  # it died before its first report
        killed.setattr(Recorder, "on_record", lambda _: {"id": attempt.me})
        walk(attempt, [*dead.steps()[:1], replace(dead.steps()[1], do=lambda _: raising(RuntimeError("killed"))())])  # type: ignore[arg-type, return-value]
    fence = Recorder(tmp_path)
    assert target_of(tmp_path).read().keys() == {f"plan/flow/{attempt.plan.hash}/0/1"}, "it has left no report"
    assert lifts(tmp_path, fence, known=Assurance(listened=True))
    assert fence.calls == ["lift"] and fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTED  # type: ignore[union-attr]
    assert lifts(tmp_path, fence) == [] and fence.calls == ["lift"], "a fence that is lifted is not lifted again"


@pytest.mark.parametrize("own", [False, True])
def test_report_of_another_attempt_gives_no_positions(tmp_path: Path, own: bool) -> None:
    """Groups go back to what the report of the attempt says whose fence is lifted."""
    run = a_run(tmp_path, fence := Recorder(tmp_path))
    go_up(run)
    rows = [{"topic": "orders", "partition": 0, "offset": 5, "metadata": ""}]
    report = CutoverReport(mirror="flow", plan_hash=run.plan.hash, id=run.me if own else "another")
    report.groups = [GroupRecord(group="g", settled="empty", source_state="Empty", before=rows, committed=True)]
    run.store.save(report)
    assert lifts(tmp_path, fence, known=Assurance(listened=True))
    assert fence.calls == ["lift", "restore"][: 2 if own else 1]


def test_stop_between_two_steps_backs_out(tmp_path: Path) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence, Acls())
    walked = fence.steps()
    stop = Step("drain", walked[2].leads_from, walked[2].to, lambda r: r.stop.set() or {})
    with pytest.raises(CutoverCancelled, match="drain"):
        walk(run, (*walked[:2], stop, *walked[3:]))
    assert fence.calls == ["raise", "prove_fence", "lift"]
