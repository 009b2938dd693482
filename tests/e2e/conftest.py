"""Two real clusters and one real Airflow for all end-to-end tests; started once, stopped whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Cluster, clusters
from sandbox.airflow import AirflowStandalone

# Airflow takes what does not answer for dead. On a slow machine that would be a task, a parser or a component that lives.
PATIENCE = {
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
    "AIRFLOW__API__LOG_FETCH_TIMEOUT_SEC": "60",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "300",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "300",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "30",
}


@pytest.fixture(scope="session")
def world() -> Iterator[tuple[Cluster, Cluster]]:
    """A source with an authorizer (cutovers fence by ACL) and a target."""
    with clusters("e2e-source", "e2e-target", authorizer=True, ready_timeout_s=240) as (source, target):
        yield source, target


@pytest.fixture(scope="session")
def airflow(world: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStandalone]:
    """Airflow with the repository's DAGs and a connection to each cluster."""
    source, target = world
    # Not the ids that the DAGs have as defaults: a run that the scheduler starts when a DAG is turned on finds nothing.
    connections = {"e2e_source": source.admin_properties(), "e2e_target": target.admin_properties()}
    home = tmp_path_factory.mktemp("airflow")
    env = {"AIRFLOW__MIRROR__POLL_INTERVAL": "1", "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2", **PATIENCE}
    running = AirflowStandalone(Path(home), connections=connections, env=env)
    try:
        yield running.start(900)
    finally:
        running.stop()
