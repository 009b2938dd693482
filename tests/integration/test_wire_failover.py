"""Three nodes, of which one dies or freezes while it is being asked."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import wait_until

pytestmark = pytest.mark.faults


@pytest.fixture
def cluster(three_nodes: Cluster) -> Iterator[WireCluster]:
    with WireCluster(ClientConfig(three_nodes.properties(), "target"), timeout_s=90) as cluster:
        yield cluster


@pytest.fixture
def whole_again(three_nodes: Cluster) -> Iterator[None]:
    """Leave the cluster as it was found."""
    yield
    for node_id in (1, 2, 3):
        if three_nodes.alive(node_id):
            three_nodes.resume(node_id)
        else:
            three_nodes.restart(node_id)
    three_nodes.wait_ready()


def create(three_nodes: Cluster, cluster: WireCluster, topic: str, replicas: list[int]) -> TopicPartition:
    admin = AdminClient(three_nodes.properties())
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config={"min.insync.replicas": "1"})
    admin.create_topics([new])[topic].result()
    tp = TopicPartition(topic, 0)
    for node_id in (1, 2, 3):  # the others hear of it later than the one that was told, and who is asked is up to chance
        wait_until(lambda n=node_id: described(cluster, tp, n) is not None, f"node {node_id} knows the topic")
    return tp


def described(cluster: WireCluster, tp: TopicPartition, node_id: int) -> tuple[int, set[int]] | None:
    """Return leader and in-sync replicas as one broker knows them; None before it knows the topic, or when it is away."""
    try:
        (topic,) = requests.metadata(cluster.connection(node_id), [tp.topic]).topics
    except ConnectionLost:
        return None
    return None if topic.error_code else (topic.partitions[0].leader_id, set(topic.partitions[0].isr_nodes))


def produce(three_nodes: Cluster, tp: TopicPartition, count: int) -> None:
    producer = Producer(three_nodes.properties() | {"acks": "all"})
    for number in range(count):
        producer.produce(tp.topic, b"%d" % number, None, tp.partition)
    assert producer.flush(240) == 0


def test_log_end_leads_high_watermark_while_a_follower_is_frozen(
    three_nodes: Cluster, cluster: WireCluster, topic_name: str, whole_again: None
) -> None:
    """ListOffsets would make a copy resume too early, and send what is in the log already a second time."""
    tp = create(three_nodes, cluster, topic_name, [1, 2])
    produce(three_nodes, tp, 1)
    assert cluster.high_watermarks([tp]) == cluster.log_ends([tp]) == {tp: 1}
    producer = Producer(three_nodes.properties() | {"acks": "1"})
    for _ in range(20):
        producer.produce(topic_name, b"finds its way before a node freezes", None, 0)
        assert producer.flush(240) == 0

        def settled() -> bool:
            cluster.refresh([topic_name])
            leader = cluster.leader(tp).node_id
            return described(cluster, tp, leader) == (leader, {1, 2}) and (
                cluster.high_watermarks([tp]) == cluster.log_ends([tp])
            )

        wait_until(settled, "both have everything")
        leader, end = cluster.leader(tp).node_id, cluster.log_ends([tp])[tp]
        three_nodes.pause(3 - leader)
        for _ in range(4):
            producer.produce(topic_name, b"unreplicated", None, 0)
        assert producer.flush(240) == 0
        log_end, high_watermark = cluster.log_ends([tp])[tp], cluster.high_watermarks([tp])[tp]
        # The frozen node counts for 4 s more, then the leader goes on without it. A busy machine may not be done by then.
        if described(cluster, tp, leader) == (leader, {1, 2}):
            break
        three_nodes.resume(3 - leader)
    else:
        pytest.fail("the frozen follower was given up each time before the high watermark was read")
    assert (log_end, high_watermark) == (end + 4, end)


@pytest.mark.parametrize("fault", [Cluster.kill, Cluster.pause])
def test_dead_or_frozen_leader_is_replaced_within_callers_patience(
    three_nodes: Cluster, cluster: WireCluster, topic_name: str, whole_again: None, fault: Callable[[Cluster, int], None]
) -> None:
    tp = create(three_nodes, cluster, topic_name, [3, 1, 2])
    produce(three_nodes, tp, 4)

    def whole() -> bool:
        cluster.refresh([topic_name])
        return described(cluster, tp, 3) == (cluster.leader(tp).node_id, {1, 2, 3})

    wait_until(whole, "every replica is in sync")
    assert cluster.log_ends([tp]) == {tp: 4}
    leader = cluster.leader(tp).node_id
    fault(three_nodes, leader)
    assert cluster.log_ends([tp]) == {tp: 4}
    assert cluster.leader(tp).node_id != leader


def test_no_marker_follows_a_reported_one_if_coordinator_dies(
    three_nodes: Cluster, cluster: WireCluster, topic_name: str, whole_again: None
) -> None:
    """A coordinator that dies after writing a marker and before noting it makes the next one write it again.

    That can't be prevented from here. But it must be over when the call returns: a marker that came later would push
    the next record to a wrong offset.
    """
    # On a busy machine a coordinator may stall, and be replaced, before it is killed.
    assert any(markers_while_the_coordinator_dies(three_nodes, cluster, f"{topic_name}-{n}") for n in range(10))


def markers_while_the_coordinator_dies(three_nodes: Cluster, cluster: WireCluster, name: str) -> bool:
    """Return whether the coordinator stayed until it was about to be killed."""
    client = TransactionClient(cluster, name)
    producer_id, epoch = client.init(60_000)
    (coordinator,) = client._coordinators.values()
    tp = create(three_nodes, cluster, name, [n for n in (1, 2, 3) if n != coordinator])
    killer = threading.Timer(random.uniform(0.01, 0.2), three_nodes.kill, [coordinator])
    end, calls, twice = 0, 0, 0
    try:
        while set(client._coordinators.values()) == {coordinator}:
            if calls == 5:
                killer.start()
            assert cluster.log_ends([tp]) == {tp: end}, "a marker came after its call had returned"
            client.write_marker(tp, producer_id, epoch)
            calls, before, end = calls + 1, end, cluster.log_ends([tp])[tp]
            assert end - before in (1, 2)
            twice += end - before == 2
    finally:
        if killer.ident is not None:
            killer.join()
    assert twice <= 1
    time.sleep(2)
    assert cluster.log_ends([tp]) == {tp: end}
    return calls > 5
