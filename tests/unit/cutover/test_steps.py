"""The walk through the steps: in order, and back again from every place at which it can break."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover import decision, other_fences, steps
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import (
    CLOSED,
    LIFTED,
    LIFTING,
    OPENED,
    UP,
    FenceState,
    begin_lifting,
    end_lifting,
    fence_state,
)
from airflow_mirror.cutover.decision import go_up as decide_up
from airflow_mirror.cutover.fence import AclFence, CallableFence, name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CutoverReport, GroupRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.run import recover
from airflow_mirror.cutover.steps import STEPS, Step, back_out, walk
from airflow_mirror.errors import (
    BrokerError,
    CutoverCancelled,
    CutoverTakenOver,
    DecidedLate,
    FencedByAnother,
    FenceNotLifted,
    FenceTooLong,
    MayBeOpen,
    OpeningUnfinished,
    OpenOutcomeUnknown,
    TryAgain,
    Undecided,
)
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.ledger.records import LAST_PLAN
from tests.unit.cutover.builders import (
    Acls,
    Topics,
    a_plan,
    go_up,
    kept_in,
    ledger_of,
    open_behind,
    platform_in,
    target_of,
)
from tests.unit.cutover.builders import a_run as bare_run
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

    def intent(self, topics: list[str]) -> Intent:
        return Intent(topics=tuple(topics))

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        permit()
        # What is changed is decided before the effect, or a kill right here could never be undone.
        there = fence_state(ledger_of(self._run_dir).values(), "flow")
        assert there is not None and there.phase == UP and self.on_record()["id"] == there.id
        assert intent == Intent(topics=("orders", "payments"))
        self.calls.append("raise")
        self._break("fence")

    def lift(self, intent: Intent, name: str, permit: Permit) -> None:
        permit()
        assert intent == Intent(topics=("orders", "payments"))
        self.calls.append("lift")
        self._break("lift")

    def is_up(self, intent: Intent) -> bool:
        return True

    def restore(self) -> None:
        self.calls.append("restore")
        self._break("restore")

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

        def opening(run: Attempt) -> dict[str, Any]:
            note("open_target")(run)
            run.opening = True
            open_behind(run)
            return {}

        def committing(run: Attempt) -> dict[str, Any]:
            run.report.groups = [GroupRecord(group="g", settled="", source_state="")]
            return note("commit_groups")(run)  # type: ignore[no-any-return]

        special = {"open_target": opening, "commit_groups": committing}
        return tuple(
            step if step.name == "fence" else replace(step, do=special.get(step.name, note(step.name))) for step in STEPS
        )


class Target(Topics):
    """A target whose groups are asked for when they are to be restored."""

    def __init__(self, fence: Any) -> None:
        self.fence = fence

    def groups_offsets(self, ids: list[str]) -> dict[str, dict[Any, Any]]:
        self.fence.restore()
        return {group: {} for group in ids}

    def commit_group_offsets(self, *_: Any) -> None:
        """Nothing was there before."""

    forget_group_offsets = commit_group_offsets


def a_run(tmp_path: Path, fence: Any, source: Any = None) -> Attempt:
    run = bare_run(tmp_path, fence, source)
    run.on.target.admin = Target(fence)  # type: ignore[assignment]
    return run


def lifts(run_dir: Path, fence: Any = None, source: Any = None, ledger: Any = None, **how: Any) -> list[str]:
    """As another process lifts what it finds."""
    on = platform_in(run_dir, source, Target(fence), ledger)
    return lift_leftover_fence(on, "flow", fence, runs=run_dir.parent, **how)


NAMES = [step.name for step in STEPS]


def test_each_step_leads_from_where_the_last_one_ended() -> None:
    assert [step.leads_from for step in STEPS[1:]] == [step.to for step in STEPS[:-1]]
    assert STEPS[0].leads_from == steps.CAUGHT_UP and STEPS[-1].to == steps.CUT_OVER


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
    assert fence.calls == ["raise", *done[1:], "lift", *restored], "producers come first"
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
    assert fence.calls[-2:] == ["lift", "restore"]
    assert run.report.outcome == reports.UNDO_FAILED and not run.report.is_fenced
    undone = [(row["step"], row["ok"]) for row in run.report.undone]
    assert undone == [("fence", True), ("commit_groups", False), ("stop_writers", True), ("decision", True)]


def test_groups_that_nobody_answers_for_are_restored_by_who_goes_on(tmp_path: Path) -> None:
    """Producers write again at once; that the fence is lifted is decided when the groups have their positions back."""
    walked = Recorder(tmp_path, "open_target")
    run = a_run(tmp_path, walked)
    with pytest.MonkeyPatch.context() as killed, suppress(RuntimeError):
        killed.setattr(steps, "back_out", lambda *_: None)
        walk(run, walked.steps())
    away = Recorder(tmp_path, "restore", TryAgain("no coordinator"))
    for _ in range(3):  # as a guard does
        with pytest.raises(FenceNotLifted, match="commit_groups: TryAgain: no coordinator"):
            lifts(tmp_path, away, known=Assurance(listened=True))
    report = kept_in(tmp_path).load()
    assert report is not None and [row["step"] for row in report.undone] == ["fence", "commit_groups", "stop_writers"]
    assert away.calls == 3 * ["lift", "restore"] and fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTING  # type: ignore[union-attr]
    again = Recorder(tmp_path)
    assert lifts(tmp_path, again, known=Assurance(listened=True))
    assert again.calls == ["lift", "restore"] and fence_state(ledger_of(tmp_path).values(), "flow").phase == LIFTED  # type: ignore[union-attr]


@pytest.mark.parametrize("by", ["its retry", "a lifter"])
def test_groups_that_the_owner_set_until_its_lifting_was_decided_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It was frozen when its report was read, went on, and died; until the decision its permits let it set groups."""
    walked = Recorder(tmp_path, "open_target")
    run = a_run(tmp_path, walked)
    with pytest.MonkeyPatch.context() as killed, suppress(RuntimeError):
        killed.setattr(steps, "back_out", lambda *_: None)
        walk(run, walked.steps())
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


AWAY = TryAgain("no broker answered")


def away(monkeypatch: pytest.MonkeyPatch, when: Callable[[CutoverReport], bool]) -> None:
    """Let the target answer no writing of a report that is chosen."""
    save = ReportStore.save

    def fails(self: ReportStore, report: CutoverReport) -> None:
        if when(report):
            raise AWAY
        save(self, report)

    monkeypatch.setattr(ReportStore, "save", fails)


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

    def fails(run: Attempt) -> dict[str, Any]:
        run.opening, run.on.target.ledger = sent, Away()  # type: ignore[misc]
        raise Undecided(["fence/flow"], "no broker answered")

    with pytest.raises(OpenOutcomeUnknown if sent else Undecided, match="no broker answered"):
        walk(run, [*STEPS[:1], replace(STEPS[1], do=fails)])
    assert bool(acls.acls) is sent and run.report.is_fenced is sent


def test_ledger_that_is_away_keeps_a_callable_up(tmp_path: Path) -> None:
    """Its owner may have slept: somebody else's cutover, which fences by the same function, is open behind it by now."""
    fence = Recorder(tmp_path, "drain")
    run = a_run(tmp_path, fence)

    def fails(run: Attempt) -> dict[str, Any]:
        run.on.target.ledger = Away()  # type: ignore[misc]
        raise Undecided(["fence/flow"], "no broker answered")

    with pytest.raises(OpenOutcomeUnknown, match="nothing there names a callable's attempt"):
        walk(run, [replace(step, do=fails) if step.name == "drain" else step for step in fence.steps()])
    assert "lift" not in fence.calls and run.report.is_fenced


def test_time_of_the_fence_ends_it_in_whatever_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in one that has a longer limit of its own, which is cut so that its own error comes first."""
    for at in NAMES[1:]:
        fence, clock = Recorder(tmp_path / at), [0.0]
        run = a_run(tmp_path / at, fence)
        monkeypatch.setattr(Attempt, "now", lambda _, clock=clock: clock[0])

        def late(run: Attempt, clock: list[float] = clock) -> dict[str, Any]:
            assert run.at_most(300.0) < run.limits.max_fence_s == run.at_most(300.0) + 2 * run.limits.poll_s
            clock[0] += run.limits.max_fence_s
            run.pause(0.0)
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

    def frozen(run: Attempt) -> dict[str, Any]:
        run.life.now_ms += 60_000  # type: ignore[attr-defined]
        open_behind(run)
        return {}

    with pytest.raises(DecidedLate):
        walk(run, [replace(step, do=frozen) if step.name == "open_target" else step for step in fence.steps()])
    assert "lift" in fence.calls and fence_state(run.life.values(), "flow").phase == LIFTED  # type: ignore[union-attr]
    assert not [key for key in run.life.values() if key.startswith("topic/")]


@pytest.mark.repeats
@pytest.mark.parametrize("woken_in", NAMES)
@pytest.mark.parametrize("cleared", [False, True])
def test_owner_that_was_frozen_in_any_step_opens_nothing(tmp_path: Path, woken_in: str, cleared: bool) -> None:
    """Somebody has decided to lift its fence, and perhaps is done with that. The owner undoes what it did, and stops."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def lifted(step: Step) -> Step:
        def do(run: Attempt) -> dict[str, Any]:
            lifting = lift_elsewhere(tmp_path, cleared=cleared)
            assert lifting is not None or step.name == "fence"
            fence.calls.append("woken")
            return step.do(run)

        return replace(step, do=do) if step.name == woken_in else step

    if woken_in == "fence":  # nothing was decided yet: it is as alive as any
        walk(run, [lifted(step) for step in fence.steps()])
        return
    with pytest.raises(CutoverTakenOver):
        walk(run, [lifted(step) for step in fence.steps()])
    its = fence.calls[fence.calls.index("woken") :]
    assert ("lift" in its) is not cleared, "what somebody else is not done with it takes over"
    state = fence_state(run.life.values(), "flow")
    assert state is not None and state.phase == LIFTED
    assert not [key for key in run.life.values() if key.startswith("topic/")]


def lift_elsewhere(run_dir: Path, *, cleared: bool = True) -> Any:
    """Decide, as a guard does, that what stands is lifted, and perhaps that it is done."""
    other = ledger_of(run_dir)
    there = fence_state(other.values(), "flow")
    lifting = None if there is None else begin_lifting(other, "flow", there, "guard")
    if lifting is not None and cleared:
        end_lifting(other, "flow", lifting)
    return lifting


def test_owner_leaves_another_attempts_fence_alone(tmp_path: Path) -> None:
    """It was frozen for so long that the next cutover of the mirror is at work."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def wake(run: Attempt) -> dict[str, Any]:
        lift_elsewhere(tmp_path)
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

    def claim(self, name: str, permit: Permit) -> None:
        """Its name comes with its rules."""

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        permit()
        self._meanwhile()
        super().raise_(intent, name, unfenced)  # as a request that had been on its way already


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
        lift_elsewhere(tmp_path)
        after = a_run(tmp_path, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
        after.report.attempt, seconds[:] = 2, [after]
        walk(after, STEPS[:1])
        if next_ends == "lifted":
            back_out(after)
            return
        open_behind(after)
        if next_ends == "not kept":
            assert after.up is not None
            raised = Raised.of(after.on, "flow", after.up, after.fence, after.report)
            assert raised.close().phase == CLOSED

    seconds = list[Attempt]()
    run = a_run(tmp_path, FrozenBefore(source, meanwhile), source)
    with pytest.raises(CutoverTakenOver):
        walk(run)
    denied = sorted(a.name for a in source.acls if a.resource_type == "TOPIC")
    assert denied == (["orders", "payments"] if next_ends == "kept" else [])
    named = AclFence(source).standing("flow")  # type: ignore[arg-type]
    assert named == ({name_of("flow", run.kept.run, seconds[0].me): False} if denied else {})


@pytest.mark.usefixtures("nobody_to_ask")
def test_what_is_raised_while_somebody_lifts_it_is_taken_back(tmp_path: Path) -> None:
    """Who lifts it had seen that all was gone, and had groups to restore yet; it would not have looked again."""
    source = Acls()
    run = a_run(tmp_path, FrozenBefore(source, lambda: lift_elsewhere(tmp_path, cleared=False)), source)
    with pytest.raises(CutoverTakenOver):
        steps.raise_fence(run)
    assert source.acls == set()


@pytest.mark.usefixtures("nobody_to_ask")
def test_what_was_raised_in_vain_is_another_mirrors_fence_by_now(tmp_path: Path) -> None:
    """Both fence the same topics, by the same rules: the other one's target is open, and its old source would be, too."""
    source, named = Acls(), name_of("other", "r1", "1")

    def meanwhile() -> None:
        lift_elsewhere(tmp_path)
        other = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
        other.raise_(other.intent(["orders", "payments"]), named, unfenced)

    run = a_run(tmp_path, FrozenBefore(source, meanwhile), source)
    with pytest.raises(CutoverTakenOver):
        walk(run)
    assert sorted(a.name for a in source.acls if a.permission == "DENY") == [named, "orders", "payments"]


class NamedMeanwhile(AclFence):
    """A fence beside which another mirror's is named, once it was looked for others."""

    def __init__(self, source: Acls, other: str) -> None:
        super().__init__(source, open_by_default=False)  # type: ignore[arg-type]
        self._other = other

    def claim(self, name: str, permit: Permit) -> None:
        AclFence(self._source).claim(self._other, unfenced)
        super().claim(name, permit)


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("raised", [False, True])
def test_of_two_mirrors_that_fence_in_the_same_second_one_steps_back(tmp_path: Path, raised: bool) -> None:
    """Their rules are the same: the first to lift would open the source of both. The other one's are left alone."""
    source, named = Acls(), name_of("other", "r1", "1")
    other = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
    run = a_run(tmp_path, NamedMeanwhile(source, named), source)
    looked = run.fence.intent

    def meanwhile(topics: Any) -> Intent:
        intent = looked(topics)
        if raised:  # by the time at which we look for it: rules that we have not seen
            run.require_guard = lambda: other.raise_(intent, named, unfenced)  # type: ignore[misc]
        return intent

    run.fence.intent = meanwhile  # type: ignore[method-assign]
    with pytest.raises(FencedByAnother, match="other:r1:1"):
        walk(run)
    assert sorted({a.name for a in source.acls}) == sorted([named, *(["orders", "payments"] if raised else [])])
    there = fence_state(run.life.values(), "flow")
    assert there is not None and there.phase == LIFTED and not run.report.is_fenced


@pytest.mark.usefixtures("nobody_to_ask")
def test_name_that_comes_after_it_was_lifted_is_taken_back(tmp_path: Path) -> None:
    """Its owner was frozen before the bytes of its name: left there, it would refuse each later cutover of the mirror."""
    source = Acls()
    fence = AclFence(source, open_by_default=False)  # type: ignore[arg-type]

    def claim(name: str, permit: Permit) -> None:
        lift_elsewhere(tmp_path)
        AclFence.claim(fence, name, unfenced)

    fence.claim = claim  # type: ignore[method-assign]
    with pytest.raises(CutoverTakenOver):
        walk(a_run(tmp_path, fence, source))
    assert source.acls == set()


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("other", ["other:by:hand:1", "a-name-of-somebody"])
def test_whose_name_tells_no_attempt_may_fence_any_topic(tmp_path: Path, other: str) -> None:
    """The run of a cutover by hand is whatever a person called it; and anybody may name a group as fences are named."""
    source = Acls()
    run = a_run(tmp_path, NamedMeanwhile(source, f"airflow-mirror.fence.{other}"), source)
    with pytest.raises(FencedByAnother, match=other):
        walk(run)
    assert [a.name for a in source.acls] == [f"airflow-mirror.fence.{other}"]


@pytest.mark.usefixtures("nobody_to_ask")
def test_cutover_that_is_stopped_while_it_waits_for_anothers_rules_never_fences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's decision is in another target's ledger: it may be between its name and its rules."""
    monkeypatch.setattr(other_fences, "READ_BACK_S", 0.1)
    monkeypatch.setattr(other_fences, "_ON_THE_WAY_S", 0.1)
    source, named = Acls(), name_of("other", "r1", "1")
    fence = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
    fence.claim(named, unfenced)
    run, looked = a_run(tmp_path, fence, source), fence.require_no_other

    def look(mirror: str, topics: Any, of_run: str = "") -> list[str]:
        run.stop.set()
        return looked(mirror, topics, of_run)

    fence.require_no_other = look  # type: ignore[method-assign]
    with pytest.raises(CutoverCancelled):
        walk(run)
    assert fence_state(run.life.values(), "flow") is None and [a.name for a in source.acls] == [named]


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("dies", ["before its name", "behind its name"])
def test_who_lifts_one_that_died_before_its_rules_leaves_another_mirrors_alone(tmp_path: Path, dies: str) -> None:
    """It was decided to be up, and had not looked for others by its name: the rules there are of who came meanwhile."""
    source, named = Acls(), name_of("other", "r1", "1")
    other, fence = AclFence(source, open_by_default=False), AclFence(source, open_by_default=False)  # type: ignore[arg-type]

    def claim(name: str, permit: Permit) -> None:
        if dies == "behind its name":
            AclFence.claim(fence, name, permit)
        other.raise_(other.intent(["orders", "payments"]), named, unfenced)
        raise KeyboardInterrupt

    fence.claim = claim  # type: ignore[method-assign]
    run = a_run(tmp_path, fence, source)
    with pytest.MonkeyPatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        walk(run)
    lifts(tmp_path, source=source, known=Assurance(listened=True))
    assert sorted(a.name for a in source.acls) == [named, "orders", "payments"]
    there = fence_state(run.life.values(), "flow")
    assert there is not None and there.phase == LIFTED


@pytest.mark.usefixtures("nobody_to_ask")
def test_who_lifts_undoes_what_its_owner_has_decided_since_it_was_read(tmp_path: Path) -> None:
    """Its owner was frozen behind its name; it thaws when somebody has read it, raises its rules, and dies."""
    source = Acls()
    fence = AclFence(source, open_by_default=False)  # type: ignore[arg-type]
    run = a_run(tmp_path, fence, source)
    read: list[Raised] = []

    def claim(name: str, permit: Permit) -> None:
        AclFence.claim(fence, name, permit)
        there = fence_state(ledger_of(tmp_path).values(), "flow")
        assert there is not None
        read.append(Raised.of(platform_in(tmp_path, source, Target(None)), "flow", there, None, None))

    fence.claim = claim  # type: ignore[method-assign]
    steps.raise_fence(run)
    assert fence.is_up(run.intent)
    assert read[0].begin("a guard") and read[0].undo()
    assert source.acls == set()


@pytest.mark.usefixtures("nobody_to_ask")
def test_mirrors_of_other_topics_fence_in_the_same_second(tmp_path: Path) -> None:
    """Two waves: the ledger knows what the other one's fence is about."""
    source, plan = Acls(), a_plan("audit")
    target_of(tmp_path).write(in_pieces(f"plan/other/{plan.hash}", plan.to_json().encode()))
    run = a_run(tmp_path, NamedMeanwhile(source, name_of("other", "r1", "1")), source)
    up = FenceState(run="r1", attempt=1, id="1", plan=plan.hash, revision=plan.revision, owner="o", max_fence_s=60.0)
    run.life.decide(lambda _: LAST_PLAN.put({"hash": plan.hash}, "other"))
    decide_up(run.life, "other", up, None, None)
    steps.raise_fence(run)
    assert run.fence.is_up(run.intent)


@pytest.mark.usefixtures("nobody_to_ask")
def test_attempt_that_never_was_up_leaves_anothers_opening_alone(tmp_path: Path) -> None:
    """Its process was killed between its report and its decision. The next run has opened the target since."""
    source = Acls()
    dead = a_run(tmp_path / "r2", AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    other = a_run(tmp_path / "r1", AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    dead.on.target.ledger = other.life  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        dead.require_guard = raising(KeyboardInterrupt())
        walk(dead)
    assert dead.kept.load() is None or dead.kept.load() == dead.kept.on_disk(), "the target has no report of it"
    walk(other, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    open_behind(other)
    other.report.outcome = reports.RUNNING
    other.save()
    with pytest.raises(OpeningUnfinished):
        lifts(tmp_path / "r1", source=source)
    assert lifts(tmp_path / "r1", source=source, run="r2") == []
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
            lifts(tmp_path, fence)
        assert fence.calls == ["raise"]
        return
    assert lifts(tmp_path, fence, known=Assurance(listened=True))
    assert fence.calls == ["raise", "lift"]
    with pytest.raises(CutoverTakenOver):
        open_behind(run)


@pytest.mark.usefixtures("nobody_to_ask")
@pytest.mark.parametrize("announced", [False, True])
def test_source_says_whose_fence_it_is_while_the_ledger_is_away(tmp_path: Path, announced: bool) -> None:
    """Where an opening is announced the target may be open; where another attempt is named the rules are that one's."""
    source = Acls()
    run = a_run(tmp_path, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    name = name_of("flow", run.kept.run, run.me)
    if announced:
        AclFence(source).announce(name, unfenced)  # type: ignore[arg-type]
        with pytest.raises(MayBeOpen, match="about to be opened"):
            lifts(tmp_path, source=source, ledger=Away(), run=run.kept.run)
        assert AclFence(source).standing("flow") == {name: True}  # type: ignore[arg-type]
        assert lifts(tmp_path, source=source, ledger=Away(), run=run.kept.run, include_retained=True)
        assert not source.acls, "the name goes with the fence"
        return
    other = name_of("flow", "another", "1")
    AclFence(source).announce(other, unfenced)  # type: ignore[arg-type]
    with pytest.raises(MayBeOpen, match="another attempt"):
        lifts(tmp_path, source=source, ledger=Away(), run=run.kept.run)
    AclFence(source).forget(other, unfenced)  # type: ignore[arg-type]
    assert lifts(tmp_path, source=source, ledger=Away(), run=run.kept.run) and not source.acls


@pytest.mark.usefixtures("nobody_to_ask")
def test_report_of_a_fence_that_is_long_gone_is_no_fault_once_the_one_that_stands_is_lifted(tmp_path: Path) -> None:
    """Its target was told that it was lifted, and this host was not."""
    source, run_dir = Acls(), tmp_path / "sunday"
    run = a_run(run_dir, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    shutil.copytree(run_dir, tmp_path / "saturday", ignore=shutil.ignore_patterns("lock"))
    on = platform_in(run_dir, source, None, Away())
    assert lift_leftover_fence(on, "flow", runs=tmp_path) and not source.acls


@pytest.mark.usefixtures("nobody_to_ask")
def test_no_fence_that_may_be_open_is_lifted_without_a_ledger_of_whatever_kind(tmp_path: Path) -> None:
    source, run_dir, off = Acls(), tmp_path / "sunday", list[str]()
    run = a_run(run_dir, AclFence(source, open_by_default=False), source)  # type: ignore[arg-type]
    walk(run, [*STEPS[:1], replace(STEPS[1], do=lambda _: {})])
    run.report.outcome = reports.RUNNING
    run.save()
    AclFence(source).announce(name_of("flow", run.kept.run, run.me), unfenced)  # type: ignore[arg-type]
    shutil.copytree(run_dir, tmp_path / "saturday", ignore=shutil.ignore_patterns("lock"))
    other = CutoverReport.load(tmp_path / "saturday")
    assert other is not None and other.fence is not None
    other.fence.kind = "callable"
    ReportStore(None, "flow", "saturday", tmp_path / "saturday").save_here(other)  # type: ignore[arg-type]
    on = platform_in(run_dir, source, None, Away())
    fence = CallableFence(print, lambda: off.append("off"))
    for name, why in {"saturday": "nothing there names", run_dir.name: "about to be opened"}.items():
        with pytest.raises(MayBeOpen, match=why):
            lift_leftover_fence(on, "flow", fence, runs=tmp_path, run=name)
    assert off == [] and AclFence(source).is_up(run.intent)  # type: ignore[arg-type]
    assert lift_leftover_fence(on, "flow", fence, runs=tmp_path, include_retained=True) and not source.acls
    assert off == ["off"]


def next_process(run_dir: Path) -> tuple[CutoverReport | None, list[str]]:
    """Return what a process on another host finds, after it has undone that, and what it called."""
    shutil.rmtree(run_dir, ignore_errors=True)
    recorder = Recorder(run_dir)
    run = a_run(run_dir, recorder)
    found = recover(run)
    return found, [*recorder.calls, *(["go on"] if run.opening else [])]


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
    run: Attempt = a_run(tmp_path, dead)
    with pytest.MonkeyPatch.context() as killed, suppress(RuntimeError):
        killed.setattr(steps, "back_out", lambda *_, **__: None)
        killed.setattr(ReportStore, "save", lambda *_: None)  # it died before its first report
        killed.setattr(Recorder, "on_record", lambda _: {"id": run.me})
        walk(run, [*dead.steps()[:1], replace(dead.steps()[1], do=lambda _: raising(RuntimeError("killed"))())])  # type: ignore[arg-type, return-value]
    fence = Recorder(tmp_path)
    assert target_of(tmp_path).read().keys() == {f"plan/flow/{run.plan.hash}/0/1"}, "it has left no report"
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
    run.kept.save(report)
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
