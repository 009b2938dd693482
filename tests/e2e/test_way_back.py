"""A migration that arms its way back, and the return by it: what was written since the opening comes back exactly."""

from __future__ import annotations

import pytest

from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import commit, create, fill, positions, read_all
from tests.e2e.test_migration import DAG, conf, explain, wait_for

pytestmark = pytest.mark.drills

FAILBACK, TOPIC, GROUP, NAME = "kafka_failback", "way.orders", "way.billing", "there-and-back"


def test_what_is_written_after_the_opening_comes_back_by_the_way_that_the_migration_armed(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    """1,000 records at the same offsets, and the group where it stood on the target."""
    here, there = (cluster.admin_properties() for cluster in world)
    create(here, TOPIC, 2)
    fill(here, TOPIC, 500)
    commit(here, GROUP, {(TOPIC, 0): 17})
    for dag in (DAG, FAILBACK):
        airflow.turn_on(dag)
    run = airflow.trigger(DAG, conf(NAME, [TOPIC], [GROUP], way_back=True))
    assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run)
    states = airflow.task_states(DAG, run)
    assert {states[f"way_back.{task}"] for task in ("arm", "hold", "start_tail")} == {"success"}
    fill(there, TOPIC, 1000, seed=1)
    commit(there, GROUP, {(TOPIC, 0): 23})
    written = read_all(there, TOPIC)
    assert len(written) == 1500
    wait_for(lambda: len(read_all(here, TOPIC)) == 1500)
    back = {"name": NAME, "source": "e2e_source", "target": "e2e_target", "approval": False, "open_by_default": True}
    run = airflow.trigger(FAILBACK, back)
    assert airflow.wait(FAILBACK, run, timeout_s=1200) == "success", explain(airflow, run, FAILBACK)
    assert read_all(here, TOPIC) == written == read_all(there, TOPIC)
    assert positions(here, GROUP, {TOPIC: 1}) == {(TOPIC, 0): 23}
