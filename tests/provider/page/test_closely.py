"""What the page says of one mirror, on demand: a close look, clients, drills."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fastapi.testclient import TestClient

from airflow_mirror.extras.clients.inventory import NOT_YET, READS, Inventory, Reader, Writer
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.page import closely
from airflow_mirror.page.app import make_app
from airflow_mirror.page.looks import Looks
from airflow_mirror.page.rows import clients_in
from airflow_mirror.plan.findings import BLOCK
from tests.driven.cluster import DrivenCluster
from tests.page.world import HOSTILE, World, finding
from tests.provider.page.asking import DAGS, another, connect, get, three_mirrors

if TYPE_CHECKING:
    import pytest


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
    assert "tail" not in [one["check"] for one in found["checks"]], "that none runs is no fault for who only looks"
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
