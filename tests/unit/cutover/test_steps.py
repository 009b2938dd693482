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
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.run import _interruptible, lift_leftover_fence, recover
from airflow_mirror.cutover.steps import EXPIRE_ON_RESTART, STEPS, Step, back_out, walk
from airflow_mirror.errors import BrokerError, CutoverCancelled, CutoverTakenOver, EndUnknown, FenceNotLifted, TryAgain
from tests.unit.cutover.builders import Acls, a_run, kept_in


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

        def undo(_run: Any) -> str:
            self.calls.append("restore")
            self._break("restore")
            return "groups restored"

        return tuple(
            step
            if step.name == "fence"
            else Step(
                step.name, step.leads_from, step.to, note(step.name), undo if step.name == "commit_groups" else step.undo
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
    assert undone == [("hand_over", True), ("commit_groups", False), ("stop_writers", True), ("fence", True)]


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


def test_end_that_could_not_be_recorded_is_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last write decides: without it on the target, a restart would undo, so who could not write it does.

    The answer alone may be lost. So the target is told that this is not the end before anything is undone.
    """
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)
    save = Kept.save

    def loses_an_answer(self: Kept, report: CutoverReport) -> None:
        if "lift" in fence.calls:
            raise AWAY
        save(self, report)
        if report.outcome == reports.DONE:
            raise AWAY

    monkeypatch.setattr(Kept, "save", loses_an_answer)
    with pytest.raises(TryAgain, match="no broker answered"):
        walk(run, fence.steps())
    assert fence.calls[-2:] == ["restore", "lift"] and run.report.outcome == reports.BACKED_OUT
    assert fence.on_record()["outcome"] == reports.RUNNING, "the next process undoes it once more"


@pytest.mark.parametrize("arrives", [True, False])
def test_fence_stays_while_nobody_knows_what_the_target_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    """If it were lifted, and the target said that the cutover is done, both clusters would be open."""
    fence = Recorder(tmp_path)
    save, gone = Kept.save, list[str]()

    def gone_at_the_end(self: Kept, report: CutoverReport) -> None:
        if report.outcome == reports.DONE or gone:
            if arrives and not gone:
                save(self, report)
            gone.append("")
            raise AWAY
        save(self, report)

    with monkeypatch.context() as patched, pytest.raises(EndUnknown, match="Run the cutover again"):
        patched.setattr(Kept, "save", gone_at_the_end)
        walk(a_run(tmp_path, fence), fence.steps())
    assert "lift" not in fence.calls
    found, calls = next_process(tmp_path, monkeypatch)
    assert found is not None and (found.outcome, calls) == (
        (reports.DONE, []) if arrives else (reports.BACKED_OUT, ["restore", "lift"])
    )


@pytest.mark.parametrize("teardown", [True, False])
def test_who_undoes_another_ones_work_says_so_first(tmp_path: Path, teardown: bool) -> None:
    """A process that wakes up in the middle of that would open the target, or undo what comes next."""
    fence = Recorder(tmp_path, "drain")
    run = a_run(tmp_path, fence)

    class Undoing(Recorder):
        def lift(self, intent: dict[str, Any]) -> None:
            super().lift(intent)
            with pytest.raises(CutoverTakenOver):
                run.kept.require_ours()

    with pytest.MonkeyPatch.context() as killed, pytest.raises(FenceNotLifted):
        killed.setattr(steps, "back_out", lambda *_: None)
        walk(run, fence.steps())
    run.kept.require_ours()
    undoing = Undoing(tmp_path)
    if teardown:
        assert lift_leftover_fence(kept_in(tmp_path), run.source, run.source, undoing)
    else:
        recover(a_run(tmp_path, undoing))
    assert undoing.calls == ["lift"]


@pytest.mark.parametrize("woken_in", ["verify", "open_target"])
def test_process_that_was_taken_for_dead_touches_nothing_more(tmp_path: Path, woken_in: str) -> None:
    """It was frozen. Meanwhile another one has lifted the fence, and perhaps raised its own and moved groups again."""
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence)

    def freeze(_: object) -> dict[str, Any]:
        other = kept_in(tmp_path)
        found = other.load()
        assert found is not None
        other.save(found)
        fence.calls.append("woken")
        if woken_in == "verify":
            raise RuntimeError("the fence leaks")
        run.save()  # it goes on, and its own writing is the last one again
        run.kept.require_ours()
        return {}

    walked = [replace(step, do=freeze) if step.name == woken_in else step for step in fence.steps()]
    with pytest.raises(CutoverTakenOver, match="undoes nothing"):
        walk(run, walked)
    assert fence.calls[-1] == "woken" and run.report.undone == []


def test_way_back_needs_no_answer_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Recorder(tmp_path, "verify")

    def away(_: Kept) -> None:
        raise AWAY

    monkeypatch.setattr(Kept, "require_ours", away)
    with pytest.raises(RuntimeError, match="broken"):
        walk(a_run(tmp_path, fence), fence.steps())
    assert fence.calls[-1] == "lift"


def next_process(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CutoverReport | None, list[str]]:
    """Return what a process on another host finds, after it has undone that, and what it called."""
    shutil.rmtree(run_dir, ignore_errors=True)
    recorder = Recorder(run_dir)
    with monkeypatch.context() as patched:
        patched.setattr(back_out, "__defaults__", (recorder.steps(),))
        return recover(a_run(run_dir, recorder)), recorder.calls


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
            patched.setattr(steps, "back_out", lambda *_: None)  # nobody lives to do that
            walk(a_run(run_dir, first), first.steps())
        found, calls = next_process(run_dir, monkeypatch)
        if found is not None and found.outcome == reports.DONE:
            assert first.calls[-1] == "open_target" and calls == []
            if writings <= fatal:
                break
            continue
        killed += 1
        assert ("raise" not in first.calls) or calls[-1] == "lift"
        assert ("commit_groups" not in first.calls) or calls[-2:] == ["restore", "lift"]
        assert found is None or found.outcome == reports.BACKED_OUT
    assert killed > 20


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


def test_sigterm_becomes_an_exception_where_it_would_have_killed() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(CutoverCancelled), _interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


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
    back_out(second, fence.steps())
    assert fence.calls == ["lift"] and left.outcome == reports.BACKED_OUT
    back_out(second, fence.steps())
    assert fence.calls == ["lift"], "a fence that is lifted is not lifted again"


def test_stop_between_two_steps_backs_out(tmp_path: Path) -> None:
    fence = Recorder(tmp_path)
    run = a_run(tmp_path, fence, Acls())
    walked = fence.steps()
    stop = Step("drain", walked[2].leads_from, walked[2].to, lambda r: r.stop.set() or {}, None)
    with pytest.raises(CutoverCancelled, match="drain"):
        walk(run, (*walked[:2], stop, *walked[3:]))
    assert fence.calls == ["raise", "prove_fence", "lift"]
