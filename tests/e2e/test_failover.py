"""A target is promoted by an Airflow that has never seen the mirror, from its ledger alone; and the way back."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MirrorCutOver
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build, ledger_store
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.plan.requirements import require_active
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.notes import SourceEnds
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from sandbox import Cluster
from sandbox.airflow import AirflowStandalone
from tests.e2e.records import positions, read_all
from tests.e2e.test_migration import explain, wait_for

pytestmark = pytest.mark.drills

DAG, REVERSE, FAILBACK = "kafka_failover", "kafka_reverse_mirror", "kafka_failback"
TOPIC, NAME, GROUP = "failover.orders", "somebody-elses", "failover.billing"
TP = TopicPartition(TOPIC, 0)
_FROM_MS = int(time.time() * 1000)


def fill(cluster: Cluster, count: int, topic: str = TOPIC) -> None:
    producer = Producer({**cluster.admin_properties(), "acks": "all"})
    for number in range(count):
        # Of equal times on both sides, as a mirror leaves them: what differs counts as not copied, and is exported.
        producer.produce(topic, b"%d" % number, partition=0, timestamp=_FROM_MS + number)
    assert producer.flush(120) == 0


def mirrored(source: Cluster, target: Cluster, name: str = NAME, topic: str = TOPIC) -> Plan:
    """Leave on the target what a mirror leaves whose host and whose source are gone: two of ten records are missing."""
    tp = TopicPartition(topic, 0)
    with ExitStack() as close:
        here, there = (
            close.enter_context(ClusterAdmin(ClientConfig(cluster.admin_properties(), role), timeout_s=120))
            for cluster, role in ((source, "source"), (target, "target"))
        )
        mirror = Mirror(name=name, source="unknown_here", target="nor_this", topics=[topic], groups=[GROUP])
        # Older than what a tail of it has seen.
        plan = replace(build(mirror, here, there, probe_target=False), created_at="2026-01-01T00:00:00+00:00")
        create_target_topics(plan, there, unfenced)
        ledger = begin(plan, there)
        claim(ledger, plan, there)
        ledger_store.keep(plan, state_of(there, PLAN.below(name)), ledger)
        fill(target, 8, topic)
        seen = SourceEnds(at_ms=0).after({tp: (10, 10)}, [tp], int(time.time() * 1000) - 90_000)
        state_of(there, notes.prefix(name)).write(seen.dump(name))
        there.commit_group_offsets(GROUP, {tp: GroupPosition(10)}, unfenced)
    return plan


@pytest.fixture(scope="module")
def failed_over(airflow: AirflowStandalone, world: tuple[Cluster, Cluster]) -> tuple[str, Plan]:
    """The run that promoted the target while the source was down, and fenced the source when it returned; the plan."""
    source, target = world
    settings = ClientConfig(source.admin_properties(), "source")
    with ClusterAdmin(settings, timeout_s=120) as admin:
        admin.create_topics([NewTopicSpec(TOPIC, 1, 1, {"retention.ms": "86400000"})], unfenced)
    fill(source, 10)
    plan = mirrored(source, target)
    source.kill(1)
    airflow.turn_on(DAG)
    given = {"target": "e2e_target", "name": NAME, "source": "e2e_source", "open_by_default": "yes"}
    run = airflow.trigger(DAG, given)
    airflow.wait_for_task(DAG, run, "approve_failover", ("awaiting_input",), timeout_s=1200)
    with ClusterAdmin(ClientConfig(target.admin_properties(), "target"), timeout_s=120) as there:
        require_active(Ledger(there), plan, there)  # nothing is done before somebody says yes
        assert there.group_offsets(GROUP)[TP].offset == 10
    airflow.approve(DAG, run, "approve_failover")
    airflow.wait_for_task(DAG, run, "fence_returned", ("running",), timeout_s=1200)
    fill(target, 30)  # production
    source.restart(1)
    assert airflow.wait(DAG, run, timeout_s=1200) == "success", explain(airflow, run, DAG)
    return run, plan


def answers(cluster: Cluster) -> set[int]:
    """What the leader answers to alice, who would write an invalid batch."""
    with WireCluster(ClientConfig(cluster.properties("alice"), "asked")) as wire:
        return set(wire.write_answers([TP]).values())


def test_an_airflow_that_never_saw_the_mirror_promotes_its_target(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], failed_over: tuple[str, Plan]
) -> None:
    """Asked for nothing but the target's connection, while the source is down; the source is fenced when it returns."""
    run, plan = failed_over
    with ClusterAdmin(ClientConfig(world[1].admin_properties(), "target"), timeout_s=120) as there:
        with pytest.raises(MirrorCutOver):
            require_active(Ledger(there), plan, there)
        assert there.group_offsets(GROUP)[TP].offset == 8
        assert there.topic_configs([TOPIC])[TOPIC]["retention.ms"].value == "86400000"
    report = airflow.xcom(DAG, run, "failover")
    assert (report["lost"]["at_least"], list(report["steps"])) == (2, ["writing", "groups", "settings", "grants"])
    assert len(json.dumps(report)) < 50_000
    returned = airflow.xcom(DAG, run, "fence_returned")
    assert (returned["offsets"], returned["took"]) == (2, [f"{TP}: 2 offsets, 2 records, from 8 up to 10"])


def test_applications_go_back_to_the_source_that_returned(
    airflow: AirflowStandalone, world: tuple[Cluster, Cluster], failed_over: tuple[str, Plan], tmp_path: Path
) -> None:
    """The topic has diverged: what the target lacks is exported, the topic deleted, and all of it copied back."""
    source, target = world
    assert answers(source) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    mirror = {"name": NAME, "source": "e2e_source", "target": "e2e_target"}
    airflow.turn_on(REVERSE)
    airflow.turn_on(FAILBACK)
    run = airflow.trigger(REVERSE, {**mirror, "export_to": str(tmp_path), "recreate": [TOPIC]})
    assert airflow.wait(REVERSE, run, timeout_s=1200) == "success", explain(airflow, run, REVERSE)
    (exported,) = tmp_path.glob(f"{TOPIC}.*/manifest.json")
    assert json.loads(exported.read_text())["partitions"][0]["records"] == 2
    wait_for(lambda: len(read_all(source.admin_properties(), TOPIC)) == 38)
    # Armed with other connections: by hand, say, or in an Airflow that has other names for the same clusters.
    for name, cluster in (("other_source", source), ("other_target", target)):
        airflow.add_connection(name, cluster.admin_properties())
    other = {"name": NAME, "source": "other_source", "target": "other_target"}
    consent = {"approval": False, "open_by_default": "yes", "accept_ledger_writers": ["User:*"]}
    run = airflow.trigger(FAILBACK, {**other, **consent})
    assert airflow.wait(FAILBACK, run, timeout_s=1200) == "success", explain(airflow, run, FAILBACK)
    assert read_all(source.admin_properties(), TOPIC) == read_all(target.admin_properties(), TOPIC)
    assert positions(source.admin_properties(), GROUP, {TOPIC: 1}) == {(TOPIC, 0): 8}
    wait_for(lambda: answers(source) == {ErrorCode.CORRUPT_MESSAGE}, timeout_s=120)
    assert answers(target) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
