"""Two Airflows drill one target, with one schedule: one drills, the other stands back."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_mirror.operators.drill import CleanUpDrillOperator, OpenDrillOperator
from airflow_mirror.operators.drill_turn import own_drill_only
from airflow_mirror.operators.mirror import StopMirrorOperator
from tests.provider.conftest import FakeStore, FakeTI
from tests.unit.ledger.memory import MemoryLedger, MemoryState


class OfRun(FakeTI):
    """A task of a run of one Airflow: it has the XComs of that one."""

    def __init__(self, xcoms: dict[str, Any], run: str = "scheduled__1") -> None:
        super().__init__()
        self.xcoms, self.run_id = xcoms, run

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def xcom_pull(self, task_ids: Any, key: str = "return_value") -> Any:
        return self.xcoms.get(key) if task_ids == "open" else None


@pytest.mark.usefixtures("connections", "home")
@pytest.mark.parametrize("run", ["scheduled__1", "manual__2"])
def test_drill_stands_back_from_another_airflows_and_touches_nothing_of_it(
    mirror: dict[str, Any], state: MemoryState, ledger: MemoryLedger, run: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With the same schedule both have one run, one topic and one tail: its teardowns stopped and deleted the other's."""
    cleaned: list[str] = []
    monkeypatch.setattr(
        "airflow_mirror.extras.drill.clean_up.clean_up", lambda _clusters, topic, _group: (cleaned.append(topic), [])[1]
    )
    ledger.now_ms = int(time.time() * 1000)
    there: dict[str, Any] = {}
    side = SimpleNamespace(
        role="source", cluster_id=lambda: "A", topics=lambda names: {n: there[n] for n in names if n in there},
        broker_count=lambda: 1, create_topics=lambda specs: there.update({one.name: one for one in specs}),
    )  # fmt: skip
    monkeypatch.setattr("airflow_mirror.hooks.kafka.admins_of", lambda _: nullcontext((side, side)))
    with DAG("drill", schedule=None) as dag:
        drills = {**mirror, "topics": ["drill-1"]}
        opened = OpenDrillOperator(task_id="open", mirror=drills)
        stop = StopMirrorOperator(task_id="stop", mirror=drills, pre_execute=own_drill_only)
        opened >> stop >> CleanUpDrillOperator(task_id="clean", mirror=drills)
    one, other = dict[str, Any](), dict[str, Any]()

    def run_of(xcoms: dict[str, Any], task_id: str, store: FakeStore | None = None) -> None:
        task: Any = dag.get_task(task_id)
        ti = OfRun(xcoms, "scheduled__1" if xcoms is one else run)
        context: Any = {"ti": ti, "task": task, "task_state_store": store}
        if task_id == "stop":
            own_drill_only(context)
        else:
            task.execute(context)

    store = FakeStore()
    run_of(one, "open", store)
    before = state.read()
    for task_id in ("open", "stop", "clean"):
        with pytest.raises(
            AirflowSkipException, match="drill scheduled.*1 of mirror 'm' runs since .*is another Airflow's"
        ):
            run_of(other, task_id)
    assert state.read() == before and cleaned == [] and list(there) == ["drill-1"]
    one.clear()  # as each try begins
    with pytest.raises(AirflowFailException, match="exists on the source already"):
        run_of(one, "open", store)
    run_of(one, "stop")
    with pytest.raises(AirflowFailException, match="nothing was measured"):
        run_of(one, "clean")
    assert cleaned == ["drill-1"] and "drilling/m" not in ledger.values()
    there.clear()
    run_of(other, "open")
    with pytest.raises(AirflowSkipException):
        run_of(one, "stop")
