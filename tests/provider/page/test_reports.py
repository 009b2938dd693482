"""Reports as the page serves them, to whom, and how long."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from airflow_mirror.cutover.html import render
from airflow_mirror.cutover.report import BACKED_OUT
from airflow_mirror.hooks.home import url_of
from airflow_mirror.page.app import make_app
from airflow_mirror.page.looks import Looks
from tests.driven.cluster import DrivenCluster
from tests.driven.script import Fault
from tests.page.world import World
from tests.provider.page.asking import DAGS, another, connect, get, three_mirrors


@pytest.mark.parametrize("begun", [True, False])
def test_reports_of_a_name_are_told_to_who_sees_every_mirror_of_that_name(
    world: World, home: Path, begun: bool
) -> None:  # fmt: skip
    """They share a directory: run ids and names of files are the other DAG's as well, from its first plan on."""
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    report = home / "orders" / "runs" / "theirs" / "report.html"
    report.parent.mkdir(parents=True)
    report.write_text("Cut over")
    with DrivenCluster("dc3") as cluster:
        other = World(world.source, cluster, target_id="dc3")
        other.plan("orders", {"orders": 1}, DAGS[1])
        if begun:
            other.own("orders", "orders")
        connect(dc3=cluster)
        with another() as page:
            one = {"target": "dc2", "mirror": "orders"}
            assert get(page, "/one", f"anna:{DAGS[0]}", "VIEWER", **one).json()["files"] == []
            assert get(page, "/files/orders/runs/theirs/report.html", f"anna:{DAGS[0]}", "VIEWER").status_code == 404
            assert len(get(page, "/one", f"anna:{','.join(DAGS)}", "VIEWER", **one).json()["files"]) == 1
        other.close()


def test_page_of_the_night_of_a_mirror_that_is_only_planned_is_for_readers_of_its_dag(
    world: World, page: TestClient, home: Path
) -> None:
    world.plan("orders", {"orders": 1}, DAGS[0])
    night = home / "orders" / "runs" / "monday" / "report.html"
    night.parent.mkdir(parents=True)
    night.write_text("The night")
    path = "/files/orders/runs/monday/report.html"
    found = {who: get(page, path, f"anna:{who}", "VIEWER").status_code for who in DAGS}
    assert found == {DAGS[0]: 200, DAGS[1]: 404}


def test_reports_of_a_name_are_nobodys_yet_while_a_target_was_never_heard(world: World, home: Path) -> None:
    """It may have a mirror of that name, another team's, as long as nobody has heard that it has none."""
    world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    log = home / "orders" / "jobs" / "bulk" / "1" / "log.txt"
    report = home / "orders" / "runs" / "theirs" / "report.html"
    for file in (log, report):
        file.parent.mkdir(parents=True)
        file.write_text("theirs")
    one, anna = {"target": "dc2", "mirror": "orders"}, f"anna:{DAGS[0]}"
    paths = [f"/files/{file.relative_to(home).as_posix()}" for file in (log, report)]
    with DrivenCluster("dc3") as cluster:
        connect(dc3=cluster)
        cluster.kill(1)
        with another(Looks(fresh_s=0.0)) as page:
            answers = [get(page, path, anna, "VIEWER") for path in paths]
            assert [(one.status_code, "not known yet" in one.text) for one in answers] == [(503, True)] * 2
            told = get(page, "/one", anna, "VIEWER", **one).json()
            assert (told["files"], told["files_unknown"]) == ([], True)
            assert {get(page, path).status_code for path in paths} == {200}, "who reads every DAG"
            assert get(page, "/one", **one).json()["files_unknown"] is False
            cluster.restart(1)
            deadline = time.monotonic() + 60  # nobody waits for one that did not answer the last time
            while any(get(page, path, anna, "VIEWER").status_code == 503 for path in paths):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert {get(page, path, anna, "VIEWER").status_code for path in paths} == {200}
            cluster.kill(1)
            told = get(page, "/one", anna, "VIEWER", **one).json()
            assert (len(told["files"]), told["files_unknown"]) == (1, False), "it has said that it has none"


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


def test_report_that_still_runs_is_read_again_as_its_server_says(world: World, page: TestClient, home: Path) -> None:
    """Its own word is not heard in a sandbox. From the ledger, and from the disk; one that is over stays as it is."""
    plan = world.plan("orders", {"orders": 1}, DAGS[0])
    world.own("orders", "orders")
    running = world.report(plan, "monday")
    over = replace(running, outcome=BACKED_OUT)
    for run, one in (("tuesday", running), ("wednesday", over)):
        report = home / "orders" / "runs" / run / "report.html"
        report.parent.mkdir(parents=True)
        report.write_text(render(one))
    answers = {run: get(page, f"/files/orders/runs/{run}/report.html") for run in ("monday", "tuesday", "wednesday")}
    assert {run: one.headers.get("refresh") for run, one in answers.items()} == {
        "monday": "5", "tuesday": "5", "wednesday": None
    }  # fmt: skip
    assert all(one.headers["content-security-policy"].startswith("sandbox;") for one in answers.values())


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


def test_report_that_a_browser_follows_outlives_a_target_that_is_away_for_a_moment(
    world: World, page_anew: TestClient
) -> None:
    """A page of an error says nothing of a next time: the tab stood still for the rest of the night."""
    world.own("orders", "orders")
    world.report(world.plan("orders", {"orders": 1}, DAGS[0]), "monday")
    path = "/files/orders/runs/monday/report.html"
    answer = get(page_anew, path)
    assert (answer.status_code, answer.headers["refresh"]) == (200, "5")
    world.target.kill(1)
    answer = get(page_anew, path)
    assert (answer.status_code, answer.headers["refresh"], answer.headers["retry-after"]) == (503, "3", "3")
    assert "no broker" in answer.json()["detail"]
    world.target.restart(1)
    deadline = time.monotonic() + 60
    while (answer := get(page_anew, path)).status_code == 503 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (answer.status_code, answer.headers["refresh"]) == (200, "5")


def test_readers_of_a_report_share_what_was_read(world: World, page: TestClient) -> None:
    """Each reload of each tab opened connections of its own."""
    world.own("orders", "orders")
    world.report(world.plan("orders", {"orders": 1}, DAGS[0]), "monday")
    path = "/files/orders/runs/monday/report.html"
    get(page, path)
    asked = len(world.target.asked("ApiVersions"))
    assert {get(page, path).status_code for _ in range(5)} == {200}
    assert len(world.target.asked("ApiVersions")) == asked


def test_report_that_is_still_being_read_is_asked_for_again(world: World, looking: Looks, page: TestClient) -> None:
    world.own("orders", "orders")
    world.report(world.plan("orders", {"orders": 1}, DAGS[0]), "monday")
    get(page, "/list")
    world.target.script.on(None, fault=Fault(freeze=True), times=None)
    answer = get(TestClient(make_app(looking, 0.05)), "/files/orders/runs/monday/report.html")
    assert (answer.status_code, answer.headers["refresh"]) == (503, "3")
    assert "still being asked" in answer.json()["detail"]


def test_links_of_tasks_lead_to_the_page_where_no_server_is_named(world: World, page: TestClient, home: Path) -> None:
    """Relative, so that they work below whatever path Airflow is served at."""
    three_mirrors(world)
    log = home / "orders" / "jobs" / "bulk é" / "3" / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("a line")
    link = url_of(log)
    assert link == "mirrors/files/orders/jobs/bulk%20%C3%A9/3/log.txt"
    assert get(page, link.removeprefix("mirrors")).text == "a line"
