"""Two real clusters and one real Airflow for all end-to-end tests; started once, stopped whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Cluster, clusters
from sandbox.airflow import AirflowStandalone


@pytest.fixture(scope="session")
def world() -> Iterator[tuple[Cluster, Cluster]]:
    """A source with an authorizer (cutovers fence by ACL) and a target."""
    with clusters("e2e-source", "e2e-target", authorizer=True) as (source, target):
        yield source, target


@pytest.fixture(scope="session")
def airflow(world: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStandalone]:
    """Airflow with the repository's DAGs and a connection to each cluster."""
    source, target = world
    # Not the ids that the DAGs have as defaults: a run that the scheduler starts when a DAG is turned on finds nothing.
    connections = {"e2e_source": source.admin_properties(), "e2e_target": target.admin_properties()}
    home = tmp_path_factory.mktemp("airflow")
    env = {"AIRFLOW__MIRROR__POLL_INTERVAL": "1", "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2"}
    with AirflowStandalone(Path(home), connections=connections, env=env) as running:
        yield running
