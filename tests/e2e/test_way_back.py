"""A migration that arms its way back, and the return by it: what was written since the opening comes back exactly.

Then the fence that the return has kept is lifted, by the DAG for that.
"""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import commit, create, fill, positions, read_all
from tests.e2e.test_migration import DAG, conf, explain, wait_for

pytestmark = pytest.mark.drills

FAILBACK, LIFT_FENCE = "kafka_failback", "kafka_lift_fence"
TOPIC, GROUP, NAME = "way.orders", "way.billing", "there-and-back"


def test_what_is_written_after_the_opening_comes_back_by_the_way_that_the_migration_armed(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    """1,000 records at the same offsets, and the group where it stood on the target."""
    here, there = (cluster.admin_properties() for cluster in world)
    alice = ClientConfig(world[1].properties("alice"), "target")
    create(here, TOPIC, 2)
    fill(here, TOPIC, 500)
    commit(here, GROUP, {(TOPIC, 0): 17})
    for dag in (DAG, FAILBACK, LIFT_FENCE):
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
    back = {"name": NAME, "source": "e2e_source", "target": "e2e_target", "approval": False, "open_by_default": "yes"}
    run = airflow.trigger(FAILBACK, {**back, "accept_ledger_writers": ["User:*"]})
    assert airflow.wait(FAILBACK, run, timeout_s=1200) == "success", explain(airflow, run, FAILBACK)
    assert read_all(here, TOPIC) == written == read_all(there, TOPIC)
    assert positions(here, GROUP, {TOPIC: 1}) == {(TOPIC, 0): 23}

    back = {"name": f"{NAME}-reverse", "source": "e2e_target", "target": "e2e_source"}
    with WireCluster(alice) as asked:
        tps = [TopicPartition(TOPIC, p) for p in range(2)]
        for include_retained, says in ((False, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (True, ErrorCode.CORRUPT_MESSAGE)):
            run = airflow.trigger(LIFT_FENCE, {**back, "include_retained": include_retained})
            assert airflow.wait(LIFT_FENCE, run, timeout_s=600) == "success", explain(airflow, run, LIFT_FENCE)
            assert bool(airflow.xcom(LIFT_FENCE, run, "lift_fence")["lifted"]) is include_retained
            wait_for(lambda says=says: set(asked.write_answers(tps).values()) == {says}, timeout_s=60)
