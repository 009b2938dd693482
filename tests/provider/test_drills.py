"""Two Airflows drill one target, with one schedule: one drills, the other stands back."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, chain
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_mirror.extras.drill import turn
from airflow_mirror.extras.drill.clean_up import Cleaned
from airflow_mirror.extras.drill.groups import Outlook
from airflow_mirror.extras.drill.store import Drills
from airflow_mirror.operators.drill import CleanUpDrillOperator, OpenDrillOperator, RehearseGroupsOperator
from airflow_mirror.operators.drill_turn import own_drill_only
from airflow_mirror.operators.mirror import StopMirrorOperator
from tests.provider.conftest import FakeStore, FakeTI, InMemory
from tests.unit.ledger.memory import MemoryLedger, MemoryState


class OfRun(FakeTI):
    """A task of a run of one Airflow: it has the XComs of that one. ``restarting``: looks at its run that find a kill."""

    def __init__(self, xcoms: dict[str, Any], run: str = "scheduled__1", restarting: list[str] | None = None) -> None:
        super().__init__()
        self.xcoms, self.run_id, self.restarting = xcoms, run, restarting or []

    def get_task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, dict[str, str]]:
        assert (dag_id, run_ids) == (self.dag_id, [self.run_id])
        found = self.restarting.pop() if self.restarting else "failed"
        return {self.run_id: {"open": "running", "lose": found, "return": "upstream_failed"}}

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def xcom_pull(self, task_ids: Any, key: str = "return_value") -> Any:
        return self.xcoms.get(key) if task_ids == "open" else None


class Drill:
    """A DAG of a drill, as several Airflows have it. ``there``: the topics of its source."""

    def __init__(
        self, mirror: dict[str, Any], ledger: MemoryLedger, clusters: InMemory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.cleaned: list[str] = []
        self.there = clusters.source.topics
        monkeypatch.setattr(
            "airflow_mirror.extras.drill.clean_up.clean_up",
            lambda _clusters, topic, *_: (self.cleaned.append(topic), Cleaned([], []))[1],
        )
        ledger.now_ms = int(time.time() * 1000)
        outlook = Outlook(mirror="other", at_ms=7, groups=(), left_behind=())
        monkeypatch.setattr("airflow_mirror.extras.drill.groups.look", lambda *_: outlook)
        with DAG("drill", schedule=None) as self.dag:
            drills = {**mirror, "topics": ["drill-1"]}
            chain(
                RehearseGroupsOperator(task_id="groups", mirror=drills, groups_of="other"),
                OpenDrillOperator(task_id="open", mirror=drills),
                StopMirrorOperator(task_id="stop", mirror=drills, pre_execute=own_drill_only),
                CleanUpDrillOperator(task_id="clean", mirror=drills),
            )

    def run(
        self, task_id: str, xcoms: dict[str, Any], run: str = "scheduled__1", store: FakeStore | None = None,
        cleared: int = 0, restarting: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Run a task, of the Airflow that has these XComs. :param cleared: how often its run was."""
        task: Any = self.dag.get_task(task_id)
        dag_run = SimpleNamespace(clear_number=cleared)
        context: Any = {"ti": OfRun(xcoms, run, restarting), "task": task, "task_state_store": store, "dag_run": dag_run}
        if task_id == "stop":
            own_drill_only(context)
        else:
            task.execute(context)


@pytest.fixture
def drill(mirror: dict[str, Any], ledger: MemoryLedger, clusters: InMemory, monkeypatch: pytest.MonkeyPatch) -> Drill:
    return Drill(mirror, ledger, clusters, monkeypatch)


@pytest.mark.usefixtures("connections", "home")
@pytest.mark.parametrize("run", ["scheduled__1", "manual__2"])
def test_drill_stands_back_from_another_airflows_and_touches_nothing_of_it(
    drill: Drill, state: MemoryState, ledger: MemoryLedger, run: str
) -> None:
    """With the same schedule both have one run, one topic and one tail: its teardowns stopped and deleted the other's."""
    one, other, store = dict[str, Any](), dict[str, Any](), FakeStore()
    drill.run("open", one, store=store)
    before = state.read()
    for task_id in ("groups", "open", "stop", "clean"):
        with pytest.raises(
            AirflowSkipException, match="drill scheduled.*1 of mirror 'm' runs since .*is another Airflow's"
        ):
            drill.run(task_id, other, run)
    assert state.read() == before and drill.cleaned == [] and list(drill.there) == ["drill-1"]
    one.clear()  # as each try begins
    with pytest.raises(
        AirflowFailException, match=r"exists on the source already(.|\n)*clear the run again when its\s+clean"
    ):
        drill.run("open", one, store=store)
    drill.run("stop", one)
    drill.run("clean", one)  # its own task is red, and no other
    assert drill.cleaned == ["drill-1"] and "drilling/m" not in ledger.values()
    drill.there.clear()
    drill.run("open", other, run)
    with pytest.raises(AirflowSkipException):
        drill.run("stop", one)


@pytest.mark.usefixtures("connections", "home", "state")
def test_drill_that_is_cleared_whole_knows_its_turn_before_it_is_opened_again(drill: Drill) -> None:
    """Its first task skipped, and so did all behind it: it stood back from itself."""
    one = dict[str, Any]()
    drill.run("groups", one)
    drill.run("open", one)
    drill.run("groups", one, cleared=1)


@pytest.mark.usefixtures("connections", "home", "state")
def test_cleared_drill_does_not_fail_while_a_task_of_the_try_before_is_being_ended(
    drill: Drill, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The scheduler took the run for deadlocked then, and ended it without its teardowns: tail and topic stayed."""
    monkeypatch.setattr("airflow_mirror.operators.drill_turn._LOOK_AGAIN_S", 0.01)
    one, looks = dict[str, Any](), ["restarting"] * 3
    drill.run("open", one, restarting=looks)
    assert len(looks) == 3, "a run that nobody has cleared is not asked for"
    with pytest.raises(AirflowFailException, match="clear the run again"):
        drill.run("open", one, cleared=1, restarting=looks)
    assert looks == [] and "waiting until the try before has ended: lose" in caplog.text


@pytest.mark.usefixtures("connections", "home")
def test_cleared_drill_that_can_not_tell_its_turn_from_another_airflows_says_what_to_type(
    drill: Drill, state: MemoryState, ledger: MemoryLedger
) -> None:
    """Airflow had cleared what the task stored (`clear_on_success`): it skipped, and was green, for a day."""
    drill.run("open", {})
    before, lost = state.read(), dict[str, Any]()
    for task_id in ("groups", "open", "stop", "clean"):
        with pytest.raises(
            AirflowFailException, match="an earlier try of this run(.|\n)*, or by another(.|\n)*--clean-up sched"
        ):
            drill.run(task_id, lost, cleared=1)
    assert state.read() == before and drill.cleaned == []
    with pytest.raises(AirflowSkipException):
        drill.run("open", {}, "manual__2", cleared=1)
    turn.end(ledger, "m", next(iter(Drills(state, "m").all())).run)  # as `drills --clean-up` does
    drill.there.clear()
    drill.run("open", lost, cleared=1)
