"""A partition that has no leader waits for one; the others of its task do not wait with it.

One replica, and its broker is down while the others of its cluster live: on the target, and on the source.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, lease_id
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import (
    HELD_OPEN,
    assert_equal,
    config,
    copier_process,
    create,
    ends,
    ranges_of,
    wait_until,
    write,
)

pytestmark = pytest.mark.faults

LED, LEADERLESS = 0, 1  # partitions
# A copier that stood still for half a minute at a time would bring two or three of them within the minute.
RECORDS, PACE_S, DEADLINE_S = 20, 0.5, 60.0


def nodes_of(cluster: Cluster) -> list[int]:
    return list(range(1, cluster.node_count + 1))


def nodes_but_the_coordinator(cluster: Cluster, mirror: str) -> list[int]:
    """Return the nodes that do not keep the lease of ``mirror``: without that one nobody writes for some seconds."""
    with WireCluster(config(cluster)) as wire:
        client = TransactionClient(wire, lease_id(mirror))
        client.describe()
        return [node for node in nodes_of(cluster) if node not in client._coordinators.values()]


def create_on(cluster: Cluster, topic: str, replicas: list[list[int]], least: int) -> None:
    """Create a topic whose replicas are on those nodes, the leader's first; ``least``: ``min.insync.replicas``."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # must live until its requests are answered
    settings = HELD_OPEN | {"min.insync.replicas": str(least)}
    admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas, config=settings)])[topic].result()


def one_after_another(source: Cluster, target: Cluster, topic: str) -> list[float]:
    """Write a record, wait until it is on the target, write the next one; return how long each took, in seconds."""
    tp, took = TopicPartition(topic, LED), list[float]()
    deadline = time.monotonic() + DEADLINE_S
    with WireCluster(config(target)) as wire:
        while len(took) < RECORDS:
            at, begun = wire.log_ends([tp])[tp], time.monotonic()
            write(source, topic, 1, seed=len(took), partition=LED)
            while wire.log_ends([tp])[tp] == at:
                if time.monotonic() > deadline:
                    return took
                time.sleep(0.01)
            took.append(round(time.monotonic() - begun, 2))
            time.sleep(PACE_S)  # or a dozen would slip through a pause between two long waits
    return took


@pytest.mark.parametrize("side", ["target", "source"])
def test_leaderless_partition_holds_up_no_other_and_goes_on(
    three_nodes: Cluster, source_cluster: Cluster, target_cluster: Cluster, topic_name: str, side: str
) -> None:
    """Its only broker is down, and comes back."""
    source, target = (source_cluster, three_nodes) if side == "target" else (three_nodes, target_cluster)
    alive, dies = nodes_but_the_coordinator(three_nodes, topic_name)[:2]
    create_on(three_nodes, topic_name, [[alive], [dies]], least=1)
    create(target if side == "source" else source, topic_name, 2)
    for partition in (LED, LEADERLESS):
        write(source, topic_name, 100, seed=partition, partition=partition)
    ranges = [replace(r, end_offset=None) for r in ranges_of(source, topic_name, 2)]

    def all_there() -> bool:
        return ends(source, topic_name, 2) == ends(target, topic_name, 2)

    copiers: list[subprocess.Popen[str]] = []
    try:
        copiers.append(copier_process(source, target, ranges, topic_name))
        wait_until(all_there, "all is copied")
        three_nodes.kill(dies)
        if side == "target":
            write(source, topic_name, 10, seed=2, partition=LEADERLESS)
        running = one_after_another(source, target, topic_name)
        copiers[0].kill()  # the next one begins while there is no leader, as a tail's next lease does
        copiers.append(copier_process(source, target, ranges, topic_name))
        beginning = one_after_another(source, target, topic_name)
        three_nodes.restart(dies)
        write(source, topic_name, 10, seed=3, partition=LEADERLESS)
        assert (len(running), len(beginning)) == (RECORDS, RECORDS), (running, beginning)
        wait_until(all_there, "the partition goes on", 60)
        assert copiers[1].poll() is None
    finally:
        if not three_nodes.alive(dies):
            three_nodes.restart(dies)
        for copier in copiers:
            copier.kill()
            copier.communicate()
    assert_equal(source, target, topic_name, 2)


@pytest.mark.parametrize("short", ["data", "ledger"])
def test_replicas_that_lack_hold_up_either_data_or_decisions(
    three_nodes: Cluster, source_cluster: Cluster, topic_name: str, short: str
) -> None:
    """One node is down, and ``min.insync.replicas`` is 3 on the one of them, 2 on the other."""
    source, target = source_cluster, three_nodes
    create(source, topic_name, 1)
    down = nodes_but_the_coordinator(three_nodes, topic_name)[0]
    # The node that goes does not lead: a new leader tells no stable offset while replicas lack (OFFSET_NOT_AVAILABLE).
    nodes = [*(node for node in nodes_of(target) if node != down), down]
    create_on(target, topic_name, [nodes], least=3 if short == "data" else 2)
    write(source, topic_name, 50, seed=1)
    copier: subprocess.Popen[str] | None = None
    with ClusterAdmin(config(target)) as admin:
        Ledger(admin).create()
        admin.alter_topic_configs(DECISIONS, unfenced, {"min.insync.replicas": "2" if short == "data" else "3"})
        ledger = Ledger(admin, patience_s=20.0)

        def decide(value: str) -> None:
            ledger.decide(lambda _: {f"test/{topic_name}": {"v": 1, "is": value}})

        def stable() -> int:
            return ends(target, topic_name, 1)[0][1]

        decide("all are there")
        try:
            endless = [replace(r, end_offset=None) for r in ranges_of(source, topic_name, 1)]
            copier = copier_process(source, target, endless, topic_name)
            wait_until(lambda: ends(target, topic_name, 1) == ends(source, topic_name, 1), "all is copied")
            three_nodes.kill(down)
            before = stable()
            write(source, topic_name, 10, seed=2)
            if short == "data":
                decide("one is down")
                assert stable() == before and copier.poll() is None
            else:
                wait_until(lambda: ends(target, topic_name, 1) == ends(source, topic_name, 1), "data goes on")
                assert stable() > before
                with pytest.raises(TryAgain):
                    decide("one is down")
            three_nodes.restart(down)
            wait_until(lambda: ends(target, topic_name, 1) == ends(source, topic_name, 1), "data goes on", 120)
            decide("it is back")
            assert ledger.values()[f"test/{topic_name}"] == {"v": 1, "is": "it is back"}
            assert copier.poll() is None, "it waited, and did not end"
        finally:
            if not three_nodes.alive(down):
                three_nodes.restart(down)
            if copier is not None:
                copier.kill()
                copier.communicate()
            admin.alter_topic_configs(DECISIONS, unfenced, {"min.insync.replicas": "2"})
    assert_equal(source, target, topic_name, 1)
