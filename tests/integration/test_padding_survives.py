"""Padded topics through what happens to brokers: killed, restarted, led by another, compacted."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import write_txn_markers
from sandbox import Cluster
from tests.integration.copying import (
    assert_equal,
    await_stable,
    config,
    copy,
    create,
    ends,
    ranges_of,
    read,
    wait_until,
    write_transactions,
)

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """A target of three nodes, of which tests may kill one at a time."""
    with Cluster("three", nodes=3, ready_timeout_s=180) as cluster:
        yield cluster


def grow(source: Cluster, topic: str, seed: int) -> None:
    """Append transactions, some of them aborted, and a hole that is long enough to be padded in bulk."""
    write_transactions(source, topic, seed=seed, transactions=4)
    with WireCluster(config(source)) as wire:
        write_txn_markers(wire, TopicPartition(topic, 0), 2**61 + seed, 0, 700)


def padded_copy(source: Cluster, target: Cluster, topic: str) -> None:
    (result,) = copy(source, target, ranges_of(source, topic), mirror=topic)
    assert (result.done, result.error) == (True, None)


def holes(cluster: Cluster, topic: str) -> int:
    """Count the offsets without a record. What a copy says that it padded lacks what it never had an answer for."""
    await_stable(cluster, topic)
    start, _, end = ends(cluster, topic)[0]
    return end - start - len(read(cluster, topic))


def leader(cluster: Cluster, topic: str) -> int:
    with WireCluster(config(cluster), timeout_s=120) as wire:
        return wire.leader(TopicPartition(topic, 0)).node_id


def test_markers_survive_a_killed_leader_and_copying_continues(
    source_cluster: Cluster, three: Cluster, topic_name: str
) -> None:
    """The copy goes on at the next leader; after another kill the log is still the same."""
    create(source_cluster, topic_name)
    create(three, topic_name, replicas=3, min_insync_replicas="2")
    grow(source_cluster, topic_name, 31)
    padded_copy(source_cluster, three, topic_name)
    before = holes(three, topic_name)
    assert before > 700
    old = leader(three, topic_name)
    three.kill(old)
    try:
        wait_until(lambda: leader(three, topic_name) not in (old, -1), "another node leads")
        await_stable(three, topic_name)
        assert_equal(source_cluster, three, topic_name)
        grow(source_cluster, topic_name, 32)
        padded_copy(source_cluster, three, topic_name)
        assert holes(three, topic_name) - before > 700
        assert_equal(source_cluster, three, topic_name)
    finally:
        three.restart(old)
    # The node that was away has the markers from the others: let it lead, and look again.
    others = [node for node in (1, 2, 3) if node != old]
    wait_until(lambda: in_sync(three, topic_name) == 3, "all replicas are in sync again", poll_s=0.2)
    three.kill(others[0])
    try:
        wait_until(lambda: leader(three, topic_name) != others[0], "another node leads")
        await_stable(three, topic_name)
        assert_equal(source_cluster, three, topic_name)
    finally:
        three.restart(others[0])


def in_sync(cluster: Cluster, topic: str) -> int:
    """How many replicas of the partition follow, as an independent client sees it."""
    described = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=60)
    return len(described.topics[topic].partitions[0].isrs)


def test_markers_survive_kill_9_and_a_clean_restart(source_cluster: Cluster, three: Cluster, topic_name: str) -> None:
    """They are read back from the disk of the only replica."""
    create(source_cluster, topic_name)
    create(three, topic_name)  # one replica: nobody else could bring them back
    grow(source_cluster, topic_name, 33)
    padded_copy(source_cluster, three, topic_name)
    node = leader(three, topic_name)
    three.kill(node)
    three.restart(node)
    wait_until(lambda: leader(three, topic_name) == node, "it leads again")
    await_stable(three, topic_name)
    assert_equal(source_cluster, three, topic_name)
    three.restart(node)
    wait_until(lambda: leader(three, topic_name) == node, "it leads again")
    await_stable(three, topic_name)
    assert_equal(source_cluster, three, topic_name)
    grow(source_cluster, topic_name, 34)
    padded_copy(source_cluster, three, topic_name)
    assert_equal(source_cluster, three, topic_name)


def test_target_cleaner_moves_nothing_in_a_padded_log(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """Records keep their offsets and times, and the log its ends, when the target compacts it."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    for seed in (35, 36, 37):
        grow(source_cluster, topic_name, seed)
    padded_copy(source_cluster, target_cluster, topic_name)
    here, before = read(source_cluster, topic_name), ends(target_cluster, topic_name)
    cleaning = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "100"}
    with ClusterAdmin(config(target_cluster)) as admin:
        admin.alter_topic_configs(
            topic_name, unfenced, set={**cleaning, "segment.ms": "300", "max.compaction.lag.ms": "100"}
        )
    latest = {row[2]: row for row in here}
    ticker = Producer({"bootstrap.servers": target_cluster.bootstrap})
    end, deadline = before[0][2], time.monotonic() + 300
    while True:
        ticker.produce(topic_name, b"tick", b"tick", partition=0)  # the cleaner takes no active segment; this rolls it
        ticker.flush()
        left = [row for row in read(target_cluster, topic_name) if row[0] < end]
        if len(left) == len(latest):
            break
        assert time.monotonic() < deadline, f"{len(left)} records are left"
        time.sleep(0.5)
    assert left == sorted(latest.values())  # at their offsets, with their times
    start, stable, log_end = ends(target_cluster, topic_name)[0]
    assert (start, stable) == (0, log_end) and log_end > end
