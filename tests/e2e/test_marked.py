"""Somebody ends a cutover from Airflow's pages behind its fence: marked failed, or successful. Nobody stays kept out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress

import pytest
from confluent_kafka import Consumer

from airflow_mirror.config import ClientConfig
from airflow_mirror.jobs.runner.directory import job_name
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.owned import owned_topics
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import create, fill, read_all
from tests.e2e.test_migration import DAG, conf, explain, wait_for

pytestmark = pytest.mark.drills

RECORDS = 3000


@contextmanager
def slow_reader(settings: Mapping[str, str], topic: str, group: str) -> Iterator[None]:
    """Read a record three times a second, and commit it: a group that no cutover waits for in vain within its time."""
    over = threading.Event()

    def read() -> None:
        consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        with closing(consumer):
            consumer.subscribe([topic])
            while not over.is_set():
                if (record := consumer.poll(1.0)) is not None and not record.error():
                    consumer.commit(record, asynchronous=False)
                    time.sleep(0.3)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def test_run_that_is_marked_as_failed_between_two_tasks_stays_red(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    """No task fails of that, and its teardowns run."""
    source, _ = world
    topic = "marked.between"
    create(source.admin_properties(), topic, 1)
    fill(source.properties("alice"), topic, 10)

    def slots(number: int) -> None:
        airflow.api("PATCH", "pools/default_pool", {"slots": number}, update_mask="slots")

    run = airflow.trigger(DAG, conf("marked-between", [topic], ["none"]))
    wait_for(lambda: airflow.task_states(DAG, run)["plan"] == "running", timeout_s=600)
    slots(0)  # what runs goes on, and nothing begins
    try:
        wait_for(lambda: airflow.task_states(DAG, run)["plan"] == "success", timeout_s=600)
        wait_for(lambda: airflow.task_states(DAG, run)["is_copy_wanted"] == "scheduled", timeout_s=600)
        airflow.api("PATCH", f"dags/{DAG}/dagRuns/{run}", {"state": "failed"})
    finally:
        slots(128)
    assert airflow.wait(DAG, run, timeout_s=600) == "failed"
    states = airflow.task_states(DAG, run)
    assert [task for task, state in states.items() if state == "failed"] == ["outcome"], states
    assert (states["create_topics"], states["cutover"], states["lift_fence"]) == ("skipped", "skipped", "success")


def takes(settings: Mapping[str, str], topic: str) -> bool:
    """Return whether the topic takes a record."""
    with suppress(AssertionError):
        fill(settings, topic, 1)
        return True
    return False


@pytest.mark.parametrize(("what", "state"), [("task", "success"), ("run", "failed"), ("run", "success")])
def test_cutover_that_is_marked_behind_its_fence_lifts_it(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], what: str, state: str
) -> None:
    """Marked successful, what comes next must not take the target for open. Of a marked run only the teardown comes."""
    source, target = world
    topic, group = f"marked.{what}.{state}", f"reads-{what}-{state}"
    create(source.admin_properties(), topic, 1, **{"retention.ms": "-1"})
    fill(source.properties("alice"), topic, RECORDS)
    settings = ClientConfig(source.admin_properties(), "source"), ClientConfig(target.admin_properties(), "target")
    with (
        ClusterAdmin(settings[0]) as admin,
        ClusterAdmin(settings[1]) as there,
        slow_reader(source.properties("alice"), topic, group),
    ):

        def fenced() -> bool:
            rules = admin.describe_acls(resource_type="TOPIC", name=topic)
            return any((rule.permission, rule.operation) == ("DENY", "WRITE") for rule in rules)

        # It waits for the group for as long as the fence may last.
        run = airflow.trigger(DAG, conf(f"marked-{what}-{state}", [topic], [group], wait_groups_s=60))
        wait_for(lambda: fenced() or airflow.run_state(DAG, run) == "failed", timeout_s=1200)
        assert fenced(), explain(airflow, run)
        if what == "task":
            airflow.mark(DAG, run, "cutover", state)
        else:
            airflow.api("PATCH", f"dags/{DAG}/dagRuns/{run}", {"state": state})
        wait_for(lambda: not fenced(), timeout_s=120)
        wait_for(lambda: takes(source.properties("alice"), topic), timeout_s=30)  # brokers hear of it one by one
        assert airflow.wait(DAG, run, timeout_s=1200) == (state if what == "run" else "failed")
        assert owned_topics(Ledger(there))[topic].opened_by is None
        states = airflow.task_states(DAG, run)
        assert (states["cutover"], states["lift_fence"]) == (state, "success"), states
        assert states["watch"] == ("failed" if what == "task" else "skipped")


def test_copy_goes_on_after_a_cutover_that_has_ended_its_tail(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    """It backs out behind ``stop_writers``; nobody is there at night to start the tail again.

    It does so while the tail, which has lost the right to write, still ends: that one is not taken for one that copies.
    """
    source, target = world
    topic, group, name = "marked.goes.on", "reads-goes-on", "marked-goes-on"
    create(source.admin_properties(), topic, 1, **{"retention.ms": "-1"})
    fill(source.properties("alice"), topic, RECORDS)
    runner = LocalRunner(airflow.mirror_home / name)
    try:
        with slow_reader(source.properties("alice"), topic, group):
            run = airflow.trigger(DAG, conf(name, [topic], [group], wait_groups_s=2))
            assert airflow.wait(DAG, run, timeout_s=1200) == "failed"
        report = json.loads((airflow.mirror_home / name / "runs" / job_name(run) / "report.json").read_text())
        assert (report["steps"][-1]["name"], report["steps"][-1]["status"]) == ("commit_groups", "failed")
        states = airflow.task_states(DAG, run)
        assert [states[task] for task in ("cutover", "lift_fence", "follow_on")] == ["failed", "success", "success"], (
            states
        )
        assert [job["name"] for job in runner.running()] == ["tail"]
        fill(source.properties("alice"), topic, 7)
        wait_for(lambda: len(read_all(target.admin_properties(), topic)) == RECORDS + 7, timeout_s=120)
    finally:
        runner.cancel_all()
