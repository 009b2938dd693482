"""The migration DAG in a real Airflow, with real Spark jobs, between real clusters."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from sandbox.airflow import AirflowError, AirflowStandalone
from tests.e2e.records import Writer, commit, create, fill, positions, read_all
from tests.listening import listeners
from tests.waiting import wait_until

pytestmark = pytest.mark.in_order("looks at one run of several minutes first, then clears its tasks, some of which fail")

DAG = "kafka_migration"
DONE = {"success", "skipped"}
wait_for = partial(wait_until, timeout_s=600.0, poll_s=0.2)  # a real Airflow is asked


def conf(name: Any, topics: Any, groups: Any, **more: Any) -> Any:
    ends = {"source": "e2e_source", "target": "e2e_target", "open_by_default": "yes", "approval": False}
    ends |= {"accept_ledger_writers": ["User:*"]}  # the brokers' principals are super users, and there are no rules
    return {
        "name": name,
        "topics": topics,
        "groups": groups,
        "offsets": "identical",
        "wait_groups_s": 20,
        "watch_s": 0,
        "way_back": False,
        **ends,
        **more,
    }


def instance(airflow: Any, run: Any, task: Any) -> Any:
    return airflow.api("GET", f"dags/{DAG}/dagRuns/{run}/taskInstances/{task}")


def holds_its_job(airflow: Any, run: Any, try_number: Any) -> Any:
    """Say whether a try of the bulk copy has told of its job: one that it started, or one that ran."""
    try:
        log = airflow.log(DAG, run, "bulk_copy", try_number)
    except AirflowError:  # no such try yet
        return False
    return re.search(r"job \S+/\d+, log |Reconnecting to existing job", log) is not None


def red(airflow: Any, run: Any) -> list[str]:
    """Return the tasks of a run that have failed."""
    return [task for task, state in airflow.task_states(DAG, run).items() if state == "failed"]


def explain(airflow: Any, run: Any, dag: Any = DAG) -> Any:
    """Return the logs of the tasks that failed: what a person would look at first."""
    failed = [t for t, state in airflow.task_states(dag, run).items() if state in ("failed", "up_for_retry")]
    return "\n".join(f"--- {t}\n{airflow.log(dag, run, t)[-3000:]}" for t in failed)


@pytest.fixture(scope="module")
def migrated(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> Any:
    """One whole run without approval, with a producer that writes until it is fenced."""
    source, target = world
    alice = source.properties("alice")
    # Records of 2017: without this the source itself would delete them.
    create(source.admin_properties(), "shop.orders", 3, **{"retention.ms": "-1"})
    create(source.admin_properties(), "shop.empty", 2)
    fill(alice, "shop.orders", 3000, at_ms=1_500_000_000_000)
    commit(alice, "billing", {("shop.orders", 0): 17, ("shop.orders", 2): 0})
    with Writer(alice, "shop.orders") as writer:
        run = airflow.trigger(DAG, conf("whole", ["shop\\..*"], ["billing"], restore_configs=False, follow=["acls"]))
        state = airflow.wait(DAG, run, timeout_s=1800)
    assert state == "success", explain(airflow, run)
    return run, writer


def test_both_sides_hold_the_same_records_at_the_same_offsets(migrated: Any, world: tuple[Cluster, Cluster]) -> None:
    source, target = world
    here = read_all(source.admin_properties(), "shop.orders")
    assert len(here) == 3000 + migrated[1].acknowledged > 3000
    assert read_all(target.admin_properties(), "shop.orders") == here
    assert read_all(target.admin_properties(), "shop.empty") == []


def test_producer_is_fenced_and_group_continues_at_its_position(migrated: Any, world: tuple[Cluster, Cluster]) -> None:
    source, target = world
    assert migrated[1].refused > 0
    expected = {("shop.orders", 0): 17, ("shop.orders", 2): 0}
    assert positions(target.admin_properties(), "billing", {"shop.orders": 3}) == expected


def test_every_task_ended_well_and_nothing_is_left_running(migrated: Any, airflow: AirflowStandalone) -> None:
    run, _ = migrated
    states = airflow.task_states(DAG, run)
    assert set(states.values()) == DONE, states
    assert states["approve_cutover"] == "skipped" and states["verify_since"] == states["cutover"] == "success"
    assert [states[task] for task in ("let_readers_in", "let_writers_in", "watch")] == ["success"] * 3
    assert states["way_back.arm"] == "skipped", "nobody wanted it"
    runner = LocalRunner(airflow.mirror_home / "whole")
    assert runner.running() == []
    assert [p for h in runner.jobs.glob("*/*") for p in process.members(h)] == []


def test_topics_stand_in_airflows_data_graph(
    migrated: Any, airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    run, _ = migrated
    events = airflow.api("GET", f"assets/events?source_run_id={quote(run)}")["asset_events"]
    (cut_over,) = [event for event in events if event["name"] == "kafka_cut_over"]
    assert cut_over["extra"]["outcome"] == "cut_over"
    target = world[1].admin_properties()["bootstrap.servers"].partition(",")[0]
    assets = {f"kafka://{target}/{topic}" for topic in ("shop.orders", "shop.empty")}
    told = {(event["source_task_id"], event["uri"]) for event in events if event is not cut_over}
    assert told == {(task, uri) for task in ("bulk_copy", "verify", "cutover") for uri in assets}
    for uri in assets:
        (asset,) = airflow.api("GET", f"assets?uri_pattern={quote(uri)}")["assets"]
        assert {alias["name"] for alias in asset["aliases"]} == {
            "kafka_topics_copied", "kafka_topics_compared", "kafka_topics_cut_over",
        }  # fmt: skip


def test_secrets_are_in_no_mirror_file_and_no_xcom(
    migrated: Any, airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    secret = world[0].admin_properties()["sasl.password"]
    files = [p for p in (airflow.mirror_home / "whole").rglob("*") if p.is_file()]
    assert len(files) > 10
    assert [p for p in files if secret.encode() in p.read_bytes()] == []
    run, _ = migrated
    shown = [airflow.xcom(DAG, run, t) for t in ("plan", "bulk_copy", "verify", "cutover")]
    assert secret not in json.dumps(shown) and len(json.dumps(shown)) < 50_000


def cleared(airflow: Any, run: Any, task: Any) -> Any:
    """Clear a task of a finished run, wait until the run has ended again, and return how the task did."""
    tries = instance(airflow, run, task)["try_number"]  # on a slow machine the run itself may have needed a second one
    airflow.clear(DAG, run, task)
    airflow.wait(DAG, run, timeout_s=1200)
    again = instance(airflow, run, task)
    assert again["try_number"] > tries
    return again["state"]


@pytest.mark.parametrize("task", ["verify", "cutover", "stop_tail"])
def test_clearing_a_task_of_a_finished_run_is_safe(
    migrated: Any, airflow: AirflowStandalone, world: tuple[Cluster, Cluster], task: str
) -> None:
    run, _ = migrated
    before = read_all(world[1].admin_properties(), "shop.orders")
    assert cleared(airflow, run, task) == "success", explain(airflow, run)
    assert read_all(world[1].admin_properties(), "shop.orders") == before


@pytest.mark.parametrize("task", ["create_topics", "start_tail"])
def test_clearing_a_task_that_holds_production_topics_is_refused(
    migrated: Any, airflow: AirflowStandalone, world: tuple[Cluster, Cluster], task: str
) -> None:
    run, _ = migrated
    with closing(ClusterAdmin(ClientConfig(world[1].admin_properties(), "target"))) as target:
        before = target.topic_configs(["shop.orders"])
        assert cleared(airflow, run, task) == "failed", explain(airflow, run)
        assert target.topic_configs(["shop.orders"]) == before


@pytest.mark.drills
def test_retry_after_task_kill_finds_the_running_job(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> None:
    """The task process gets kill -9: one Spark application runs in all, and a rejected cutover leaves the tail on."""
    source, target = world
    create(source.admin_properties(), "killed.task", 2)
    fill(source.properties("alice"), "killed.task", 20_000)
    run = airflow.trigger(DAG, conf("killed-task", ["killed.task"], ["none"], approval=True))
    jobs = airflow.mirror_home / "killed-task" / "jobs"
    found = wait_for(lambda: list(jobs.glob("bulk_copy--*/1/job.json")))
    job = json.loads(found[0].read_text())
    task_process = int(Path(f"/proc/{job['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    # A job that ends before the retry looks for it would not be running; so it stands still until it has been found.
    process.end(process.members(found[0].parent), signal.SIGSTOP)
    try:
        os.kill(task_process, signal.SIGKILL)
        wait_for(lambda: holds_its_job(airflow, run, try_number=2))
        assert process.is_alive(job["pid"], job["started"])
    finally:
        process.end(process.members(found[0].parent), signal.SIGCONT)
    airflow.wait_for_task(DAG, run, "approve_cutover", ("awaiting_input",), timeout_s=1200)
    task = instance(airflow, run, "bulk_copy")
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert len(list(jobs.glob("bulk_copy--*/*/job.json"))) == 1, "one Spark application in all"
    assert airflow.xcom(DAG, run, "bulk_copy")["records"] == 20_000
    # Rejected, the cutover does not happen, the tail goes on, and the run ends well.
    airflow.approve(DAG, run, "approve_cutover", "Reject")
    assert airflow.wait(DAG, run, timeout_s=1200) == "success"
    states = airflow.task_states(DAG, run)
    assert (states["cutover"], states["stop_tail"]) == ("skipped", "skipped")
    runner = LocalRunner(airflow.mirror_home / "killed-task")
    assert [h["name"] for h in runner.running()] == ["tail"]
    opened = listeners(process.members(next((runner.jobs / "tail").glob("*/job.json")).parent))
    assert opened and all(listener.is_local for listener in opened), "Spark's driver is reached from this machine alone"
    runner.cancel_all()
    here = read_all(source.admin_properties(), "killed.task")
    assert len(here) == 20_000 and read_all(target.admin_properties(), "killed.task") == here


def test_marking_a_running_copy_failed_stops_its_job(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> None:
    source, _ = world
    create(source.admin_properties(), "marked.failed", 1)
    fill(source.properties("alice"), "marked.failed", 100)
    run = airflow.trigger(DAG, conf("marked-failed", ["marked.failed"], ["none"]))
    jobs = airflow.mirror_home / "marked-failed" / "jobs"
    found = wait_for(lambda: list(jobs.glob("bulk_copy--*/1/job.json")))
    wait_for(lambda: holds_its_job(airflow, run, try_number=1))  # before it knows its job it can stop none
    airflow.mark(DAG, run, "bulk_copy", "failed")
    wait_for(lambda: not process.members(found[0].parent), timeout_s=240)
    assert airflow.wait(DAG, run, timeout_s=1200) == "failed"
    assert not (jobs / "tail").exists()


@pytest.mark.drills
def test_unknown_topic_fails_the_plan_without_retry(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> None:
    run = airflow.trigger(DAG, conf("unknown", ["no.such.topic"], ["none"]))
    assert airflow.wait(DAG, run, timeout_s=1200) == "failed"
    assert instance(airflow, run, "plan")["try_number"] == 1, "wrong input is not retried"
    assert "NothingMatches: topics=['no.such.topic']" in airflow.log(DAG, run, "plan")
    assert red(airflow, run) == ["plan"]


@pytest.mark.drills
def test_form_that_is_wrong_turns_its_own_task_red_and_no_other(airflow: AirflowStandalone) -> None:
    run = airflow.trigger(DAG, {**conf("wrong", ["shop\\..*"], ["none"]), "source": "misspelt"})
    assert airflow.wait(DAG, run, timeout_s=1200) == "failed"
    assert red(airflow, run) == ["plan"]


@pytest.mark.drills
def test_run_that_is_to_plan_ends_green_behind_its_plan(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    source, target = world
    create(source.admin_properties(), "only.planned", 1)
    run = airflow.trigger(DAG, conf("only-planned", ["only.planned"], ["none"], mode="plan", trial_s=0))
    assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run)
    states = airflow.task_states(DAG, run)
    done = {"plan", "is_copy_wanted", "lift_fence", "outcome"}
    assert {task for task, state in states.items() if state == "success"} == done
    assert {state for task, state in states.items() if task not in done} == {"skipped"}
    with ClusterAdmin(ClientConfig(target.admin_properties(), "target")) as admin:
        assert "only.planned" not in admin.topic_names()
    with pytest.raises(AirflowError, match="topics"):  # nobody moves everything by a click
        airflow.trigger(DAG, {key: value for key, value in conf("all", [], ["none"]).items() if key != "topics"})
