"""The drill measures a real loss, reports it, and leaves nothing behind, also when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_mirror.common.policy import is_lease, lease_id
from airflow_mirror.jobs.runner.directory import job_name
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.test_migration import explain
from tests.integration.copying import config

pytestmark = pytest.mark.drills

DAG = "kafka_dr_drill"
ENDS = {"source": "e2e_source", "target": "e2e_target"}


@pytest.fixture(scope="module", autouse=True)
def awake(airflow: AirflowStandalone) -> None:
    airflow.turn_on(DAG)


def leftovers(cluster: Any) -> Any:
    admin = AdminClient(cluster.admin_properties())
    topics = [t for t in admin.list_topics(timeout=120).topics if t.startswith("mirror-drill.")]
    groups = [g.group_id for g in admin.list_consumer_groups().result().valid if g.group_id.startswith("mirror-drill.")]
    return topics + groups


def leases_of_drills(cluster: Cluster) -> list[str]:
    with ClusterAdmin(config(cluster)) as admin:
        return [one for one in admin.transactional_ids().values() if is_lease(one) and "drill" in one]


def test_a_drill_measures_rpo_and_rto_and_cleans_up(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> None:
    # The limits of the DAG are for production; here a slow machine must not fail the drill.
    run = airflow.trigger(DAG, {**ENDS, "seconds": 20, "rpo_objective_s": 600, "rto_objective_s": 900})
    assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run, DAG)
    result = airflow.xcom(DAG, run, "fail_over")
    report = json.loads(Path(result["report"]).read_text())
    assert report["acknowledged"] > 100
    assert report["on_target"] + report["lost"] == report["acknowledged"]
    assert report["on_target"] > 0 and (report["lost"] > 0) == (report["rpo_s"] > 0)
    assert report["rto_s"] > 0
    assert (report["skipped"], report["reread"]) == (0, 0)
    back = report["failback"]
    assert (back["differing"], back["nowhere"], back["skipped"], back["reread"]) == ([], 0, 0, 0)
    assert back["records"] > report["on_target"] and back["surplus"] >= report["lost"]
    assert '<p class="ok">Met its objectives.</p>' in Path(result["report"]).with_suffix(".html").read_text()
    assert leftovers(world[0]) + leftovers(world[1]) == []
    assert leases_of_drills(world[0]) == [], "a first mirror onto this source would take its ledger for lost"
    assert leases_of_drills(world[1]) == [lease_id("dr-drill")]
    assert LocalRunner(airflow.mirror_home / "dr-drill").running() == []


def test_injected_faults_are_noticed(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> None:
    """A topic that is created again under a running tail, and a tail that is killed."""
    faults = ["kill_tail", "recreate_topic"]
    run = airflow.trigger(DAG, {**ENDS, "seconds": 4, "rpo_objective_s": 600, "rto_objective_s": 900, "rehearse": faults})
    assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run, DAG)
    report = json.loads(Path(airflow.xcom(DAG, run, "fail_over")["report"]).read_text())
    first, second = report["rehearsal"]
    assert first["fault"] == "recreate_topic" and ".faults" in first["how"] and first["noticed_s"] > 0
    assert second["fault"] == "kill_tail" and second["how"].startswith("tail: ") and second["noticed_s"] > 0
    assert leftovers(world[0]) + leftovers(world[1]) == []


def test_drill_above_its_limits_fails_and_cleans_up(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> None:
    run = airflow.trigger(DAG, {**ENDS, "seconds": 4, "rpo_objective_s": 600, "rto_objective_s": 0})
    assert airflow.wait(DAG, run, timeout_s=1200) == "failed"
    assert airflow.task_states(DAG, run)["fail_back"] == "success"
    said = airflow.log(DAG, run, "clean_up")
    assert "the drill did not show what it is for" in said and "why: RTO" in said
    assert airflow.task_states(DAG, run)["fail_over"] == "success"
    assert leftovers(world[0]) + leftovers(world[1]) == []
    assert LocalRunner(airflow.mirror_home / "dr-drill").running() == []


def test_drill_that_is_marked_as_failed_cleans_up_and_stays_red(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    """Its tail runs at that moment, and canaries are written."""
    run = airflow.trigger(DAG, {**ENDS, "seconds": 600, "per_second": 5})
    airflow.wait_for_task(DAG, run, "lose_source", ("running",), timeout_s=900)
    airflow.api("PATCH", f"dags/{DAG}/dagRuns/{run}", {"state": "failed"})
    airflow.wait_for_task(DAG, run, "clean_up", ("failed",), timeout_s=900)
    assert airflow.wait(DAG, run, timeout_s=300) == "failed"
    (file,) = (airflow.mirror_home / "dr-drill" / "runs").glob(f"{job_name(run)}/drill.json")
    drill = json.loads(file.read_text())
    assert drill["missed"][0].startswith("nothing was measured") and drill["topics"] == []
    assert leftovers(world[0]) + leftovers(world[1]) == []
    assert LocalRunner(airflow.mirror_home / "dr-drill").running() == []


def test_drill_that_is_cleared_whole_cleans_up_and_drills_once_it_is_cleared_again(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    """While its tail runs and canaries are written: the turn is its own."""
    run = airflow.trigger(DAG, {**ENDS, "seconds": 20, "rpo_objective_s": 600, "rto_objective_s": 900})
    airflow.wait_for_task(DAG, run, "lose_source", ("running",), timeout_s=900)
    whole = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
    airflow.api("POST", f"dags/{DAG}/clearTaskInstances", whole)
    assert airflow.wait(DAG, run, timeout_s=900) == "failed"
    said = " ".join(airflow.log(DAG, run, "open_drill", 2).replace("\\n", " ").split())  # lines are folded
    assert "exists on the source already" in said and "clear the run again when its clean-up has deleted it" in said
    assert leftovers(world[0]) + leftovers(world[1]) == []
    airflow.api("POST", f"dags/{DAG}/clearTaskInstances", whole)
    assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run, DAG)
    assert leftovers(world[0]) + leftovers(world[1]) == []
