"""What the page's routes tell whom: Airflow's own auth manager and database, and targets on the driven broker."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = "of-these-tests-alone" * 4

from airflow.api_fastapi.app import _AuthManagerState, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.connection import Connection
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi.testclient import TestClient
from sqlalchemy import delete, insert, update

from airflow_mirror.extras.clients.inventory import NOT_YET, READS, Inventory, Reader, Writer
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.hooks.home import url_of
from airflow_mirror.operators.pace import PaceMirrorOperator
from airflow_mirror.page import closely
from airflow_mirror.page.actions import ACTIONS
from airflow_mirror.page.app import make_app
from airflow_mirror.page.looks import Looks
from airflow_mirror.page.rows import clients_in
from airflow_mirror.plan.findings import BLOCK
from tests.driven.cluster import DrivenCluster
from tests.page.world import HOSTILE, World, finding

if TYPE_CHECKING:
    from httpx import Response

DAGS = ("night_of_orders", "payments")
ACTING = tuple(dict.fromkeys(one.dag for one in ACTIONS))


class PerDag(SimpleAuthManager):
    """Airflow's own, but that somebody may only read, or start, the DAGs that his name lists: ``reader:orders``."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        there = super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
        _, only, dags = user.username.partition(":")
        return there and (not only or details is None or details.id in dags.split(","))


@pytest.fixture(scope="module", autouse=True)
def database() -> None:
    initdb()
    _AuthManagerState.instance = manager = PerDag()
    manager.init()
    with create_session() as session:
        session.add(DagBundleModel(name="b"))
        session.flush()
        session.add_all(DagModel(dag_id=one, bundle_name="b") for one in (*DAGS, *ACTING))


@pytest.fixture
def ledger() -> None:
    """The real ones, on the driven broker."""


@pytest.fixture
def state() -> None:
    """Likewise."""


@pytest.fixture
def world() -> Iterator[World]:
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        one = World(source, target)
        connect(dc1=source, dc2=target)
        yield one
        one.close()
    with create_session() as session:
        session.execute(delete(Connection))


def connect(**clusters: DrivenCluster | str) -> None:
    """Create connections in Airflow's database; of text: to an address."""
    with create_session() as session:
        for conn_id, one in clusters.items():
            servers = one if isinstance(one, str) else one.config.bootstrap
            extra = json.dumps(
                {"bootstrap.servers": servers, "security.protocol": "PLAINTEXT", "sasl.password": "hunter2"}
            )
            session.add(Connection(conn_id=conn_id, conn_type="kafka", extra=extra))


@pytest.fixture(autouse=True)
def _as_in_the_api_server(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Its own program says so (airflow.api_fastapi.main)."""
    monkeypatch.setitem(os.environ, "_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setattr("airflow_mirror.jobs.health.gathering.BETWEEN_S", 0.01)


@contextmanager
def another(looking: Looks | None = None, wait_s: float = 60.0) -> Iterator[TestClient]:
    """The page of another API server."""
    looking = looking or Looks()
    with TestClient(make_app(looking, wait_s)) as client:
        yield client
    deadline = time.monotonic() + 60
    while looking._looks and time.monotonic() < deadline:
        looking.forget(0)
        time.sleep(0.01)


@pytest.fixture
def looking() -> Looks:
    """What the page has seen, for as long as it is in production."""
    return Looks()


@pytest.fixture
def page(world: World, looking: Looks) -> Iterator[TestClient]:
    """It waits for what it is asked for."""
    with another(looking) as client:
        yield client


@pytest.fixture
def page_anew(world: World) -> Iterator[TestClient]:
    """One that looks again for whoever asks."""
    with another(Looks(fresh_s=0.0, closely_fresh_s=0.0)) as client:
        yield client


def get(page: TestClient, path: str, who: str = "admin", role: str | None = "ADMIN", **query: str) -> Response:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=who, role=role))
    return page.get(path, params=query, headers={"Authorization": f"Bearer {token}"})


def names(answer: Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(row["mirror"] for row in answer.json()["mirrors"])


def three_mirrors(world: World) -> None:
    """One of each DAG, and one that a person has planned."""
    for name, dag in (("orders", DAGS[0]), ("pay", DAGS[1]), ("byhand", None)):
        world.plan(name, {name: 1}, dag)
        world.own(name, name)


# --- rights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "list",
        "one?target=dc2&mirror=orders",
        "clients?target=dc2&mirror=orders",
        "files/orders/x",
        "page.js",
        "icon.svg",
        "nothing",
    ],
)
def test_nobody_is_told_anything_before_he_has_logged_in(page: TestClient, path: str) -> None:
    assert page.get(f"/{path}").status_code == 401


def test_every_route_asks_who_it_is() -> None:
    """Also one that somebody adds later: a plugin's routes are open by default."""
    for route in make_app(Looks()).routes:
        assert "get_user" in str([one.call for one in route.dependant.dependencies]), route.path  # type: ignore[attr-defined]


@pytest.mark.parametrize(("who", "role", "seen"), [
    ("admin", "ADMIN", ["byhand", "orders", "pay"]),
    ("anna", "VIEWER", ["byhand", "orders", "pay"]),  # reads every DAG
    ("anna:night_of_orders", "VIEWER", ["orders"]),
    (",".join((f"anna:{DAGS[0]}", DAGS[1], *ACTING)), "VIEWER", ["byhand", "orders", "pay"]),
    ("anna:other", "VIEWER", []),
    ("nobody", None, []),
])  # fmt: skip
def test_a_mirror_is_seen_by_readers_of_its_dag(
    world: World, page: TestClient, who: str, role: str | None, seen: list[str]
) -> None:
    three_mirrors(world)
    answer = get(page, "/list", who, role)
    assert names(answer) == seen
    assert [one["target_id"] for one in answer.json()["targets"]] == (["dc2"] if seen else [])
    for name in ("orders", "pay", "byhand"):
        one = get(page, "/one", who, role, target="dc2", mirror=name)
        assert one.status_code == (200 if name in seen else 404)


def test_secrets_of_connections_are_in_no_answer(world: World, page: TestClient) -> None:
    three_mirrors(world)
    connect(gone="127.0.0.1:1")
    for path in ("/list", "/one?target=dc2&mirror=orders"):
        assert "hunter2" not in get(page, path).text


# --- what is told ---------------------------------------------------------------------------------------------------


def test_mirrors_of_a_target_are_told_as_their_jobs_say(world: World, page: TestClient) -> None:
    world.create({"orders": [0, 0]})
    plan = world.plan("orders", {"orders": 2}, DAGS[0])
    world.own("orders", "orders")
    tail = world.tail(plan)
    figures = {"lag": 12, "lag_s": 1.4, "headroom_s": 500_000, "records_per_s": 7, "bytes_per_s": 900, "eta_s": 3}
    world.says(tail, phase="copying", summary=figures)
    (row,) = get(page, "/list").json()["mirrors"]
    assert {key: row[key] for key in ("source", "target", "dag", "phase", "needs_person", *figures)} == {
        "source": "dc1", "target": "dc2", "dag": DAGS[0], "phase": 2, "needs_person": False, **figures
    }  # fmt: skip


def test_course_of_a_mirror_outlives_the_connections_by_which_it_was_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mirror.page.course.EVERY_S", 0.0)
    looking = Looks()
    tail = world.tail(world.plan("orders", {"orders": 1}, DAGS[0]))
    for lag in (12, 7):
        world.says(tail, phase="copying", summary={"lag": lag, "lag_s": lag / 10, "bytes_per_s": 900})
        looking.targets(60.0)
        looking.forget(0)
        assert not looking._looks
    assert [one[1:] for one in looking.course("dc2", "orders")] == [(12, 1.2, 900), (7, 0.7, 900)]


def test_fence_that_is_up_says_until_when_and_needs_a_person(world: World, page: TestClient) -> None:
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    world.fence(plan, max_fence_s=900.0)
    (row,) = get(page, "/list").json()["mirrors"]
    assert (row["state"], row["needs_person"]) == ("source fenced", True)
    assert abs(row["fences"][0]["until"] - world.target.clock.now_ms / 1000 - 900) < 2
    assert row["lift_command"] == "airflow-mirror lift-fence --target dc2 --mirror orders"


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

    dags = DagBag(str(Path(__file__).parents[2] / "dags")).dags
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
    context["dag_run"] = SimpleNamespace(triggering_user_name="ann", dag_id="kafka_pace")
    mirror = {"name": "orders", "source": "not asked", "target": "dc2"}
    PaceMirrorOperator(task_id="t", mirror=mirror, action=action, rate=rate).execute(context)
    (row,) = get(page, "/list").json()["mirrors"]
    one = row["pause" if action == "pause" else "rate"]
    assert one["by"] == "ann by kafka_pace"
    found = {"pause": row["pause"] is not None, "rate": row["rate"] and (row["rate"]["max_bytes_per_second"] or "none")}
    assert found == wished


@pytest.mark.parametrize(("mirror", "action", "rate", "said"), [
    ("orders", "stop", "default", "action='stop'"), ("orders", "rate", "fast", "rate='fast'"),
    ("ordres", "pause", "default", "knows no such mirror"),
])  # fmt: skip
def test_what_can_not_be_wished_is_refused_and_changes_nothing(
    world: World, page: TestClient, context: dict[str, Any], mirror: str, action: str, rate: str, said: str
) -> None:
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    context["dag_run"] = SimpleNamespace(triggering_user_name=None, dag_id="kafka_pace")
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
    now, ti, run = timezone.utcnow(), uuid4(), f"manual__{uuid4().hex[:6]}"
    with create_session() as session:
        session.add(
            DagRun(dag_id=dag, run_id=run, run_type="manual", conf=conf, run_after=now, state=DagRunState.RUNNING)
        )
        session.flush()
        if ours:
            known = session.get(DagModel, dag) is not None
            session.merge(DagModel(dag_id=dag, bundle_name="b"))
            session.flush()
            session.add(DagTag(dag_id=dag, name="kafka-mirror"))
        values = {"id": ti, "dag_id": dag, "run_id": run, "task_id": "approve", "map_index": -1, "state": state}
        needed = {"pool": "default_pool", "pool_slots": 1, "queue": "q", "try_number": 1, "max_tries": 0}
        session.execute(insert(TaskInstance).values(**values, **needed))
        one = HITLDetail(ti_id=ti, options=["Approve", "Reject"], subject=subject, params={})
        one.responded_at = now if answered else None
        session.add(one)
    yield
    with create_session() as session:
        session.execute(delete(HITLDetail).where(HITLDetail.ti_id == ti))
        session.execute(delete(TaskInstance).where(TaskInstance.id == ti))
        session.execute(delete(DagRun).where(DagRun.run_id == run))
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


def test_approval_is_seen_by_who_may_see_what_its_dag_asks(world: World, page: TestClient) -> None:
    three_mirrors(world)
    with asked("kafka_failback", "Return?", ours=True, name="orders"):
        assert waits(page, f"anna:{DAGS[0]}", "VIEWER") == {}
        assert waits(page, f"anna:{DAGS[0]},kafka_failback", "VIEWER") == {"orders": ["Return?"]}


def test_bulk_copy_says_how_far_it_is(world: World, page: TestClient) -> None:
    from airflow_mirror.jobs.runner.active import JobId

    world.plan("big", {"big": 1}, DAGS[0])
    world.own("big", "big")
    world.says(JobId(name="big", host="h", where="h", bulk=True), summary={"lag": 58, "offsets": 100, "eta_s": 21})
    (row,) = get(page, "/list").json()["mirrors"]
    assert (row["state"], round(row["done"], 2), row["eta_s"], row["phase"]) == ("copying", 0.42, 21, 1)


def test_a_close_look_asks_both_clusters(world: World, page: TestClient) -> None:
    world.create({"orders": [5, 0, 9]})
    block = finding(BLOCK, "topics without rules are open", "Set open_by_default.")
    plan = world.plan("orders", {"orders": 3}, DAGS[0], findings=(block,))
    world.own("orders", "orders")
    world.report(plan, "monday")
    found = get(page, "/one", target="dc2", mirror="orders").json()["closely"]
    assert found["error"] is None
    assert [(one["source"], one["lags"]) for one in found["topics"]] == [("orders", [5, 0, 9])]
    assert found["plan"]["findings"][0]["remedy"] == "Set open_by_default."
    assert "tail" in [one["check"] for one in found["checks"]]
    drawn = [mark["text"] for mark in found["night"]["charts"][0]["marks"] if mark["tag"] == "text"]
    assert found["night"]["run"] == "monday" and "drain" in drawn


def test_source_of_another_name_is_not_asked_and_that_is_said(world: World, page: TestClient) -> None:
    """The ledger names it as whoever planned does, and must not lead to what this Airflow calls so."""
    world.source_id = "theirs"
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    assert "no connection 'theirs'" in get(page, "/one", target="dc2", mirror="orders").json()["closely"]["unknown"]
    with DrivenCluster("other") as other:
        connect(theirs=other)
        with another() as again:
            found = get(again, "/one", target="dc2", mirror="orders").json()["closely"]
        assert "leads to another cluster" in found["unknown"] and not other.asked("ListOffsets")


def test_target_that_is_away_is_one_row_and_keeps_nobody_waiting(world: World) -> None:
    three_mirrors(world)
    connect(gone="127.0.0.1:1")
    with another(wait_s=2.0) as page:
        answer = get(page, "/list").json()
        assert ([one["target_id"] for one in answer["targets"]], answer["looking"]) == (["dc2"], True)
        while (answer := get(page, "/list").json())["looking"]:
            time.sleep(0.1)
        rows = {one["target_id"]: one["error"] for one in answer["targets"]}
        assert rows["dc2"] is None and "no broker at 127.0.0.1:1" in rows["gone"]
        assert len(answer["mirrors"]) == 3
        seen = get(page, "/list", "anna:payments", "VIEWER").json()
        assert [one["target_id"] for one in seen["targets"]] == ["dc2"]


def test_mirrors_of_a_target_that_goes_stay_with_the_error(world: World, page_anew: TestClient) -> None:
    three_mirrors(world)
    assert len(get(page_anew, "/list").json()["mirrors"]) == 3
    world.target.kill(1)
    answer = get(page_anew, "/list").json()
    assert len(answer["mirrors"]) == 3 and answer["targets"][0]["error"]


def test_setting_names_which_connections_are_looked_at(
    world: World, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_mirrors(world)
    monkeypatch.setenv("AIRFLOW__MIRROR__TARGETS", "dc1, away")
    assert names(get(page, "/list")) == []
    monkeypatch.setenv("AIRFLOW__MIRROR__TARGETS", "dc2")
    with another() as again:
        assert len(names(get(again, "/list"))) == 3


def test_target_whose_connection_was_made_by_the_form_is_looked_at_too(world: World, page: TestClient) -> None:
    three_mirrors(world)
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id == "dc2"))
        extra = json.dumps({"log_in": "none", "bootstrap_servers": world.target.config.bootstrap})
        session.add(Connection(conn_id="form", conn_type="kafka_cluster", extra=extra))
    answer = get(page, "/list")
    assert names(answer) == ["byhand", "orders", "pay"]
    assert {row["target_id"] for row in answer.json()["mirrors"]} == {"form"}


@pytest.mark.parametrize("wrong", [float("nan"), "many", {"a": 1}, None])
def test_what_no_job_would_say_takes_nobodys_page_away(world: World, page: TestClient, wrong: object) -> None:
    three_mirrors(world)
    plan = world.plan("odd", {"odd": 1}, DAGS[0])
    summary = dict.fromkeys(
        ("lag", "lag_s", "headroom_s", "records_per_s", "bytes_per_s", "eta_s", "held", "stopped"), wrong
    )
    world.says(world.tail(plan), phase="copying", summary=summary | {"states": {}}, follows={"groups": {"said": [wrong]}})
    rows = {row["mirror"]: row for row in get(page, "/list").json()["mirrors"]}
    assert set(rows) == {"odd", "orders", "pay", "byhand"}
    assert (rows["odd"]["lag"], rows["odd"]["follows"]["groups"]["said"]) == (None, [str(wrong)])


# --- on demand, and of drills ----------------------------------------------------------------------------------------


def an_inventory(opened_ms: int = 0) -> Inventory:
    return Inventory(
        mirror="orders", at_ms=9_000, opened_ms=opened_ms, newcomers=2, unseen=["producers: why"],
        readers=[
            Reader(group=HOSTILE, kind="consumer", state="Stable", clients=["c-1 at h"], topics=["orders"]),
            Reader(group="old", kind="consumer", state="Empty", clients=[], topics=["orders"], on_target=READS),
        ],
        writers=[Writer(name="tx", transactional=True, topics=["orders"], last_ms=8_000, on_target=NOT_YET)],
    )  # fmt: skip


def test_clients_are_asked_for_when_somebody_wants_to_know_and_not_in_each_look(
    world: World, looking: Looks, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, free = list[str](), threading.Event()

    def look(plan: Any, *_: Any) -> Inventory:
        asked.append(plan.mirror.name)
        assert free.wait(60)
        return an_inventory(opened_ms=5_000)

    monkeypatch.setattr(closely, "look", look)
    world.create({"orders": [0]})
    three_mirrors(world)
    get(page, "/list")
    get(page, "/one", target="dc2", mirror="orders")
    assert asked == []
    one = {"target": "dc2", "mirror": "orders"}
    assert get(TestClient(make_app(looking, 0.05)), "/clients", **one).json() == {"looking": True}
    free.set()
    found = get(page, "/clients", **one).json()["clients"]
    assert get(page, "/clients", **one).json()["clients"] == found and asked == ["orders"], "one look for all who ask"
    assert [(r["group"], bool(r["waiting"])) for r in found["readers"]] == [(HOSTILE, True), ("old", False)]
    told = {key: found[key] for key in ("readers_count", "writers_count", "waiting", "unseen")}
    assert told == {"readers_count": 2, "writers_count": 1, "waiting": 2, "unseen": ["producers: why"]}
    assert get(page, "/clients", "anna:payments", "VIEWER", **one).status_code == 404


def test_older_list_of_clients_never_passes_for_the_one_that_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, looking = threading.Event(), Looks(closely_fresh_s=0.0)
    free.set()
    monkeypatch.setattr(closely, "look", lambda *_: free.wait(60) and an_inventory())
    three_mirrors(world)
    one = {"target": "dc2", "mirror": "orders"}
    with another(looking) as page:
        assert get(page, "/clients", **one).json()["clients"]
        free.clear()
        assert get(TestClient(make_app(looking, 0.05)), "/clients", **one).json() == {"looking": True}
        free.set()


def test_nobody_is_waited_for_before_the_target_is_open() -> None:
    found = clients_in(an_inventory())
    assert found["waiting"] == 0 and not any(one["waiting"] for one in (*found["readers"], *found["writers"]))


def test_clients_of_a_source_that_is_not_known_here_are_not_asked_and_that_is_said(
    world: World, page: TestClient
) -> None:
    world.source_id = "theirs"
    three_mirrors(world)
    found = get(page, "/clients", target="dc2", mirror="orders").json()
    assert "no connection 'theirs'" in found["unknown"] and found["clients"] is None


def test_drills_between_the_clusters_of_a_mirror_are_shown_to_who_may_see_the_drills_own(
    world: World, page: TestClient
) -> None:
    world.create({"orders": [0], "drill": [0]})
    three_mirrors(world)
    world.plan("dr-drill", {"drill": 1}, DAGS[1])
    world.own("dr-drill", "drill")
    drills = Drills(world.state, "dr-drill")
    for n, (rpo_s, rto_s) in enumerate([(0.4, 12.0), (7.5, 90.0)]):
        drills.save(
            Drill(
                run=f"week{n}", at_ms=1_700_000_000_000 + n, source_id=world.source.cluster_id, wanted={"rpo_s": 5.0},
                figures={"rpo_s": rpo_s, "rto_s": rto_s, "lost": n, "reread": 0}, missed=["RPO"] if n else [],
            )
        )  # fmt: skip
    Drills(world.state, "elsewhere").save(Drill(run="x", at_ms=1, source_id="another"))
    one = {"target": "dc2", "mirror": "orders"}
    found = get(page, "/one", **one).json()["closely"]["drills"]
    assert list(found) == ["dr-drill"]
    assert [(row["run"], row["rpo_s"], row["over"], row["missed"]) for row in found["dr-drill"]["rows"]] == [
        ("week1", 7.5, ["rpo_s"], True), ("week0", 0.4, [], False)
    ]  # fmt: skip
    titles = [(c["title"], sum(mark["tag"] == "circle" for mark in c["marks"])) for c in found["dr-drill"]["charts"]]
    assert titles[:2] == [("RPO (s; dashed: the objective)", 2), ("RTO (s)", 2)]
    assert get(page, "/one", f"anna:{DAGS[0]}", "VIEWER", **one).json()["closely"]["drills"] == {}


# --- hostile --------------------------------------------------------------------------------------------------------


def test_names_arrive_as_json_that_no_browser_takes_for_a_page(world: World, page: TestClient) -> None:
    plan = world.plan("orders", {HOSTILE: 1}, DAGS[0])
    world.own("orders", HOSTILE)
    world.says(world.tail(plan, HOSTILE), "FAILED", error=HOSTILE)
    answer = get(page, "/list")
    assert answer.json()["mirrors"][0]["host"] == HOSTILE
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_reports_are_served_in_a_sandbox(world: World, page: TestClient, home: Path) -> None:
    three_mirrors(world)
    report = home / "orders" / "runs" / "monday" / "report.html"
    report.parent.mkdir(parents=True)
    report.write_text("<h1>Cut over</h1><script>1</script>")
    answer = get(page, "/files/orders/runs/monday/report.html", "anna:night_of_orders", "VIEWER")
    assert "Cut over" in answer.text and answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert get(page, "/files/orders/runs/monday/report.html", "anna:payments", "VIEWER").status_code == 404
    (link,) = get(page, "/one", target="dc2", mirror="orders").json()["files"]
    assert get(page, f"/files/{link['path']}").status_code == 200


@pytest.mark.parametrize("path", [
    "orders/runs/../../secret.html", "orders/runs/%2e%2e/%2e%2e/secret.html", "orders/runs/..%2f..%2fsecret.html/x.html",
    "orders/runs/monday/link.html", "orders/runs/monday/settings.properties", "orders/jobs/bulk/1/request.json",
    "orders/runs/%00/report.html", "%2e%2e/secret.html", "orders//etc/passwd",
])  # fmt: skip
def test_no_path_leads_out_of_what_is_served(world: World, page: TestClient, home: Path, path: str) -> None:
    three_mirrors(world)
    run, job = home / "orders" / "runs" / "monday", home / "orders" / "jobs" / "bulk" / "1"
    for directory in (run, job):
        directory.mkdir(parents=True)
    outside = home.parent / "outside.html"
    for file in (home / "secret.html", outside, run / "settings.properties", job / "request.json"):
        file.write_text("secret")
    (run / "link.html").symlink_to(outside)
    assert get(page, f"/files/{path}").status_code == 404


def test_report_of_a_worker_with_another_disk_comes_from_the_ledger(world: World, page: TestClient) -> None:
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    world.report(plan, "monday")
    answer = get(page, "/files/orders/runs/monday/report.html")
    assert "prove_fence" in answer.text and answer.headers["content-type"].startswith("text/html")
    assert get(page, "/files/orders/runs/tuesday/report.html").status_code == 404
    assert get(page, "/files/orders/runs/monday/drill.html").status_code == 404


def test_links_of_tasks_lead_to_the_page_where_no_server_is_named(world: World, page: TestClient, home: Path) -> None:
    """Relative, so that they work below whatever path Airflow is served at."""
    three_mirrors(world)
    log = home / "orders" / "jobs" / "bulk é" / "3" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("a line")
    link = url_of(log)
    assert link == "mirrors/files/orders/jobs/bulk%20%C3%A9/3/log.txt"
    assert get(page, link.removeprefix("mirrors")).text == "a line"
