"""Three nodes, of which one dies or freezes while it is being asked."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.kafka.config import ClientConfig
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    with Cluster("wire", nodes=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: Cluster) -> Iterator[WireCluster]:
    with WireCluster(ClientConfig(three_nodes.properties(), "target"), timeout_s=30) as cluster:
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


def create(three_nodes: Cluster, topic: str, replicas: list[int]) -> TopicPartition:
    admin = AdminClient(three_nodes.properties())
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config={"min.insync.replicas": "1"})
    admin.create_topics([new])[topic].result()
    return TopicPartition(topic, 0)


def produce(three_nodes: Cluster, tp: TopicPartition, count: int) -> None:
    producer = Producer(three_nodes.properties() | {"acks": "all"})
    for number in range(count):
        producer.produce(tp.topic, b"%d" % number, None, tp.partition)
    assert producer.flush(20) == 0


def test_the_log_goes_on_behind_the_high_watermark_while_a_follower_is_frozen(
    three_nodes: Cluster, cluster: WireCluster, topic_name: str, whole_again: None
) -> None:
    """ListOffsets would make a copy resume too early, and send what is in the log already a second time."""
    tp = create(three_nodes, topic_name, [1, 2])
    produce(three_nodes, tp, 1)
    assert cluster.high_watermarks([tp]) == cluster.log_ends([tp]) == {tp: 1}
    producer = Producer(three_nodes.properties() | {"acks": "1"})
    producer.produce(topic_name, b"finds its way before a node freezes", None, 0)
    producer.flush(20)
    deadline = time.monotonic() + 10
    while cluster.high_watermarks([tp]) != {tp: 2} and time.monotonic() < deadline:
        time.sleep(0.05)
    three_nodes.pause(2)
    for _ in range(4):
        producer.produce(topic_name, b"unreplicated", None, 0)
    assert producer.flush(3) == 0
    assert cluster.log_ends([tp]) == {tp: 6}
    assert cluster.high_watermarks([tp]) == {tp: 2}


@pytest.mark.parametrize("fault", [Cluster.kill, Cluster.pause])
def test_a_leader_that_dies_or_freezes_is_replaced_within_the_callers_patience(
    three_nodes: Cluster, cluster: WireCluster, topic_name: str, whole_again: None, fault: Callable[[Cluster, int], None]
) -> None:
    tp = create(three_nodes, topic_name, [3, 1, 2])
    produce(three_nodes, tp, 4)
    assert cluster.log_ends([tp]) == {tp: 4}
    assert cluster.leader(tp).node_id == 3
    fault(three_nodes, 3)
    before = time.monotonic()
    assert cluster.log_ends([tp]) == {tp: 4}
    assert time.monotonic() - before < 30
    assert cluster.leader(tp).node_id != 3


def test_when_a_marker_is_reported_no_other_follows_even_if_the_coordinator_dies(
    three_nodes: Cluster, cluster: WireCluster, topic_name: str, whole_again: None
) -> None:
    """A coordinator that dies after writing a marker and before noting it makes the next one write it again.

    That can't be prevented from here. But it must be over when the call returns: a marker that came later would push
    the next record to a wrong offset.
    """
    client = TransactionClient(cluster, topic_name)
    producer_id, epoch = client.init(60_000)
    (coordinator,) = client._coordinators.values()
    tp = create(three_nodes, topic_name, [n for n in (1, 2, 3) if n != coordinator])
    killer = threading.Timer(random.uniform(0.01, 0.2), three_nodes.kill, [coordinator])
    end, calls, twice = 0, 0, 0
    while set(client._coordinators.values()) == {coordinator}:
        if calls == 5:
            killer.start()
        assert cluster.log_ends([tp]) == {tp: end}, "a marker came after its call had returned"
        client.write_marker(tp, producer_id, epoch)
        calls, before, end = calls + 1, end, cluster.log_ends([tp])[tp]
        assert end - before in (1, 2)
        twice += end - before == 2
    assert calls > 5 and twice <= 1
    time.sleep(2)
    assert cluster.log_ends([tp]) == {tp: end}
    killer.join()
