"""What the page's routes tell whom: Airflow's own auth manager and database, and targets on the driven broker."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from sqlalchemy import delete

from airflow_mirror.common.clock import SystemClock
from airflow_mirror.jobs.runner.active import Heartbeat, JobId
from airflow_mirror.page.app import make_app
from airflow_mirror.page.closely import MirrorLook
from airflow_mirror.page.looks import Looks, TargetLook
from airflow_mirror.page.single import Single
from tests.page.world import HOSTILE, World
from tests.provider.page.asking import ACTING, DAGS, another, connect, get, names, three_mirrors
from tests.waiting import wait_until

if TYPE_CHECKING:
    from fastapi.testclient import TestClient


class Later(SystemClock):
    """The machine's clock, but that time has passed."""

    later_s = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return time.monotonic() + self.later_s


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


def test_names_in_newer_records_are_for_who_reads_every_dag(world: World, page: TestClient) -> None:
    """A key has the name of another team's mirror, or topic, in it. That there is something all may know."""
    three_mirrors(world)
    newer = {"active/pay": {"v": 99}, "topic/salaries": {"v": 99}}
    world.ledger.decide(lambda _: newer)
    (told,) = get(page, "/list").json()["targets"]
    assert (told["newer"], told["newer_count"]) == (sorted(newer), 2)
    answer = get(page, "/list", f"anna:{DAGS[0]}", "VIEWER")
    (told,) = answer.json()["targets"]
    assert (told["newer"], told["newer_count"]) == ([], 2)
    assert "salaries" not in answer.text and "active/pay" not in answer.text


def test_secrets_of_connections_are_in_no_answer(world: World, page: TestClient) -> None:
    three_mirrors(world)
    connect(gone="127.0.0.1:1")
    for path in ("/list", "/one?target=dc2&mirror=orders"):
        assert "hunter2" not in get(page, path).text


@pytest.mark.parametrize("path", [
    "/files/orders/runs/monday/report.html", "/files/none/runs/monday/report.html", "/one?target=dc2&mirror=orders",
    "/one?target=none&mirror=none", "/clients?target=dc2&mirror=orders",
])  # fmt: skip
def test_whose_a_mirror_is_that_no_target_has_told_yet_is_said_to_be_asked(
    world: World, home: Path, path: str
) -> None:  # fmt: skip
    """Of what there is and of what there is not alike. It was 404: no such file, of one that lay there."""
    three_mirrors(world)
    report = home / "orders" / "runs" / "monday" / "report.html"
    report.parent.mkdir(parents=True)
    report.write_text("Cut over")
    world.target.kill(1)
    with another() as page:
        answer = get(page, path, f"anna:{DAGS[0]}", "VIEWER")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, answer.headers["refresh"])
        assert "still being asked" in answer.json()["detail"]
        assert path[:7] != "/files/" or "none" in path or get(page, path).status_code == 200, "who reads every DAG"


def test_every_script_and_picture_of_the_page_is_served(page: TestClient) -> None:
    own = [one.name for one in resources.files("airflow_mirror.page").iterdir() if one.name.endswith((".js", ".svg"))]
    assert {get(page, f"/{name}").status_code for name in own} == {200} and len(own) > 3


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


def test_look_that_was_just_handed_out_is_not_forgotten() -> None:
    """Its request had not begun yet: what it read then stayed open for ever, as nobody forgets what nobody finds."""
    looking = Looks()

    def mirror() -> Single[dict[str, Any]]:
        return looking._single(partial(MirrorLook, "dc2", "orders"), 3.0, looking._mirrors, "dc2", "orders")

    mirror().asked -= 400.0
    one = mirror()
    looking.forget()
    assert mirror() is one
    one.asked -= 400.0
    looking.forget()
    assert not looking._looks


def test_request_gets_its_look_while_another_forgets_it() -> None:
    """It was a KeyError."""

    class Forgetting(dict[Any, Any]):
        def __contains__(self, key: object) -> bool:
            there = super().__contains__(key)
            self.clear()  # as another thread does in between
            return there

    looking = Looks()
    looking._looks = Forgetting()
    for _ in range(2):
        assert looking._single(partial(MirrorLook, "dc2", "orders"), 3.0, looking._mirrors, "dc2", "orders")


def test_fence_that_is_up_says_until_when_and_needs_a_person(world: World, page: TestClient) -> None:
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    world.fence(plan, max_fence_s=900.0)
    (row,) = get(page, "/list").json()["mirrors"]
    assert (row["state"], row["needs_person"]) == ("source fenced", True)
    assert abs(row["fences"][0]["until"] - world.target.clock.now_ms / 1000 - 900) < 2
    assert row["lift_command"] == "airflow-mirror lift-fence --target dc2 --mirror orders"


def test_tail_that_died_while_nobody_looked_is_not_told_to_follow(world: World) -> None:
    """It was green for half a minute: its last sign was another one than at the last look, hours ago."""
    clock = Later()
    tail = world.tail(world.plan("orders", {"orders": 1}, DAGS[0]))
    seen = list[str]()
    with another(Looks(fresh_s=0.0, clock=clock)) as page:
        for pause_s in (5, 8 * 3600, 31, 0):
            if len(seen) < 3:
                world.says(tail, phase="copying", summary={"lag": 0, "lag_s": 0.0})
            seen += [row["state"] for row in get(page, "/list").json()["mirrors"]]
            clock.later_s += pause_s
    assert seen == ["listening", "following", "listening", "lost"]


def test_bulk_copy_says_how_far_it_is(world: World, page_anew: TestClient) -> None:
    world.plan("big", {"big": 1}, DAGS[0])
    world.own("big", "big")
    job = JobId(name="big", host="h", where="h", bulk=True)
    for state in ("listening", "copying"):
        world.says(job, summary={"lag": 58, "offsets": 100, "eta_s": 21})
        (row,) = get(page_anew, "/list").json()["mirrors"]
        found = (row["state"], round(row["done"], 2), row["eta_s"], row["phase"], row["needs_person"])
        assert found == (state, 0.42, 21, 1, False)


@pytest.mark.parametrize("end", ["killed", "well", "FAILED", "in production"])
def test_bulk_copy_that_has_ended_does_not_copy(world: World, end: str) -> None:
    """One whose host was lost copied for half a minute, and was planned then: green, and nobody was told."""
    world.plan("big", {"big": 1}, DAGS[0])
    world.own("big", "big")
    job, clock = JobId(name="big", host="h", where="h", bulk=True), Later()
    world.says(job, summary={"lag": 58, "offsets": 100})
    with another(Looks(fresh_s=0.0, clock=clock)) as page:
        get(page, "/list")
        world.says(job, summary={"lag": 50, "offsets": 100})
        assert get(page, "/list").json()["mirrors"][0]["state"] == "copying"
        if end == "well":
            Heartbeat(world.state, job).forget()
        elif end == "in production":
            world.own("big", "big", opened="plan")
        elif end == "FAILED":
            world.says(job, end, error="disk full")
        clock.later_s += 29
        get(page, "/list")
        clock.later_s += 2
        (row,) = get(page, "/list").json()["mirrors"]
    state = {"killed": "lost", "well": "at rest", "FAILED": "failed"}.get(end, end)
    is_wrong = end in ("killed", "FAILED")
    assert (row["state"], row["needs_person"], bool(row["findings"])) == (state, is_wrong, is_wrong)
    assert row["phase"] == (4 if end == "in production" else 1)
    if is_wrong:
        assert row["findings"][0]["check"] == "bulk copy" and "host h" in row["findings"][0]["evidence"]
        assert row["lag"] is None


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


def test_what_was_heard_before_is_told_while_a_slow_look_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A target that is away took two seconds of each request, and a look at both clusters two more."""
    three_mirrors(world)
    connect(gone="127.0.0.1:1")
    looking, free = Looks(fresh_s=0.0, closely_fresh_s=0.0), threading.Event()
    heard, closely = looking.targets(60), looking.mirror("dc2", "orders", 60)
    assert [bool(one["error"]) for one in heard] == [False, False, True] and closely is not None
    answers = TargetLook.__call__
    monkeypatch.setattr(TargetLook, "__call__", lambda one: one.conn_id == "gone" and free.wait(60) or answers(one))
    monkeypatch.setattr(MirrorLook, "__call__", lambda _: free.wait(60) and closely)
    with another(looking), ThreadPoolExecutor(1) as pool:  # which closes its connections
        try:
            assert pool.submit(looking.targets, 600).result(20)[2]["error"] == heard[2]["error"]
            assert pool.submit(looking.mirror, "dc2", "orders", 600).result(20) == closely
        finally:
            free.set()


def test_targets_that_are_away_keep_nobody_waiting_for_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    free, known = threading.Event(), [f"gone{n}" for n in range(20)]
    monkeypatch.setattr("airflow_mirror.page.looks.target_ids", lambda: list(known))
    monkeypatch.setattr("airflow_mirror.page.looks._CONNECTIONS_FRESH_S", 0.0)
    monkeypatch.setattr(TargetLook, "__call__", lambda one: free.wait(60) and {"target_id": one.conn_id, "error": "away"})
    looking = Looks()
    try:
        looking.targets(0.2)
        known.append("new")
        assert looking._ids.get(5) == known
    finally:
        free.set()
        # Those that had to wait for a thread begin now, and would count as the next test's.
        wait_until(lambda: all(single.rests for _, single in looking._looks.values()))


def test_targets_that_are_away_keep_nobody_waiting_for_those_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked again and again, and takes seconds: more of them than there are threads took all."""
    free, calls = threading.Event(), Counter[str]()
    known = [*(f"gone{n}" for n in range(20)), "here"]
    monkeypatch.setattr("airflow_mirror.page.looks.target_ids", lambda: known)

    def look(one: TargetLook) -> dict[str, Any]:
        calls[one.conn_id] += 1
        if one.conn_id == "here":
            return {"target_id": "here", "error": None, "mirrors": [], "planned": {}, "seen": calls["here"]}
        if calls[one.conn_id] > 1:
            free.wait(60)
        return {"target_id": one.conn_id, "error": "away", "mirrors": [], "planned": {}}

    monkeypatch.setattr(TargetLook, "__call__", look)
    looking = Looks(fresh_s=0.0)
    try:
        assert all(one["error"] for one in looking.targets(30)[:-1])
        for seen in (2, 3):
            assert looking.targets(30)[-1]["seen"] == seen
    finally:
        free.set()


def test_mirrors_of_a_target_that_goes_stay_with_the_error(world: World, page_anew: TestClient) -> None:
    three_mirrors(world)
    answer = get(page_anew, "/list").json()
    (at,) = {row["at"] for row in answer["mirrors"]}
    assert len(answer["mirrors"]) == 3 and answer["now"] >= at
    world.target.kill(1)
    answer = get(page_anew, "/list").json()
    assert {row["at"] for row in answer["mirrors"]} == {at}, "when they were so"
    assert len(answer["mirrors"]) == 3 and answer["targets"][0]["error"]
    assert {row["error"] for row in answer["mirrors"]} == {answer["targets"][0]["error"]}, "also where no target is shown"


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


# --- hostile --------------------------------------------------------------------------------------------------------


def test_names_arrive_as_json_that_no_browser_takes_for_a_page(world: World, page: TestClient) -> None:
    plan = world.plan("orders", {HOSTILE: 1}, DAGS[0])
    world.own("orders", HOSTILE)
    world.says(world.tail(plan, HOSTILE), "FAILED", error=HOSTILE)
    answer = get(page, "/list")
    assert answer.json()["mirrors"][0]["host"] == HOSTILE
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
