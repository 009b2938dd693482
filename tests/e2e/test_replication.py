"""A replication in a real Airflow: started once, kept, checked, stopped, and then found stopped; or stayed with."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.active import ActiveTail, active_tail
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import create, fill, read_all
from tests.e2e.test_migration import explain, wait_for

pytestmark = pytest.mark.drills

START, CHECK, STOP = "kafka_replication", "kafka_replication_health", "kafka_replication_stop"
MIRROR = {"name": "replica", "source": "e2e_source", "target": "e2e_target", "topics": ["replicated"], "groups": ["none"]}
STAYS = {**MIRROR, "name": "stays", "topics": ["stayed"]}
LIMITS = {"min_free_bytes": 1}


@pytest.fixture
def run(airflow: AirflowStandalone) -> Callable[..., tuple[str, str]]:
    """Run one of the DAGs for this mirror; return the run's id and its state."""

    def one(dag: str, **fields: Any) -> tuple[str, str]:
        run_id = airflow.trigger(dag, {"mirror": MIRROR} | fields)
        return run_id, airflow.wait(dag, run_id, timeout_s=1200)

    for dag in (START, CHECK):
        airflow.turn_on(dag)
    return one


def test_a_tail_is_started_once_and_checked_until_it_is_stopped(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], run: Callable[..., tuple[str, str]]
) -> None:
    """Runs that the scheduler starts in between are those of the form's defaults, which have no connections here."""
    source, target = world
    create(source.admin_properties(), "replicated", 2, **{"retention.ms": "-1"})
    fill(source.properties("alice"), "replicated", 300)
    first, state = run(START)
    assert state == "success", explain(airflow, first, START)
    second, state = run(START)
    assert state == "success", explain(airflow, second, START)
    states = airflow.task_states(START, second)
    assert set(states.values()) == {"skipped"}

    wanted = read_all(source.admin_properties(), "replicated")
    wait_for(lambda: read_all(target.admin_properties(), "replicated") == wanted)
    checked, state = run(CHECK, **LIMITS)
    assert state == "success", explain(airflow, checked, CHECK)
    found = airflow.xcom(CHECK, checked, "check")
    assert (found["phase"], found["partitions"], found["lag_records"]) == ("copying", 2, 0)
    assert airflow.task_states(CHECK, checked)["became_unhealthy"] == "skipped"

    stopped, state = run(STOP)
    assert state == "success", explain(airflow, stopped, STOP)
    checked, state = run(CHECK, **LIMITS)
    assert state == "failed" and airflow.task_states(CHECK, checked)["became_healthy"] == "upstream_failed"
    assert "tail: it was stopped on host" in airflow.log(CHECK, checked, "check", 2)


def test_an_attached_tail_ends_with_its_task_and_the_retry_takes_over(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], run: Callable[..., tuple[str, str]]
) -> None:
    """The task's process is ended as a pod is. Stopped by somebody else, the tail ends the run well."""
    source, target = world
    create(source.admin_properties(), "stayed", 2, **{"retention.ms": "-1"})
    fill(source.properties("alice"), "stayed", 200)
    attached = airflow.trigger(START, {"mirror": STAYS, "attached": True})

    def is_level() -> bool:
        return _read(target, "stayed") == read_all(source.admin_properties(), "stayed")

    wait_for(is_level, timeout_s=1200)
    tail = _tail(target)
    leader = os.getsid(tail.pid)  # a job has a session of its own, which the task began
    task = int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1])
    assert airflow.task_states(START, attached)["start_tail"] == "running" and task > 1
    os.kill(task, signal.SIGTERM)
    wait_for(lambda: not process.is_alive(tail.pid, tail.started), timeout_s=300)

    fill(source.properties("alice"), "stayed", 100)
    wait_for(is_level, timeout_s=900)
    assert _tail(target).job != tail.job and "started, " in airflow.log(START, attached, "start_tail", 2)
    assert airflow.task_states(START, attached)["start_tail"] == "running"
    stopped, state = run(STOP, mirror=STAYS)
    assert state == "success", explain(airflow, stopped, STOP)
    assert airflow.wait(START, attached, timeout_s=300) == "success", explain(airflow, attached, START)
    assert airflow.xcom(START, attached, "start_tail")["tail"] == "SUCCEEDED"


def _tail(target: Cluster) -> ActiveTail:
    with ClusterAdmin(ClientConfig(target.admin_properties(), "target")) as admin:
        found = active_tail(Ledger(admin).values(), "stays")
    assert found is not None and found.is_here
    return found


def _read(cluster: Cluster, topic: str) -> Any:
    try:
        return read_all(cluster.admin_properties(), topic)
    except Exception:  # the run creates the topic
        return None
