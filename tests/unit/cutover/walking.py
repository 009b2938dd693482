"""Walks through the steps of a cutover, and who lifts what they leave."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import (
    UP,
    begin_lifting,
    end_lifting,
    fence_state,
)
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.report import CutoverReport, GroupRecord
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.steps import STEPS, Step
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import (
    TryAgain,
)
from airflow_mirror.kafka.permit import Permit
from tests.unit.cutover.builders import (
    Topics,
    kept_in,
    ledger_of,
    open_behind,
    platform_in,
)
from tests.unit.cutover.builders import a_run as bare_run

if TYPE_CHECKING:
    import pytest


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

        def opening(attempt: Attempt) -> dict[str, Any]:
            note("open_target")(attempt)
            attempt.opening = True
            open_behind(attempt)
            return {}

        def committing(attempt: Attempt) -> dict[str, Any]:
            attempt.report.groups = [GroupRecord(group="g", settled="", source_state="")]
            return note("commit_groups")(attempt)  # type: ignore[no-any-return]

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


def lift_elsewhere(run_dir: Path, *, cleared: bool = True) -> Any:
    """Decide, as a guard does, that what stands is lifted, and perhaps that it is done."""
    other = ledger_of(run_dir)
    there = fence_state(other.values(), "flow")
    lifting = None if there is None else begin_lifting(other, "flow", there, "guard")
    if lifting is not None and cleared:
        end_lifting(other, "flow", lifting)
    return lifting


def raising(error: BaseException) -> Callable[[], object]:
    def do() -> object:
        raise error

    return do


AWAY = TryAgain("no broker answered")


def away(monkeypatch: pytest.MonkeyPatch, when: Callable[[CutoverReport], bool]) -> None:
    """Let the target answer no writing of a report that is chosen."""
    save = ReportStore.save

    def fails(self: ReportStore, report: CutoverReport) -> None:
        if when(report):
            raise AWAY
        save(self, report)

    monkeypatch.setattr(ReportStore, "save", fails)


def next_process(run_dir: Path) -> tuple[CutoverReport | None, list[str]]:
    """Return what a process on another host finds, after it has undone that, and what it called."""
    shutil.rmtree(run_dir, ignore_errors=True)
    recorder = Recorder(run_dir)
    run = a_run(run_dir, recorder)
    found = recover(run)
    return found, [*recorder.calls, *(["go on"] if run.opening else [])]
