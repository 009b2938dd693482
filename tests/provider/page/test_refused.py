"""What refused a mirror's last task stands on the page, and in the console."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import delete

from airflow_mirror.console.status import View, _shown
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import REFUSED
from airflow_mirror.page.first_plans import FirstPlan, unknown_to
from airflow_mirror.plan.findings import BLOCK, Finding
from airflow_mirror.plan.refused import UNKEPT, Refusal, forget, note
from tests.page.world import HOSTILE, World
from tests.provider.page.asking import DAGS, a_task, get

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from fastapi.testclient import TestClient


def refuse(world: World, kind: str, at: float | None = None) -> None:
    found = Finding(BLOCK, "tail", HOSTILE, "no tail lives", "Start the tail.")
    note(world.state, "orders", kind, Refusal.of([found], f"{DAGS[0]}.{kind}, run r", at or time.time() + 60))


def refused(page: TestClient) -> list[str]:
    (row,) = get(page, "/list").json()["mirrors"]
    assert row["needs_person"] is bool(row["refused"])
    return [one["kind"] for one in row["refused"]]


def a_mirror_that_follows(world: World) -> None:
    world.create({"orders": [0]})
    tail = world.tail(world.plan("orders", {"orders": 1}, DAGS[0]))
    world.own("orders", "orders")
    world.says(tail, phase="copying", summary={"lag": 0})


def test_mirror_whose_preview_was_refused_needs_a_person_who_is_told_what_to_do(
    world: World, page_anew: TestClient
) -> None:
    """It was green, following, and not at Home."""
    a_mirror_that_follows(world)
    assert refused(page_anew) == []
    refuse(world, "preview")
    (row,) = get(page_anew, "/list", f"anna:{DAGS[0]}", "VIEWER").json()["mirrors"]
    (one,) = row["refused"]
    assert row["needs_person"] and one["by"] == f"{DAGS[0]}.preview, run r"
    assert (one["findings"][0]["object"], one["findings"][0]["remedy"]) == (HOSTILE, "Start the tail.")
    assert get(page_anew, "/list", "anna:other", "VIEWER").json()["mirrors"] == []
    forget(world.state, "orders", "preview")
    assert refused(page_anew) == []


def test_refusal_counts_until_time_has_passed_it(world: World, page_anew: TestClient) -> None:
    """A plan by hand removes no record, and neither does a cutover by hand."""
    refuse(world, "plan", at=5.0)
    a_mirror_that_follows(world)
    assert refused(page_anew) == []
    refuse(world, "plan")
    refuse(world, "cutover")
    assert refused(page_anew) == ["plan", "cutover"]
    world.own("orders", "orders", opened="plan")
    assert refused(page_anew) == ["plan"]


def test_record_that_no_task_has_written_takes_nobodys_page_away(world: World, page_anew: TestClient) -> None:
    a_mirror_that_follows(world)
    odd: dict[str, Any] = {"by": "x", "at": float("nan"), "findings": []}
    world.state.write(REFUSED.put(odd, "orders", "preview"))
    answer = get(page_anew, "/list").json()
    assert [row["refused"] for row in answer["mirrors"]] == [[]] and answer["targets"][0]["newer"]


@contextmanager
def left(dag: str, mirror: str, *, ago: timedelta = timedelta(0), value: Any = None) -> Iterator[DagRun]:
    """A plan task has failed, and left what refused it."""
    refusal = Refusal.of([Finding(BLOCK, "topic_size", HOSTILE, "too large", "Raise it.")], f"{dag}.plan, run r", 1.8e9)
    told = {"mirror": mirror, "source": "dc1", "target": "dc2", "refusal": asdict(refusal)}
    with a_task(dag, "plan", state="failed") as (_, run):
        with create_session() as session:
            at = datetime.now(UTC) - ago
            session.add(XComModel(
                dag_run_id=run.id, task_id="plan", dag_id=dag, run_id=run.run_id, key=UNKEPT, timestamp=at,
                value=json.loads(json.dumps(told if value is None else value)),
            ))  # fmt: skip
        yield run
        with create_session() as session:
            session.execute(delete(XComModel).where(XComModel.dag_run_id == run.id))


def test_first_plan_that_was_refused_is_seen_by_readers_of_its_dag_until_a_ledger_knows_its_mirror(
    world: World, page_anew: TestClient
) -> None:
    """Nothing of it is on the target: only readers of its task's log heard of it."""
    with left(DAGS[0], "fresh") as run, left(DAGS[1], "pay"), left(DAGS[0], "fresh", ago=timedelta(hours=1)):
        answer = get(page_anew, "/list", f"anna:{DAGS[0]}", "VIEWER").json()
        (one,) = answer["first_plans"]
        assert (one["mirror"], one["source"], one["target_id"]) == ("fresh", "dc1", "dc2") and answer["mirrors"] == []
        assert (one["dag"], one["run"], one["task"]) == (DAGS[0], run.run_id, "plan"), "the newest"
        ((finding,),) = [its["findings"] for its in one["refused"]]
        assert (finding["object"], finding["remedy"]) == (HOSTILE, "Raise it.")
        assert get(page_anew, "/list", "anna:other", "VIEWER").json()["first_plans"] == []
        assert len(get(page_anew, "/list").json()["first_plans"]) == 2
        world.create({"orders": [0]})
        world.plan("fresh", {"orders": 1}, DAGS[1])  # also where another DAG has planned it, whose readers see it
        assert get(page_anew, "/list", f"anna:{DAGS[0]}", "VIEWER").json()["first_plans"] == []


def test_mirror_of_a_target_that_was_never_heard_is_not_said_to_be_unknown_to_it(
    world: World, page_anew: TestClient
) -> None:  # fmt: skip
    """It may run: the target was away since the API server started."""
    world.plan("runs", {"orders": 1}, DAGS[0])
    world.target.kill(1)
    with left(DAGS[0], "runs"), left(DAGS[0], "fresh"):
        answer = get(page_anew, "/list").json()
        assert answer["targets"][0]["error"] and answer["first_plans"] == []
        world.target.restart(1)
        deadline = time.monotonic() + 60  # nobody waits for one that did not answer the last time
        while not (plans := get(page_anew, "/list").json()["first_plans"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [one["mirror"] for one in plans] == ["fresh"]


def test_where_no_target_is_known_yet_no_mirror_is_unknown() -> None:
    refusal = Refusal(by="x", at=1.0, findings=(), left=0)
    plan = FirstPlan(dag="d", run="r", task="t", map_index=-1, mirror="m", source="a", target="b", refusal=refusal)
    nothing_yet = {"target_id": "", "mirrors": [], "looking": True}
    assert unknown_to([nothing_yet], [plan], lambda _: True) == []
    assert unknown_to([], [plan], lambda _: True) == [plan], "its target has no connection here"


def odd(at: float, *findings: object) -> dict[str, Any]:
    refusal = {"by": "x", "at": at, "findings": [*findings], "left": 0}
    return {"mirror": "m", "source": "a", "target": "b", "refusal": refusal}


def test_no_other_dag_hides_a_refusal_or_pushes_it_out(world: World, page: TestClient) -> None:
    """Two teams copy from one form, and a DAG that plans every five minutes leaves one each time."""
    with ExitStack() as close:
        close.enter_context(left(DAGS[0], "fresh", ago=timedelta(hours=2)))
        for minutes in range(30):
            close.enter_context(left(DAGS[1], "fresh", ago=timedelta(minutes=minutes)))
        (one,) = get(page, "/list", f"anna:{DAGS[0]}", "VIEWER").json()["first_plans"]
        assert (one["dag"], one["mirror"]) == (DAGS[0], "fresh")
        assert {one["dag"] for one in get(page, "/list").json()["first_plans"]} == {*DAGS}


@pytest.mark.parametrize("value", ["not JSON", 7, [], {}, odd(-1), odd(1, {"no": "finding"}), odd(1, "x")])
def test_what_no_plan_has_left_takes_nobodys_page_away(world: World, page_anew: TestClient, value: Any) -> None:
    with left(DAGS[0], "old", ago=timedelta(days=8)), left(DAGS[0], "odd", value=value):
        assert get(page_anew, "/list").json()["first_plans"] == []


def test_status_in_the_console_says_it_too(world: World) -> None:
    from io import StringIO

    from rich.console import Console

    a_mirror_that_follows(world)
    refuse(world, "preview")
    with ClusterAdmin(world.target.config) as target:
        view = View(target)
        out = StringIO()
        Console(file=out, width=200).print(_shown(view.rows(), view.newer))
    assert "orders: its preview was refused at" in out.getvalue()
    assert "no tail lives. Start the tail." in out.getvalue()
