"""What refuses a plan, a preview or a cutover is kept in the ledger, and never changes what becomes of the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.log import mask_secret

from airflow_mirror.common.policy import STATE
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import (
    ClusterUnreachable,
    CutoverBlocked,
    CutoverRunning,
    DrainTimedOut,
    MirrorError,
    PlanOutdated,
)
from airflow_mirror.ledger.records import LAST_PLAN
from airflow_mirror.operators.cutover import CutoverOperator, PreviewCutoverOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.plan.findings import Finding, block, warn
from airflow_mirror.plan.refused import Refusal, note, refusals
from tests.provider.conftest import PLAN, THE_PLAN, InMemory
from tests.unit.ledger.memory import MemoryLedger, MemoryState

TAIL = Finding("block", "tail", "tail", "no tail lives", "Start one.")
BY = "kafka_migration.bulk_copy, run manual__1"
BEFORE = Refusal.of([TAIL], "an earlier one", 5.0)


@pytest.fixture(autouse=True)
def planned(clusters: InMemory, plan: Plan, ledger: MemoryLedger) -> None:
    """A target that has a ledger, which knows the mirror."""
    clusters.target.create(STATE)
    ledger.decide(lambda _: LAST_PLAN.put({"hash": PLAN}, "m"))


def previewed(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    found = Preview(mirror="m", plan=PLAN, revision=PLAN, at=1.0, findings=findings)
    monkeypatch.setattr("airflow_mirror.cutover.run.preview_cutover", lambda *_, **__: found)
    monkeypatch.setattr("airflow_mirror.cutover.rollback.foresee.with_way_back", lambda one, *_: one)


def kept(state: MemoryState) -> dict[str, list[tuple[str, str, str]]]:
    """What refuses the mirror, by kind of task."""
    found = {kind: one for kind, one in refusals(state.read(), "m").items() if one.by != BEFORE.by}
    assert {one.by for one in found.values()} <= {BY}
    return {kind: [(its["check"], its["evidence"], its["remedy"]) for its in one.findings] for kind, one in found.items()}


def test_preview_that_is_refused_is_kept_with_its_remedies_until_one_is_not(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = PreviewCutoverOperator(task_id="t", mirror=mirror, plan=PLAN)
    mask_secret("hunter2")
    previewed(monkeypatch, TAIL, block("hunter2 is wrong"), warn("look"))
    with pytest.raises(AirflowException, match="CutoverBlocked"):
        task.execute(context)
    assert kept(state) == {"preview": [("tail", "no tail lives", "Start one."), ("", "*** is wrong", "")]}
    previewed(monkeypatch, warn("look"))
    task.execute(context)
    assert refusals(state.read(), "m") == {}


@pytest.mark.parametrize(("error", "behind", "found"), [
    (PlanOutdated(["topic 't' is gone"]), False, ["topic 't' is gone"]),
    (CutoverBlocked("m", ["tail: no tail lives", "disk: full"]), True, ["tail: no tail lives", "disk: full"]),
    (DrainTimedOut(9.0, {"t-0": 5}), True, None), (ClusterUnreachable("source", "a:1", "no broker"), False, None),
    (CutoverRunning("elsewhere"), False, None),
])  # fmt: skip
def test_cutover_that_is_refused_before_its_fence_is_kept(
    error: MirrorError, behind: bool, found: Sequence[str] | None, context: dict[str, Any], mirror: dict[str, Any],
    state: MemoryState, cut_over_by: Callable[..., None],
) -> None:  # fmt: skip
    """Not one that backs out behind its fence, which has a report, nor one that could not look."""

    def cut_over(*_: Any, additions: Any, **__: Any) -> CutoverReport:
        if behind:
            additions.require()
        raise error

    cut_over_by(cut_over)
    with pytest.raises(AirflowException, match=type(error).__name__):
        CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, fence_again=True).execute(context)
    said = kept(state).get("cutover")
    assert (said is None) is (found is None)
    assert all(text in one[1] for text, one in zip(found or (), said or (), strict=True))


def test_cutover_that_succeeds_removes_what_refused_it_and_its_preview(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cut_over_by: Callable[..., None]
) -> None:
    for kind in ("plan", "preview", "cutover"):
        note(state, "m", kind, BEFORE)
    cut_over_by(lambda *_, **__: CutoverReport(mirror="m", plan_hash=PLAN, outcome="cut_over"))
    CutoverOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert refusals(state.read(), "m") == {"plan": BEFORE}


def test_plan_that_is_blocked_is_kept_where_the_mirror_was_planned_before(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, ledger: MemoryLedger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = replace(THE_PLAN, findings=(TAIL,))
    monkeypatch.setattr("airflow_mirror.jobs.planning.planned", lambda *_, **__: (made, None))
    for name in ("ownership.begin", "requirements.require_active"):
        monkeypatch.setattr(f"airflow_mirror.plan.{name}", lambda *_: ledger)
    task = PlanMirrorOperator(task_id="t", mirror=mirror)
    with pytest.raises(AirflowException, match="no tail lives"):
        task.execute(context)
    assert kept(state) == {"plan": [("tail", "no tail lives", "Start one.")]}
    made = replace(THE_PLAN, findings=())
    task.execute(context)
    assert refusals(state.read(), "m") == {}
    ledger.decide(lambda _: {LAST_PLAN.key("m"): None})
    made = replace(THE_PLAN, findings=(TAIL,))
    with pytest.raises(AirflowException, match="no tail lives"):
        task.execute(context)
    assert refusals(state.read(), "m") == {}, "one that nobody has planned is in no ledger"


def test_ledger_that_can_not_be_written_changes_nothing_of_the_task(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(state, "write", fails)
    previewed(monkeypatch, TAIL)
    with pytest.raises(AirflowException, match="CutoverBlocked"):
        PreviewCutoverOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    monkeypatch.setattr("airflow_mirror.plan.refused.forget", fails)
    previewed(monkeypatch)
    assert PreviewCutoverOperator(task_id="t", mirror=mirror, plan=PLAN).execute(context)["plan"] == PLAN
