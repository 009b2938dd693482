"""What is asked before the fence is raised, and what is noted before the target opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.cutover import groups, steps
from airflow_mirror.cutover.check import precheck
from airflow_mirror.cutover.context import Run
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.cutover.run import lift_leftover_fence
from airflow_mirror.errors import GroupActive, GroupAhead, MirrorCutOver, PlanOutdated
from airflow_mirror.kafka.model import GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan.life import LifeFile
from airflow_mirror.plan.model import Plan
from tests.unit.cutover.builders import Acls, Logs, a_run

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


class Topics(Acls):
    """A cluster with topics of one partition."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.offsets: dict[str, dict[TopicPartition, GroupPosition]] = {}
        self.states: dict[str, str] = {}

    def topic_names(self) -> list[str]:
        return sorted(self.names)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, f"id-{n}", 1, 1) for n in self.names if n in names}

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(g, "Empty", "consumer") for g in sorted(self.offsets)]

    def group_states(self, ids: list[str]) -> dict[str, str]:
        return {g: self.states.get(g, "Dead") for g in ids}

    def group_offsets(self, group: str) -> dict[TopicPartition, GroupPosition]:
        return self.offsets.get(group, {})

    def groups_offsets(self, ids: list[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {group: self.group_offsets(group) for group in ids}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = a_run(tmp_path / "run", CallableFence(lambda: None, lambda: None))
    made.source, made.target = Topics("orders", "payments"), Topics("orders", "payments")  # type: ignore[assignment]
    made.source_log = made.target_log = Logs({ORDERS: 100, PAYMENTS: 50})  # type: ignore[assignment]
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


def at(offset: int) -> dict[TopicPartition, GroupPosition]:
    return {ORDERS: GroupPosition(offset)}


def test_group_further_on_the_target_blocks_before_the_fence(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Left where it is, it would skip what lies between; nobody would hear of that."""
    run.source.offsets, run.target.offsets = {"billing": at(40)}, {"billing": at(41)}  # type: ignore[attr-defined]
    with pytest.raises(GroupAhead, match="group 'billing' at orders-0: 41 on the target, 40 on the source"):
        precheck_without_logs(run, monkeypatch)
    run.allow_rewind = True
    precheck_without_logs(run, monkeypatch)
    run.allow_rewind, run.target.offsets = False, {"billing": at(40)}  # type: ignore[attr-defined]
    precheck_without_logs(run, monkeypatch)


def test_group_that_gets_ahead_meanwhile_is_not_committed(run: Run):
    run.source.offsets, run.target.offsets = {"billing": at(40)}, {"billing": at(41)}  # type: ignore[attr-defined]
    run.report.ends = [{"topic": "orders", "partition": 0, "end": 100}]
    with pytest.raises(GroupAhead):
        groups._commit(run, {"billing": groups.Settled("empty", "Empty", at(40))})
    assert run.report.groups == []


def test_groups_of_other_topics_are_not_asked(run: Run, monkeypatch: pytest.MonkeyPatch):
    """A group that is alive on the target for topics of its own has nothing to do with this cutover."""
    run.source.offsets = {"audit": {TopicPartition("audit", 0): GroupPosition(1)}, "idle": {}}  # type: ignore[attr-defined]
    run.target.states = {"audit": "Stable", "idle": "Stable"}  # type: ignore[attr-defined]
    precheck_without_logs(run, monkeypatch)
    run.source.offsets["audit"] = at(3)  # type: ignore[attr-defined]
    with pytest.raises(GroupActive, match="audit"):
        precheck_without_logs(run, monkeypatch)


def test_groups_that_are_not_selected_and_read_these_topics_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch):
    elsewhere = {TopicPartition("audit", 0): GroupPosition(1)}
    run.source.offsets = {"connect-sink": at(3), "connect-audit": elsewhere, "billing": at(1)}  # type: ignore[attr-defined]
    precheck_without_logs(run, monkeypatch)
    assert run.report.left_behind == run.report.summary()["left_behind"] == ["connect-sink"]


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
