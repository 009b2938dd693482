"""The walk through the steps: in order, and back again from every place at which it can break."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import steps
from airflow_mirror.cutover.context import Run
from airflow_mirror.cutover.decision import LIFTED, LIFTING, OPENED, begin_lifting, end_lifting, fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.marker import attempts_named, group_of, has_marker, remove_marker, set_marker
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, StepRecord
from airflow_mirror.cutover.run import lift_leftover_fence, recover
from airflow_mirror.cutover.steps import EXPIRE_ON_RESTART, STEPS, Step, back_out, walk
from airflow_mirror.errors import (
    BrokerError,
    CutoverCancelled,
    CutoverTakenOver,
    DecidedLate,
    EndUnknown,
    FenceNotLifted,
    FenceTooLong,
    MayBeOpen,
    OpeningUnfinished,
    TryAgain,
    Undecided,
)
from tests.unit.cutover.builders import Acls, a_run, go_up, kept_in, ledger_of, open_behind
from tests.unit.cutover.test_run import Away


class Recorder:
    """A fence, and steps around it, that write down what happens and break where told to."""

    kind = "callable"

    def __init__(self, run_dir: Path, broken: str = "", error: BaseException | None = None) -> None:
        self.calls: list[str] = []
        self._run_dir, self._broken, self._error = run_dir, broken, error or RuntimeError("broken")

    def on_record(self) -> dict[str, Any]:
        found = kept_in(self._run_dir).load()
        assert found is not None
        return found.to_dict()

    def intent(self, topics: list[str]) -> dict[str, Any]:
        return {"topics": topics}

    def raise_(self, intent: dict[str, Any]) -> None:
        # The intent must be on the target before the effect, or a kill right here could never be undone.
        assert self.on_record()["fence"]["intent"] == intent == {"topics": ["orders", "payments"]}
        self.calls.append("raise")
        self._break("fence")

    def lift(self, intent: dict[str, Any]) -> None:
        assert intent == {"topics": ["orders", "payments"]}
        self.calls.append("lift")
        self._break("lift")

    def is_up(self, intent: dict[str, Any]) -> bool:
        return True

    def _break(self, name: str) -> None:
        if self._broken == name:
            raise self._error

    def steps(self) -> tuple[Step, ...]:
        """The real steps; the effects of all but the fence only leave a note."""

        def note(name: str) -> Any:
            def do(_run: Any) -> dict[str, Any]:
                self.calls.append(name)
                self._break(name)
                return {}

            return do

        def opening(run: Run) -> dict[str, Any]:
            note("open_target")(run)
            run.opening = True
            open_behind(run)
            return {}

        def undo(_run: Any) -> str:
            self.calls.append("restore")
            self._break("restore")
            return "groups restored"

        return tuple(
            step
            if step.name == "fence"
            else replace(
                step,
                do=opening if step.name == "open_target" else note(step.name),
                undo=undo if step.name == "commit_groups" else step.undo,
            )
            for step in STEPS
        )


NAMES = [step.name for step in STEPS]


def test_each_step_leads_from_where_the_last_one_ended() -> None:
    assert [step.leads_from for step in STEPS[1:]] == [step.to for step in STEPS[:-1]]
    assert STEPS[0].leads_from == steps.CAUGHT_UP and STEPS[-1].to == steps.CUT_OVER
    # Whatever is not the end expires: nobody watched the writers while no process ran.
    assert {step.to for step in STEPS} - {steps.CUT_OVER} == EXPIRE_ON_RESTART
    assert STEPS[-1].undo is None


def test_all_steps_in_order_and_nothing_undone(tmp_path: Path) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)
    walk(run, fence.steps())
    assert fence.calls == ["raise", *NAMES[1:]]
    assert (run.report.outcome, run.report.state, run.report.undone) == (reports.DONE, steps.CUT_OVER, [])
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
    assert fence.calls == ["raise", *done[1:], *restored, "lift"]
    on_record = fence.on_record()
    assert on_record["outcome"] == reports.BACKED_OUT and on_record["state"] == steps.CAUGHT_UP
    assert on_record["fence"]["lifted"] is not None and on_record["error"].startswith(type(error).__name__)
    assert on_record["steps"][-1]["name"] == broken and on_record["steps"][-1]["status"] == "failed"


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
    assert fence.calls[-2:] == ["restore", "lift"]
    assert run.report.outcome == reports.UNDO_FAILED and not run.report.is_fenced
    undone = [(row["step"], row["ok"]) for row in run.report.undone]
    assert undone == [("commit_groups", False), ("stop_writers", True), ("fence", True)]


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
    monkeypatch.setattr(steps.time, "sleep", lambda _: None)  # type: ignore[attr-defined]

    class Flaky(Recorder):
        def _break(self, name: str) -> None:
            if name == "drain":
                raise RuntimeError(name)
            if name == "lift" and self.calls.count("lift") < 4:
                raise BrokerError("delete ACL", 7, "REQUEST_TIMED_OUT")

    fence = Flaky(tmp_path)
    run = a_run(tmp_path, fence)
    with pytest.raises(RuntimeError, match="drain"):
        walk(run, fence.steps())
    assert fence.calls.count("lift") == 4 and run.report.outcome == reports.BACKED_OUT


AWAY = TryAgain("no broker answered")


def away(monkeypatch: pytest.MonkeyPatch, when: Callable[[CutoverReport], bool]) -> None:
    """Let the target answer no writing of a report that is chosen."""
    save = Kept.save

    def fails(self: Kept, report: CutoverReport) -> None:
        if when(report):
            raise AWAY
        save(self, report)

    monkeypatch.setattr(Kept, "save", fails)


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
    for writings in (0, 1):  # the step's own, and that of what the fence will change
        fence = Recorder(tmp_path)
        seen: list[CutoverReport] = []
        away(monkeypatch, lambda report, n=writings, seen=seen: seen.append(report) or len(seen) > n)  # type: ignore[misc]
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
    save, gone = Kept.save, list[str]()

    def gone_at_the_end(self: Kept, report: CutoverReport) -> None:
        if report.outcome == reports.DONE or gone:
            if arrives and not gone:
                save(self, report)
            gone.append("")
            raise AWAY
        save(self, report)

    with monkeypatch.context() as patched, pytest.raises(TryAgain, match="no broker answered"):
        patched.setattr(Kept, "save", gone_at_the_end)
        walk(a_run(tmp_path, fence), fence.steps())
    assert "lift" not in fence.calls
    found, calls = next_process(tmp_path, monkeypatch)
    assert found is not None and (found.outcome, calls) == (
        (reports.DONE, []) if arrives else (reports.RUNNING, ["go on"])
    )


@pytest.mark.parametrize("sent", [False, True])
def test_ledger_that_is_away_keeps_a_fence_up_only_behind_an_opening(tmp_path: Path, sent: bool) -> None:
    """Before the decision to open was sent nobody else can have opened the target."""
    fence = Recorder(tmp_path, "open_target" if sent else "drain")
    run = a_run(tmp_path, fence)

    def fails(step: Step) -> Step:
        def do(run: Run) -> dict[str, Any]:
            run.opening, run.life = sent, Away()
            raise Undecided(["fence/flow"], "no broker answered")

        return replace(step, do=do) if step.name == ("open_target" if sent else "drain") else step

    with pytest.raises(EndUnknown if sent else Undecided, match="no broker answered"):
        walk(run, [fails(step) for step in fence.steps()])
    assert ("lift" in fence.calls) is not sent and run.report.is_fenced is sent


def test_time_of_the_fence_ends_it_in_whatever_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in one that has a longer limit of its own, which is cut so that its own error comes first."""
    for at in NAMES[1:]:
        fence, clock = Recorder(tmp_path / at), [0.0]
        run = a_run(tmp_path / at, fence)
        monkeypatch.setattr(Run, "now", lambda _, clock=clock: clock[0])

        def late(run: Run, clock: list[float] = clock) -> dict[str, Any]:
            assert run.at_most(300.0) < run.limits.max_fence_s == run.at_most(300.0) + 2 * run.limits.poll_s
            clock[0] += run.limits.max_fence_s
            run.pause(0.0)
            return {}

        with pytest.raises(FenceTooLong, match=f"60 s .max_fence_s., and the cutover was still at '{at}'"):
            walk(run, [replace(step, do=late) if step.name == at else step for step in fence.steps()])
        assert fence.calls[-1] == "lift" and fence.on_record()["outcome"] == reports.BACKED_OUT


def test_log_says_each_second_what_a_fence_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in one long wait, and not before the fence is raised."""
    clock = [0.0]
    run = a_run(tmp_path, Recorder(tmp_path))
    monkeypatch.setattr(Run, "now", lambda _: clock[0])

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

    def frozen(run: Run) -> dict[str, Any]:
        run.life.now_ms += 60_000  # type: ignore[attr-defined]
        open_behind(run)
        return {}

    with pytest.raises(DecidedLate):
        walk(run, [replace(step, do=frozen) if step.name == "open_target" else step for step in fence.steps()])
    assert fence.calls[-1] == "lift" and fence_state(run.life.values(), "flow").phase == LIFTED  # type: ignore[union-attr]
    assert not [key for key in run.life.values() if key.startswith("topic/")]


@pytest.mark.repeats
@pytest.mark.parametrize("woken_in", NAMES)
@pytest.mark.parametrize("cleared", [False, True])
def test_owner_that_was_frozen_in_any_step_opens_nothing(tmp_path: Path, woken_in: str, cleared: bool) -> None:
    """Somebody has decided to lift its fence, and perhaps is done with that. The owner undoes what it did, and stops."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def lifted(step: Step) -> Step:
        def do(run: Run) -> dict[str, Any]:
            other = ledger_of(tmp_path)
            begin_lifting(other, "flow", steps.attempt_of(run.kept.run, run.report), "guard")
            if cleared:
                end_lifting(other, "flow", "guard")
            fence.calls.append("woken")
            return step.do(run)

        return replace(step, do=do) if step.name == woken_in else step

    with pytest.raises(CutoverTakenOver):
        walk(run, [lifted(step) for step in fence.steps()])
    assert fence.calls[-1] == ("lift" if woken_in != "fence" else "woken")
    state = fence_state(run.life.values(), "flow")
    assert state is not None and state.phase == (LIFTED if woken_in != "fence" or cleared else LIFTING)
    assert not [key for key in run.life.values() if key.startswith("topic/")]


def test_owner_leaves_another_attempts_fence_alone(tmp_path: Path) -> None:
    """It was frozen for so long that the next cutover of the mirror is at work."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def wake(run: Run) -> dict[str, Any]:
        other = ledger_of(tmp_path)
        begin_lifting(other, "flow", steps.attempt_of(run.kept.run, run.report), "guard")
        end_lifting(other, "flow", "guard")
        after = a_run(tmp_path, fence)
        after.report.attempt = 2
        go_up(after)
        raise RuntimeError("the fence leaks")

    with pytest.raises(CutoverTakenOver, match="opens and undoes nothing"):
        walk(run, [replace(step, do=wake) if step.name == "drain" else step for step in fence.steps()])
    assert "lift" not in fence.calls and run.report.undone == []


class FrozenBefore(AclFence):
    """A fence whose owner stands still before its request, until something else has happened."""

    def __init__(self, source: Acls, meanwhile: Callable[[], object]) -> None:
        super().__init__(source, open_by_default=False)  # type: ignore[arg-type]
        self._meanwhile = meanwhile

    def raise_(self, intent: dict[str, Any]) -> None:
        self._meanwhile()
        super().raise_(intent)


@pytest.fixture
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """No log: nothing is asked of leaders before a fence."""
    monkeypatch.setattr(steps, "look_before", lambda _: {"by": "acls", "why": ""})
    monkeypatch.setattr(steps, "look_for_unseen", lambda _: "")


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("next_ends", ["lifted", "kept", "not kept"])
def test_fence_that_is_raised_after_it_was_lifted_is_taken_back(tmp_path: Path, next_ends: str) -> None:
    """Its owner was frozen before its request; a guard has lifted it, and the next attempt came and went."""
    source = Acls()

    def meanwhile() -> None:
        other = ledger_of(tmp_path)
        begin_lifting(other, "flow", steps.attempt_of(run.kept.run, run.report), "guard")
        remove_marker(source, "flow", run.kept.run, 1)  # type: ignore[arg-type]
        end_lifting(other, "flow", "guard")
        after = a_run(tmp_path, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
        after.report.attempt = 2
        walk(after, STEPS[:1])
        if next_ends == "lifted":
            back_out(after)
        else:
            open_behind(after)
            if next_ends == "not kept":
                steps.lift_fence(after)

    run = a_run(tmp_path, FrozenBefore(source, meanwhile), source)
    with pytest.raises(CutoverTakenOver):
        walk(run)
    denied = sorted(a.name for a in source.acls if a.resource_type == "TOPIC")
    assert denied == (["orders", "payments"] if next_ends == "kept" else [])
    assert attempts_named(source, "flow") == ({group_of("flow", run.kept.run, 2)} if denied else set())  # type: ignore[arg-type]


@pytest.mark.usefixtures("nobody_to_ask")
def test_attempt_that_never_was_up_leaves_anothers_opening_alone(tmp_path: Path) -> None:
    """Its process was killed between its report and its decision. The next run has opened the target since."""
    source = Acls()
    dead = a_run(tmp_path / "r2", AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    other = a_run(tmp_path / "r1", AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    dead.life = other.life
    with pytest.MonkeyPatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        dead.require_guard = raising(KeyboardInterrupt())
        walk(dead)
    steps.raise_fence(other)
    open_behind(other)
    with pytest.raises(CutoverTakenOver):
        lift_leftover_fence(dead.kept, source, dead.target, life=ledger_of(tmp_path / "r1"))  # type: ignore[arg-type]
    with pytest.raises(CutoverTakenOver):
        recover(dead)
    there = fence_state(other.life.values(), "flow")
    assert there is not None and (there.run, there.phase) == ("r1", OPENED)
    assert sorted(a.name for a in source.acls if a.resource_type == "TOPIC") == ["orders", "payments"]


def raising(error: BaseException) -> Callable[[], object]:
    def do() -> object:
        raise error

    return do


@pytest.mark.parametrize("opened", [False, True])
def test_who_lifts_loses_to_an_opening_and_wins_before_it(tmp_path: Path, opened: bool) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)
    with pytest.MonkeyPatch.context() as killed, pytest.raises(FenceNotLifted):
        killed.setattr(steps, "back_out", lambda *_, **__: run.report.undone.append({}))
        broken = Recorder(tmp_path, "drain")
        walk(run, broken.steps())
    if opened:
        open_behind(run)
        with pytest.raises(OpeningUnfinished, match="run the cutover again"):
            lift_leftover_fence(kept_in(tmp_path), run.source, run.source, fence, life=ledger_of(tmp_path))
        assert fence.calls == ["raise"]
        return
    assert lift_leftover_fence(kept_in(tmp_path), run.source, run.source, fence, life=ledger_of(tmp_path))
    assert fence.calls == ["raise", "lift"]
    with pytest.raises(CutoverTakenOver):
        open_behind(run)


def test_marker_keeps_a_fence_up_while_the_ledger_is_away(tmp_path: Path) -> None:
    """It says that the target may be open. A person decides."""
    source = Acls()
    run = a_run(tmp_path, AclFence(source), source)  # type: ignore[arg-type]
    run.report.fence = FenceRecord(kind="acl", intent={"deny": [], "allow": [], "held": []}, requested=1.0)
    run.save()
    set_marker(source, "flow", run.kept.run, 1)  # type: ignore[arg-type]
    with pytest.raises(MayBeOpen, match="its marker stands there, and no broker answered"):
        lift_leftover_fence(kept_in(tmp_path), run.source, run.source, life=Away())
    assert has_marker(source, "flow", run.kept.run, 1)  # type: ignore[arg-type]
    lift_leftover_fence(kept_in(tmp_path), run.source, run.source, life=Away(), kept_too=True)
    assert not source.acls, "it goes with the fence"

    set_marker(source, "flow", run.kept.run, 2)  # type: ignore[arg-type]
    set_marker(source, "flow", "another", 1)  # type: ignore[arg-type]
    run.save()
    lift_leftover_fence(kept_in(tmp_path), run.source, run.source, life=Away())
    assert len(source.acls) == 2, "those of other attempts say nothing about this one"

    run.report.steps = [StepRecord(name="open_target", status="running", started=1.0)]
    run.save()
    with pytest.raises(MayBeOpen, match="about to open the target"):
        lift_leftover_fence(kept_in(tmp_path), run.source, run.source, life=Away())


def next_process(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CutoverReport | None, list[str]]:
    """Return what a process on another host finds, after it has undone that, and what it called."""
    shutil.rmtree(run_dir, ignore_errors=True)
    recorder = Recorder(run_dir)
    with monkeypatch.context() as patched:
        patched.setattr(back_out, "__defaults__", (recorder.steps(),))
        run = a_run(run_dir, recorder)
        found = recover(run)
        return found, [*recorder.calls, *(["go on"] if run.opening else [])]


@pytest.mark.repeats
@pytest.mark.parametrize("written", [False, True])
def test_next_process_on_an_empty_disk_undoes_a_kill_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The first process dies right before, or after, its n-th writing arrives. Its host is lost with it."""
    save, killed = Kept.save, 0
    for fatal in range(60):
        run_dir = tmp_path / f"run-{fatal}"
        first, writings = Recorder(run_dir), 0

        def save_or_die(self: Kept, report: CutoverReport, fatal: int = fatal) -> None:
            nonlocal writings
            writings += 1
            if written or writings <= fatal:
                save(self, report)
            if writings > fatal:
                raise SystemExit

        with monkeypatch.context() as patched, suppress(SystemExit, FenceNotLifted):
            patched.setattr(Kept, "save", save_or_die)
            patched.setattr(steps, "back_out", lambda *_, **__: None)  # nobody lives to do that
            walk(a_run(run_dir, first), first.steps())
        found, calls = next_process(run_dir, monkeypatch)
        if first.calls[-1:] == ["open_target"]:
            assert found is not None and calls == ([] if found.outcome == reports.DONE else ["go on"])
            if writings <= fatal:
                break
            continue
        killed += 1
        assert ("raise" not in first.calls) or calls[-1] == "lift"
        assert ("commit_groups" not in first.calls) or calls[-2:] == ["restore", "lift"]
        assert found is None or found.outcome == reports.BACKED_OUT
    assert killed > 15


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
        def lift(self, intent: dict[str, Any]) -> None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
                os.kill(os.getpid(), number)
            super().lift(intent)

    fence = Impatient(tmp_path, "drain", KeyboardInterrupt())
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        walk(a_run(tmp_path, fence), fence.steps())
    assert fence.calls[-1] == "lift" and fence.on_record()["outcome"] == reports.BACKED_OUT
    assert signal.getsignal(signal.SIGINT) is before


def test_report_of_a_killed_attempt_is_enough_to_go_back(tmp_path: Path) -> None:
    """Nothing but the file is left of the process; kill -9 on real brokers is in the integration tests."""
    dead = Recorder(tmp_path)
    run = a_run(tmp_path, dead)
    walk(run, dead.steps()[:3])
    left = kept_in(tmp_path).load()
    assert left is not None
    left.outcome = reports.RUNNING  # as a process leaves it that is killed in the fourth step
    fence = Recorder(tmp_path)
    second = a_run(tmp_path, fence)
    second.report = left
    back_out(second, fence.steps(), owned=False)
    assert fence.calls == ["lift"] and left.outcome == reports.BACKED_OUT
    back_out(second, fence.steps(), owned=False)
    assert fence.calls == ["lift"], "a fence that is lifted is not lifted again"


def test_stop_between_two_steps_backs_out(tmp_path: Path) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence, Acls())
    walked = fence.steps()
    stop = Step("drain", walked[2].leads_from, walked[2].to, lambda r: r.stop.set() or {}, None)
    with pytest.raises(CutoverCancelled, match="drain"):
        walk(run, (*walked[:2], stop, *walked[3:]))
    assert fence.calls == ["raise", "prove_fence", "lift"]
