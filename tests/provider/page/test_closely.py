"""What the page says of one mirror, on demand: a close look, clients, drills."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import delete

from airflow_mirror.extras.clients.inventory import NOT_YET, READS, Inventory, Reader, Writer
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.page import closely
from airflow_mirror.page.app import make_app
from airflow_mirror.page.looks import Looks
from airflow_mirror.page.rows import clients_in, group_of
from airflow_mirror.plan.findings import BLOCK
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.page.world import HOSTILE, World, finding, weekly_drills
from tests.provider.page.asking import DAGS, another, connect, get, three_mirrors
from tests.unit.plan.builders import a_mirror


def test_a_close_look_asks_both_clusters(world: World, page: TestClient) -> None:
    world.create({"orders": [5, 0, 9]})
    block = finding(BLOCK, "topics without rules are open", "Set open_by_default.")
    plan = world.plan("orders", {"orders": 3}, DAGS[0], findings=(block,))
    world.own("orders", "orders")
    world.report(plan, "monday")
    found = get(page, "/one", target="dc2", mirror="orders").json()["closely"]
    assert (found["error"], found["unknown"], found["checked"]) == (None, None, True)
    assert [(one["source"], one["lags"]) for one in found["topics"]] == [("orders", [5, 0, 9])]
    assert found["plan"]["findings"][0]["remedy"] == "Set open_by_default."
    assert "tail" not in [one["check"] for one in found["checks"]], "that none runs is no fault for who only looks"
    drawn = [mark["text"] for mark in found["night"]["charts"][0]["marks"] if mark["tag"] == "text"]
    assert found["night"]["run"] == "monday" and "drain" in drawn


@pytest.mark.parametrize("opened", [["orders"], ["orders", "pay"]])
def test_topic_in_production_is_not_on_hold_and_that_is_no_fault(
    world: World, page: TestClient, opened: list[str]
) -> None:
    """Every mirror that had been cut over was red for ever, for settings that its cutover itself had given back."""
    world.create({"orders": [0], "pay": [0]})
    held = {"retention.ms": "-1", "cleanup.policy": "delete"}
    plan = world.plan("orders", {"orders": 1, "pay": 1}, DAGS[0], held_configs=held)
    for topic in ("orders", "pay"):
        world.target.topics[topic].set({"retention.ms": "604800000"})
        by = plan.hash if topic in opened else None
        world.own("orders", topic, opened=by, source_id=world.source.cluster_id)
    if len(opened) == 2:
        world.says(world.tail(plan), "SUCCEEDED")
    found = get(page, "/one", target="dc2", mirror="orders").json()["closely"]
    held_yet = {"orders", "pay"} - {*opened}
    assert found["checked"] and len(found["checks"]) == len(held_yet), found["checks"]
    for one in found["checks"]:
        assert one["check"] == "hold" and "target topic 'pay': retention.ms is 604800000" in one["evidence"]


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
        assert not found["checked"] and found["plan"]
        assert "leads to another cluster" in found["unknown"] and not other.asked("ListOffsets")


def unknown_of_orders(page: TestClient, until: str | None) -> str | None:
    """Why the source of ``orders`` is not looked at; asked until it is what is expected: a look may be under way."""
    deadline = time.monotonic() + 20
    while True:
        found = get(page, "/one", target="dc2", mirror="orders").json()["closely"]
        why: str | None = found["unknown"]
        if (found["checked"] if until is None else until in (why or "")) or time.monotonic() > deadline:
            return why
        time.sleep(0.05)


def test_source_whose_connection_was_corrected_is_asked_while_somebody_looks(world: World, page_anew: TestClient) -> None:
    """The connection that was there at the first look was used until nobody had looked for five minutes."""
    world.create({"orders": [5]})
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    with DrivenCluster("other") as other:
        for leads_to in (other, None, world.source, other):
            with create_session() as session:
                session.execute(delete(Connection).where(Connection.conn_id == "dc1"))
            if leads_to is not None:
                connect(dc1=leads_to)
            said = {id(other): "leads to another cluster", id(None): "no connection 'dc1'"}.get(id(leads_to))
            why = unknown_of_orders(page_anew, said)
            assert why is None if said is None else said in (why or "")


def test_source_of_a_new_plan_is_asked_while_somebody_looks(world: World, page_anew: TestClient) -> None:
    world.create({"orders": [5]})
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    assert unknown_of_orders(page_anew, None) is None
    with DrivenCluster("new") as new:
        new.create("orders", 1)
        connect(dc3=new)
        world.source, world.source_id = new, "dc3"
        plan = world.plan("orders", {"orders": 1}, DAGS[0])
        deadline = time.monotonic() + 20
        while True:
            found = get(page_anew, "/one", target="dc2", mirror="orders").json()["closely"]
            if found["plan"]["hash"] == plan.hash or time.monotonic() > deadline:
                break
        assert (found["plan"]["hash"], found["unknown"], found["checked"]) == (plan.hash, None, True)


def test_mirror_that_was_not_looked_at_is_not_told_to_be_well(world: World, page_anew: TestClient) -> None:
    """'Nothing is wrong', said the page, where nothing was asked."""
    world.own("unplanned", "orders")
    found = get(page_anew, "/one", target="dc2", mirror="unplanned").json()["closely"]
    assert (found["checked"], found["checks"], found["unknown"][:14]) == (False, [], "it has no plan")
    plan = world.plan("pay", {"pay": 1}, DAGS[0], positions={"old": {"pay": {0: 1}}})
    world.own("pay", "pay")
    world.report(plan, "monday")
    weekly_drills(world)
    get(page_anew, "/list")
    world.source.kill(1)
    one = {"target": "dc2", "mirror": "pay"}
    found = get(page_anew, "/one", **one).json()["closely"]
    assert (found["error"], found["checked"], found["checks"]) == (None, False, []) and "no broker" in found["unknown"]
    assert found["plan"]["hash"] == plan.hash and found["runs"] == ["monday"] and found["night"] and found["drills"]
    assert [(topic["source"], topic["lags"]) for topic in found["topics"]] == [("pay", None)]
    assert "no broker" in get(page_anew, "/clients", **one).json()["unknown"]
    groups = get(page_anew, "/group", **one, group="old").json()
    assert groups["group"]["positions"] == [["pay", 0, 1, None, None]] and "no broker" in groups["unknown"]


# --- groups -----------------------------------------------------------------------------------------------------------


def group_on(page: TestClient, group: str, who: str = "admin", role: str = "ADMIN") -> dict[str, Any]:
    found: dict[str, Any] = get(page, "/group", who, role, target="dc2", mirror="orders", group=group).json()
    return found


def test_groups_have_their_committed_offsets_on_both_sides_those_furthest_behind_first(
    world: World, page: TestClient
) -> None:
    world.create({"orders": [5, 0, 9]})
    world.plan("orders", {"orders": 3}, DAGS[0], positions={HOSTILE: {"orders": {0: 1, 2: 2}}, "old": {"orders": {1: 0}}})
    world.own("orders", "orders")
    world.commit("source", HOSTILE, {("orders", 0): 4, ("orders", 2): 2, ("elsewhere", 0): 7})
    world.commit("target", HOSTILE, {("orders", 0): 3, ("orders", 1): 0})
    plan = get(page, "/one", target="dc2", mirror="orders").json()["closely"]["plan"]
    assert plan["groups"] == [{"group": HOSTILE, "partitions": 2}, {"group": "old", "partitions": 1}]
    its = group_on(page, HOSTILE)["group"]
    assert its["positions"] == [["orders", 2, 2, None, 7], ["orders", 0, 4, 3, 1], ["orders", 1, None, 0, None]]
    assert (its["partitions"], its["lag"], its["left"], its["unseen"]) == (3, 8, 0, [])
    assert group_on(page, "old")["group"]["positions"] == [], "it was deleted since"
    asked = len(world.source.asked("OffsetFetch"))
    assert group_on(page, "old")["group"] and len(world.source.asked("OffsetFetch")) == asked, "one look for all who ask"
    assert "detail" in group_on(page, HOSTILE, "anna:payments", "VIEWER")


def test_positions_of_ten_thousand_partitions_are_capped_and_what_is_left_out_is_counted() -> None:
    topics = [topic_plan(f"t{n:03}", dict.fromkeys(range(50), 0), source_topic_id="id") for n in range(200)]
    plan = plan_of(a_mirror(), *topics)
    here = {tp: GroupPosition(tp.partition) for tp in plan.routes}
    its = group_of(plan, here, {}, dict.fromkeys(plan.routes, 49))
    assert (its["partitions"], its["left"], its["lag"]) == (10_000, 9_800, 200 * sum(range(50)))
    assert {row[1:] for row in its["positions"]} == {(0, 0, None, 49)} and len(json.dumps(its)) < 10_000


def test_groups_of_a_source_that_is_not_asked_are_shown_as_they_were_planned(world: World, page: TestClient) -> None:
    world.source_id = "theirs"
    world.plan("orders", {"orders": 3}, DAGS[0], positions={"old": {"orders": {0: 1, 2: 2}}})
    world.own("orders", "orders")
    found = group_on(page, "old")
    assert "positions at planning" in found["unknown"]
    assert found["group"]["positions"] == [["orders", 0, 1, None, None], ["orders", 2, 2, None, None]]


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
