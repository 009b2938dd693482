"""What is asked before the fence is raised, and what is noted before the target opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.cutover import steps
from airflow_mirror.cutover.check import precheck
from airflow_mirror.cutover.context import Run
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.cutover.run import lift_leftover_fence
from airflow_mirror.errors import MirrorCutOver, PlanOutdated
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan.life import LifeFile
from airflow_mirror.plan.model import Plan
from tests.unit.cutover.builders import Acls, a_run


class Topics(Acls):
    """A cluster with topics of one partition."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def topic_names(self) -> list[str]:
        return sorted(self.names)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, f"id-{n}", 1, 1) for n in self.names if n in names}

    def groups(self) -> list[object]:
        return []

    def group_states(self, ids: list[str]) -> dict[str, str]:
        return {}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = a_run(tmp_path / "run", CallableFence(lambda: None, lambda: None))
    made.source, made.target = Topics("orders", "payments"), Topics("orders", "payments")  # type: ignore[assignment]
    made.life = LifeFile(tmp_path / "life.json")
    return made


def precheck_without_logs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.cutover.check.require_tail", lambda _: None)
    precheck(run)


def test_topics_that_appeared_since_the_plan_block_by_name(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Nobody would write to them behind the fence, and nobody would ever copy them."""
    precheck_without_logs(run, monkeypatch)
    run.source = Topics("orders", "payments", "refunds", "__consumer_offsets")  # type: ignore[assignment]
    with pytest.raises(PlanOutdated, match="source topic 'refunds' is new: not in the plan") as caught:
        precheck_without_logs(run, monkeypatch)
    assert len(caught.value.drift) == 1


def test_topics_in_production_are_refused_before_the_fence(run: Run, monkeypatch: pytest.MonkeyPatch):
    steps.hand_over(run)
    with pytest.raises(MirrorCutOver, match="orders, payments are in production"):
        precheck_without_logs(run, monkeypatch)
    steps.take_back_topics(run)
    precheck_without_logs(run, monkeypatch)


def test_topics_are_noted_as_production_before_the_target_opens():
    names = [step.name for step in steps.STEPS]
    assert names[-2:] == ["hand_over", "open_target"]


def killed_after_hand_over(run: Run) -> Plan:
    steps.hand_over(run)
    run.report.fence = FenceRecord("callable", {"topics": []}, 1.0)
    run.save()
    return run.plan


def test_teardown_gives_topics_of_a_killed_cutover_back(run: Run):
    """The next DAG run has a directory of its own, and would be refused for ever."""
    killed_after_hand_over(run)
    assert run.life is not None and run.life.read()
    lift_leftover_fence(run.run_dir, run.source, run.target, run.fence, life=run.life)
    assert run.life.read() == {}


def test_way_back_gives_topics_back(run: Run):
    killed_after_hand_over(run)
    run.report.steps = [steps.StepRecord("hand_over", "done", 1.0)]
    steps.back_out(run)
    left = CutoverReport.load(run.run_dir)
    assert run.life is not None and run.life.read() == {}
    assert left is not None and left.undone[0]["what"] == "the topics are the mirror's again"
