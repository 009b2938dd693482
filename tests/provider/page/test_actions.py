"""What the page offers whom to do about a mirror, and which approvals wait there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models.dag import DagModel, DagTag
from airflow.models.hitl import HITLDetail
from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.utils.session import create_session
from sqlalchemy import delete, update

from airflow_mirror.errors import TryAgain
from airflow_mirror.operators.pace import PaceMirrorOperator
from airflow_mirror.page.actions import ACTIONS
from tests.driven.cluster import DrivenCluster
from tests.page.world import HOSTILE, World
from tests.provider.page.asking import DAGS, a_task, another, connect, get, three_mirrors

if TYPE_CHECKING:
    from fastapi.testclient import TestClient


def offered(page: TestClient, who: str = "admin", role: str = "ADMIN") -> dict[str, dict[str, Any]]:
    """What somebody may do about the one mirror, by key."""
    (row,) = get(page, "/list", who, role).json()["mirrors"]
    return {one["key"]: one for one in row["actions"]}


@pytest.mark.parametrize(("who", "role", "may"), [
    ("admin", "ADMIN", True), ("otto", "OP", True), ("anna", "VIEWER", False), ("otto:night_of_orders", "OP", False),
])  # fmt: skip
def test_actions_are_offered_to_who_may_start_the_dag_that_acts(
    world: World, page: TestClient, who: str, role: str, may: bool
) -> None:
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    world.tail(plan)
    world.fence(plan)
    found = offered(page, who, role)
    assert list(found) == (["lift", "pause", "rate"] if may else [])
    if may:
        assert found["lift"]["conf"] == {"name": "orders", "source": "dc1", "target": "dc2", "fence": "acl"}
        assert found["pause"]["conf"] == {"name": "orders", "target": "dc2", "action": "pause"}
        assert (found["rate"]["asks"], found["pause"]["asks"]) == ("rate", "")


@pytest.mark.parametrize("name", ["os.system", "f{x}", ""])
@pytest.mark.parametrize(("kind", "filled", "asks"), [("acl", {"fence": "acl"}, ""), ("callable", {}, "fence")])
def test_no_function_that_a_record_names_gets_into_a_form(
    world: World, page: TestClient, kind: str, name: str, filled: dict[str, str], asks: str
) -> None:
    """The run would call it, with an admin of the source. A person types what the cutover was given."""
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    world.fence(plan, kind=kind, name=name)
    lift = offered(page)["lift"]
    assert lift["conf"] == {"name": "orders", "source": "dc1", "target": "dc2", **filled} and lift["asks"] == asks
    assert (f"names {name!r}, but is not believed" in lift["effect"]) is (kind == "callable")


def test_what_is_offered_is_what_makes_sense_for_a_mirror_as_it_is(world: World, page_anew: TestClient) -> None:
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    assert list(offered(page_anew)) == ["pause", "rate"], "one that is only planned: the copy to come would hear it"
    tail = world.tail(plan)
    world.says(tail, phase="copying")
    offered(page_anew)
    world.says(tail, phase="copying")
    found = offered(page_anew)
    assert list(found) == ["pause", "rate", "drill"]
    assert found["drill"]["conf"] == {"source": "dc1", "target": "dc2", "groups_of": "orders"}
    world.pause("orders")
    assert "resume" in offered(page_anew) and "pause" not in offered(page_anew)
    world.own("orders", "orders", opened="plan")
    found = offered(page_anew)
    assert list(found) == ["resume", "failback"], "the pause is there to be taken back"
    assert found["failback"]["conf"] == {"name": "orders", "source": "dc1", "target": "dc2"}


def test_every_action_says_its_effect_and_fits_the_form_of_its_dag(world: World, page: TestClient) -> None:
    from airflow.dag_processing.dagbag import DagBag

    dags = DagBag(str(Path(__file__).parents[3] / "dags")).dags
    row = {
        "mirror": "m{x}", "source": "dc1", "target_id": "dc2",
        "fences": [{"kept": False, "name": "acl", "kind": "acl"}],
    }  # fmt: skip
    for one in ACTIONS:
        said = one.of(row, False)
        assert said["effect"].endswith(".") and not {*said["conf"], *filter(None, [one.asks])} - {*dags[one.dag].params}
        params = deepcopy(dags[one.dag].params)  # the module and its form are shared
        for name, value in {**said["conf"], **({one.asks: "7"} if one.asks else {})}.items():
            params[name] = value
        params.validate()


def test_nobody_is_offered_a_dag_that_is_not_there(world: World, page: TestClient) -> None:
    world.fence(world.plan("orders", {"orders": 1}, DAGS[0]))
    with create_session() as session:
        session.execute(delete(DagModel).where(DagModel.dag_id == "kafka_lift_fence"))
    assert "lift" not in offered(page)
    with create_session() as session:
        session.add(DagModel(dag_id="kafka_lift_fence", bundle_name="b"))


def test_dag_that_is_turned_off_is_said_to_be(world: World, page: TestClient) -> None:
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    try:
        for off in (True, False):
            with create_session() as session:
                session.execute(update(DagModel).where(DagModel.dag_id == "kafka_pace").values(is_paused=off))
            assert offered(page)["pause"]["paused"] is off
    finally:
        get(page, "/list")


@pytest.mark.parametrize(("action", "rate", "wished"), [
    ("pause", "default", {"pause": True, "rate": None}), ("rate", 7_000_000, {"pause": False, "rate": 7_000_000}),
    ("rate", "none", {"pause": False, "rate": "none"}),
])  # fmt: skip
def test_run_of_kafka_pace_wishes_in_the_name_of_who_started_it(
    world: World, page: TestClient, context: dict[str, Any], action: str, rate: Any, wished: dict[str, Any]
) -> None:
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    context["dag_run"] = SimpleNamespace(triggering_user_name="ann", dag_id="kafka_pace", clear_number=0)
    mirror = {"name": "orders", "source": "not asked", "target": "dc2"}
    PaceMirrorOperator(task_id="t", mirror=mirror, action=action, rate=rate).execute(context)
    (row,) = get(page, "/list").json()["mirrors"]
    one = row["pause" if action == "pause" else "rate"]
    assert one["by"] == "ann by kafka_pace"
    found = {"pause": row["pause"] is not None, "rate": row["rate"] and (row["rate"]["max_bytes_per_second"] or "none")}
    assert found == wished


def test_next_try_of_a_pause_leaves_a_mirror_that_somebody_has_resumed(
    world: World, context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job did not rest within a minute, or its worker died behind the wish. Who clears the task means it again."""
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    context["dag_run"] = SimpleNamespace(triggering_user_name="ann", dag_id="kafka_pace", clear_number=0)
    mirror = {"name": "orders", "source": "not asked", "target": "dc2"}

    def paused() -> bool:
        found = PaceMirrorOperator(task_id="t", mirror=mirror, action="pause", retries=2).execute(context)
        return found["pause"] is not None

    def fails(*_: Any) -> None:
        raise TryAgain("its tail still copies")

    context["ti"].max_tries = 2
    with monkeypatch.context() as patched, pytest.raises(AirflowException, match="still copies"):
        patched.setattr("airflow_mirror.jobs.runner.pacing.active_tail", fails)
        paused()
    other = {**context, "task_state_store": None}
    PaceMirrorOperator(task_id="t", mirror=mirror, action="resume").execute(other)
    context["ti"].try_number = 2
    assert not paused()
    context["ti"].try_number, context["ti"].max_tries = 3, 4  # cleared
    assert paused()


@pytest.mark.parametrize("clears", [0, 1], ids=["retry", "cleared"])
def test_pause_that_is_cleared_while_it_waits_is_meant_again(world: World, context: dict[str, Any], clears: int) -> None:
    """Airflow leaves max_tries as it is then, as behind a try that failed."""
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    run = context["dag_run"] = SimpleNamespace(triggering_user_name="ann", dag_id="kafka_pace", clear_number=0)
    mirror = {"name": "orders", "source": "not asked", "target": "dc2"}
    context["ti"].max_tries = 2
    PaceMirrorOperator(task_id="t", mirror=mirror, action="pause", retries=2).execute(context)
    other: Any = {**context, "task_state_store": None}
    PaceMirrorOperator(task_id="t", mirror=mirror, action="resume").execute(other)
    context["ti"].try_number, run.clear_number = 2, clears
    found = PaceMirrorOperator(task_id="t", mirror=mirror, action="pause", retries=2).execute(context)
    assert (found["pause"] is not None) == bool(clears)


@pytest.mark.parametrize(("mirror", "action", "rate", "said"), [
    ("orders", "stop", "default", "action='stop'"), ("orders", "rate", "fast", "rate='fast'"),
    ("ordres", "pause", "default", "knows no such mirror"),
])  # fmt: skip
def test_what_can_not_be_wished_is_refused_and_changes_nothing(
    world: World, page: TestClient, context: dict[str, Any], mirror: str, action: str, rate: str, said: str
) -> None:
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    context["dag_run"] = SimpleNamespace(triggering_user_name=None, dag_id="kafka_pace", clear_number=0)
    one = {"name": mirror, "source": "not asked", "target": "dc2"}
    with pytest.raises(AirflowFailException, match=said):
        PaceMirrorOperator(task_id="t", mirror=one, action=action, rate=rate).execute(context)
    (row,) = get(page, "/list").json()["mirrors"]
    assert (row["pause"], row["rate"]) == (None, None)


@contextmanager
def asked(
    dag: str, subject: str, *, state: str = "deferred", answered: bool = False, ours: bool = False, **conf: str
) -> Iterator[None]:
    """Let a run of a DAG ask a person. :param ours: it is one of the package's, by its tag."""
    with a_task(dag, "approve", state=state, **conf) as (ti, _):
        with create_session() as session:
            if ours:
                known = session.get(DagModel, dag) is not None
                session.merge(DagModel(dag_id=dag, bundle_name="b"))
                session.flush()
                session.add(DagTag(dag_id=dag, name="kafka-mirror"))
            one = HITLDetail(ti_id=ti, options=["Approve", "Reject"], subject=subject, params={})
            one.responded_at = timezone.utcnow() if answered else None
            session.add(one)
        yield
        with create_session() as session:
            session.execute(delete(HITLDetail).where(HITLDetail.ti_id == ti))
            if ours:
                session.execute(delete(DagTag).where(DagTag.dag_id == dag))
                if not known:
                    session.execute(delete(DagModel).where(DagModel.dag_id == dag))


def waits(page: TestClient, who: str = "admin", role: str = "ADMIN") -> dict[str, list[str]]:
    """What waits for a person, by mirror."""
    rows = get(page, "/list", who, role).json()["mirrors"]
    assert all(row["needs_person"] is bool(row["approvals"]) for row in rows)
    return {row["mirror"]: [one["subject"] for one in row["approvals"]] for row in rows if row["approvals"]}


def test_approval_that_waits_is_on_the_mirrors_of_its_dag_or_on_the_one_that_its_form_names(
    world: World, page: TestClient
) -> None:
    three_mirrors(world)
    world.plan("more", {"more": 1}, DAGS[0])
    world.own("more", "more")
    with asked(DAGS[0], f"Cut over? {HOSTILE}"):
        assert waits(page) == {"more": [f"Cut over? {HOSTILE}"], "orders": [f"Cut over? {HOSTILE}"]}
        (row,) = [row for row in get(page, "/list").json()["mirrors"] if row["mirror"] == "more"]
        (one,) = row["approvals"]
        assert (one["dag"], one["task"], one["map_index"]) == (DAGS[0], "approve", -1) and "conf" not in one
    with asked(DAGS[0], "Cut over?", name="more"), asked("return_it", "Return?", ours=True, name="pay", target="dc2"):
        assert waits(page) == {"more": ["Cut over?"], "pay": ["Return?"]}
    with asked("kafka_drill", "Delete the disk?", name="orders"):
        assert waits(page) == {}, "a DAG that has nothing to do with mirrors may call something so"


@pytest.mark.parametrize(("dag", "seen", "form", "on"), [
    ("kafka_failback", "", {"target": "dc3"}, ["dc3"]),
    ("kafka_failback", DAGS[0], {"target": "dc3"}, []),
    ("kafka_failback", DAGS[0], {"target": "dc2"}, ["dc2"]),
    ("kafka_failback", "", {"target": "dc9"}, []),
    ("kafka_failback", "", {}, ["dc2", "dc3"]),
    (DAGS[0], DAGS[0], {"target": "dc3"}, []),
    (DAGS[0], DAGS[0], {"name": "to come", "target": "dc3"}, []),
    (DAGS[0], DAGS[0], {"name": "to come", "target": "dc2"}, ["dc2"]),
])  # fmt: skip
def test_approval_about_a_mirror_of_another_target_is_on_no_mirror_of_that_name(
    world: World, dag: str, seen: str, form: dict[str, str], on: list[str]
) -> None:
    """Who does not see the mirror that is meant was asked about the one that he sees."""
    with DrivenCluster("dc3") as cluster:
        other = World(world.source, cluster, target_id="dc3")
        for one, its in ((world, DAGS[0]), (other, DAGS[1])):
            one.plan("orders", {"orders": 1}, its)
            one.own("orders", "orders")
        connect(dc3=cluster)
        with another() as page, asked(dag, "Return?", ours=dag not in DAGS, **{"name": "orders", **form}):
            who = (f"anna:{seen},kafka_failback", "VIEWER") if seen else ("admin", "ADMIN")
            rows = get(page, "/list", *who).json()["mirrors"]
        other.close()
    assert [row["target_id"] for row in rows if row["approvals"]] == on


def test_approval_of_a_form_with_the_connection_of_the_plan_is_on_a_target_that_is_looked_at_by_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_mirrors(world)
    connect(readonly=world.target)
    monkeypatch.setenv("AIRFLOW__MIRROR__TARGETS", "readonly")
    with another() as page, asked("kafka_failback", "Return?", ours=True, name="pay", target="dc2"):
        assert waits(page) == {"pay": ["Return?"]}


def test_approval_that_was_answered_or_whose_task_has_ended_waits_no_more(world: World, page: TestClient) -> None:
    three_mirrors(world)
    with asked(DAGS[0], "a", answered=True), asked(DAGS[0], "b", state="failed"):
        assert waits(page) == {}


def test_approvals_that_nobody_answered_in_time_take_no_place_of_those_that_wait(
    world: World, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_mirrors(world)
    monkeypatch.setattr("airflow_mirror.page.approvals._MOST", 1)
    with asked(DAGS[0], "old", state="failed"), asked(DAGS[0], "new"):
        assert waits(page) == {"orders": ["new"]}


def test_approvals_of_dags_without_a_mirror_take_no_place_of_those_of_mirrors(
    world: World, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_mirrors(world)
    monkeypatch.setattr("airflow_mirror.page.approvals._MOST", 1)
    with asked("invoices", "Pay?"), asked(DAGS[0], "Cut over?"):
        assert waits(page) == {"orders": ["Cut over?"]}
    with asked("invoices", "Pay?"), asked("return_it", "Return?", ours=True, name="pay"):
        assert waits(page) == {"pay": ["Return?"]}


def test_approval_is_seen_by_who_may_see_what_its_dag_asks(world: World, page: TestClient) -> None:
    three_mirrors(world)
    with asked("kafka_failback", "Return?", ours=True, name="orders"):
        assert waits(page, f"anna:{DAGS[0]}", "VIEWER") == {}
        assert waits(page, f"anna:{DAGS[0]},kafka_failback", "VIEWER") == {"orders": ["Return?"]}
