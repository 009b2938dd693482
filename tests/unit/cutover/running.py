"""Whole attempts at a cutover, and what an earlier one has left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover import run as cutover
from airflow_mirror.cutover import steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import LIFTED, fence_state
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, StepRecord, as_recorded
from airflow_mirror.cutover.short_lease import ShortLease
from airflow_mirror.errors import TryAgain
from tests.builders import rule
from tests.cutting_over import cut_over
from tests.unit.cutover.builders import (
    GivenSide,
    a_plan,
    a_run,
    go_up,
    kept_in,
    ledger_of,
    open_behind,
    platform_in,
)

if TYPE_CHECKING:
    import pytest

DENY = rule("orders", "WRITE", "DENY")
NOTHING_BLOCKS = Preview(mirror="flow", plan="p", revision="p", at=0.0, findings=[])


NOWHERE = SimpleNamespace(config=ClientConfig({"bootstrap.servers": "localhost:1"}, "source"), wire=None, role="source")


def fenced(run_dir: Path, kind: str, outcome: str = reports.RUNNING) -> CutoverReport:
    """What a process leaves that was killed behind its fence: a decision, rules at the source, and its report."""
    owner = a_run(run_dir, SimpleNamespace(kind=kind))
    owner.report.process, owner.intent = None, Intent(topics=("orders", "payments"))
    go_up(owner)
    report = owner.report
    report.outcome = outcome
    record = FenceRecord(kind=kind, name="ops.gate", intent=as_recorded(owner.intent), requested=10.0)
    report.fence, report.fence.kept = record, outcome == reports.DONE
    report.steps = [StepRecord(name="fence", status="done", started=10.0)]
    ledger_of(run_dir).decide(lambda values: {"fence/flow": {**values["fence/flow"], "name": "ops.gate"}})
    if outcome == reports.DONE:
        owner.up = fence_state(owner.ledger.values(), "flow")
        open_behind(owner)
    if outcome == reports.BACKED_OUT:
        ledger_of(run_dir).decide(lambda values: {"fence/flow": {**values["fence/flow"], "phase": LIFTED}})
    owner.store.save(report)
    return report


# --- an earlier attempt in the same directory ---


class Steps:
    """Stand-ins for what a run is made of: what was called, in order. ``broken`` fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: str = "") -> None:
        self.calls, self._broken = list[str](), broken
        monkeypatch.setattr(cutover, "precheck", lambda _: self._note("precheck"))
        monkeypatch.setattr(cutover, "ask_first", lambda _: NOTHING_BLOCKS)
        monkeypatch.setattr(ShortLease, "wait", lambda *_: None)
        monkeypatch.setattr(cutover, "reverify", lambda _: self._note("reverify"))
        monkeypatch.setattr(cutover, "hold_lease", lambda _: self._note("hold_lease"))
        monkeypatch.setattr(GivenSide, "end_writing", lambda *_: self._note("end_writing"))
        monkeypatch.setattr(steps, "walk", self._walk)
        self.fence = CallableFence(lambda: self._note("on"), lambda: self._note("off"))

    def _note(self, name: str) -> None:
        self.calls.append(name)
        if name == self._broken:
            raise RuntimeError(name)

    def _walk(self, attempt: Attempt) -> None:
        self._note("walk")
        attempt.report.fence = FenceRecord(
            kind="callable", intent={"topics": []}, requested=10.0, opened=11.5, kept=attempt.request.keep_fence
        )
        go_up(attempt)
        open_behind(attempt)
        attempt.report.outcome = reports.DONE


def run_of(run_dir: Path, **options: Any) -> CutoverReport:
    """Start a cutover between clusters that nobody asks."""
    plan = a_plan("orders")
    on = platform_in(run_dir, NOWHERE, NOWHERE)
    return cut_over(on, plan, kept_in(run_dir), verify=lambda _: [], **{"fence": None, **options})


def lifts(run_dir: Path, fence: Any, source: Any = None, ledger: Any = None, **how: Any) -> list[str]:
    """As another process lifts what it finds."""
    on = platform_in(run_dir, source, None, ledger)
    return lift_leftover_fence(on, "flow", fence, runs=run_dir.parent, run=run_dir.name, **how)


class Away:
    """A ledger that can't be asked."""

    def values(self, *_: object) -> Any:
        raise TryAgain("no broker answered")

    decide = values
