"""A lost source starts a run that asks for a failover: with the triggerer, assets and scheduler of a real Airflow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.jobs.runner.active import ActiveTail, Watch, begin, heard_by
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.conftest import PATIENCE
from tests.e2e.test_failover import fill, mirrored
from tests.e2e.test_migration import explain, wait_for

pytestmark = pytest.mark.drills

DAG, NAME, TOPIC = "watched_failover", "watched", "watched.orders"  # the clusters are the failover's, too
CODE = f"""
from airflow_mirror.example_dags.kafka_failover import failover

dag = failover("{DAG}", watch=[("e2e_target", "{NAME}")], how={{"lost_after_s": 30, "interval_s": 2}})
"""
QUIET_S = 20.0  # ten looks


@pytest.fixture(scope="module")
def watching(world: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStandalone]:
    """An Airflow that knows the target alone, and has one DAG."""
    dags = tmp_path_factory.mktemp("dags")
    (dags / "watched.py").write_text(CODE, encoding="utf-8")
    connections = {"e2e_target": world[1].admin_properties()}
    running = AirflowStandalone(tmp_path_factory.mktemp("watching"), dags=dags, connections=connections, env=PATIENCE)
    try:
        yield running.start(900)
    finally:
        running.stop()


def runs(airflow: AirflowStandalone) -> dict[str, Any]:
    """What there is of the DAG: type of run by id."""
    found = airflow.api("GET", f"dags/{DAG}/dagRuns", limit=50)["dag_runs"]
    return {one["dag_run_id"]: one["run_type"] for one in found}


def test_a_lost_source_starts_one_run_that_asks_a_person_whichever_triggerer_looks(
    watching: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    source, target = world
    with ClusterAdmin(ClientConfig(source.admin_properties(), "source"), timeout_s=120) as here:
        here.create_topics([NewTopicSpec(TOPIC, 1, 1, {})], unfenced)
    fill(source, 10, TOPIC)
    plan = mirrored(source, target, NAME, TOPIC)
    with ClusterAdmin(ClientConfig(target.admin_properties(), "target"), timeout_s=120) as there:
        # Of a host that has gone with the source: nobody ever hears it.
        tail = ActiveTail(
            mirror=plan.mirror.to_dict(), plan=plan.hash, inputs=plan.digest, directory="", host="dc1-worker", where="dc1"
        )
        begin(Ledger(there), tail, Watch(state_of(there, *heard_by(NAME))))
    watching.turn_on(DAG)
    wait_for(lambda: len(runs(watching)) == 2, timeout_s=600)
    (asked,) = [run for run, kind in runs(watching).items() if kind != "asset_triggered"]
    (told,) = runs(watching).keys() - {asked}
    watching.wait_for_task(DAG, asked, "approve_failover", ("awaiting_input",), timeout_s=600)
    assert watching.wait(DAG, told, timeout_s=600) == "success", explain(watching, told, DAG)
    assert "the source was last seen at" in watching.log(DAG, told, "outages")

    # Another triggerer: what was told stays told.
    watching.stop()
    watching.start(900)
    time.sleep(QUIET_S)
    assert runs(watching).keys() == {asked, told}
