"""A target is promoted by an Airflow that has never seen the mirror, from its ledger alone."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MirrorCutOver
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan import Plan, build, kept
from airflow_mirror.plan.life import begin, claim, require_active
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.notes import SourceEnds
from airflow_mirror.sync.topics import create_target_topics
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.test_migration import explain

pytestmark = pytest.mark.drills

DAG = "kafka_failover"
TOPIC, NAME, GROUP = "failover.orders", "somebody-elses", "failover.billing"
TP = TopicPartition(TOPIC, 0)


def fill(cluster: Cluster, count: int) -> None:
    producer = Producer({**cluster.admin_properties(), "acks": "all"})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(120) == 0


def mirrored(source: Cluster, target: Cluster) -> Plan:
    """Leave on the target what a mirror leaves whose host and whose source are gone: two of ten records are missing."""
    with ExitStack() as close:
        here, there = (
            close.enter_context(ClusterAdmin(ClientConfig(cluster.admin_properties(), role), timeout_s=120))
            for cluster, role in ((source, "source"), (target, "target"))
        )
        mirror = Mirror(name=NAME, source="unknown_here", target="nor_this", topics=[TOPIC], groups=[GROUP])
        plan = build(mirror, here, there, probe_target=False)
        create_target_topics(plan, there)
        ledger = begin(plan, there)
        claim(ledger, plan, there)
        kept.keep(plan, state_of(there, kept.prefix(NAME)), ledger)
        fill(target, 8)
        seen = SourceEnds(at_ms=0).after({TP: (10, 10)}, [TP], int(time.time() * 1000) - 90_000)
        state_of(there, notes.prefix(NAME)).write(seen.dump(NAME))
        there.commit_group_offsets(GROUP, {TP: GroupPosition(10)})
    return plan


def test_an_airflow_that_never_saw_the_mirror_promotes_its_target(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster]
) -> None:
    source, target = world
    settings = ClientConfig(source.admin_properties(), "source")
    with ClusterAdmin(settings, timeout_s=120) as admin:
        admin.create_topics([NewTopicSpec(TOPIC, 1, 1, {"retention.ms": "86400000"})])
    fill(source, 10)
    plan = mirrored(source, target)
    airflow.turn_on(DAG)
    run = airflow.trigger(DAG, {"target": "e2e_target", "mirror_name": NAME})
    airflow.wait_for_task(DAG, run, "approve_failover", ("awaiting_input",), timeout_s=1200)
    with ClusterAdmin(ClientConfig(target.admin_properties(), "target"), timeout_s=120) as there:
        require_active(Ledger(there), plan, there)  # nothing is done before somebody says yes
        assert there.group_offsets(GROUP)[TP].offset == 10
        airflow.approve(DAG, run, "approve_failover")
        assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run, DAG)
        with pytest.raises(MirrorCutOver):
            require_active(Ledger(there), plan, there)
        assert there.group_offsets(GROUP)[TP].offset == 8
        assert there.topic_configs([TOPIC])[TOPIC]["retention.ms"].value == "86400000"
    report = airflow.xcom(DAG, run, "failover")
    assert (report["lost"]["at_least"], list(report["steps"])) == (2, ["writing", "groups", "settings", "grants"])
    assert len(json.dumps(report)) < 50_000
