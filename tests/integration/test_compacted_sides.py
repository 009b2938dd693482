"""Compacted topics whose log cleaners run on both sides, each for itself: equal to whoever reads them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair
from sandbox import Cluster
from tests.integration.copying import TILL_FLUSH, config, copy, create, ends, ranges_of, read

pytestmark = pytest.mark.months

KEYS = 30
SOURCE, BOTH = ("source",), ("source", "target")
CLEANING = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "300", "max.compaction.lag.ms": "100",
            "delete.retention.ms": "100"}  # fmt: skip


def update(cluster: Cluster, topic: str, count: int, seed: int) -> None:
    """Append records of few keys, some of them tombstones, in batches of a few."""
    rng = random.Random(seed)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": TILL_FLUSH})
    for number in range(count):
        value = None if rng.random() < 0.2 else b"value %d" % number
        producer.produce(topic, value, b"k%d" % rng.randrange(KEYS), partition=0)
        if rng.random() < 0.1:
            producer.flush(240)
    assert producer.flush(240) == 0


def cleaned(cluster: Cluster, topic: str, more: Callable[[], None]) -> None:
    """Wait for the log cleaner, which leaves the active segment alone: ``more`` appends something and so rolls it."""
    deadline = time.monotonic() + 300
    while len(read(cluster, topic)) > KEYS + 15:
        assert time.monotonic() < deadline, "the cleaner did not come"
        time.sleep(0.4)  # segments are rolled by time
        more()


def compare(clusters: tuple[Cluster, Cluster], topic: str, level: str = "batches", **fields: Any) -> PartitionComparison:
    pair = PartitionPair(source_topic=topic, target_topic=topic, partition=0, start_offset=0, held=True, **fields)
    (verdict,) = compare_partitions([pair], config(clusters[0]), config(clusters[1]), level)
    return verdict


@pytest.mark.parametrize("level", ["batches", "records"])
def test_sides_that_were_cleaned_each_for_itself_are_equal(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, level: str
) -> None:
    both = source_cluster, target_cluster
    create(source_cluster, topic_name, cleanup_policy="compact")
    create(target_cluster, topic_name)

    def more() -> None:
        update(source_cluster, topic_name, 3, seed=random.randrange(1000))
        copy(*both, ranges_of(source_cluster, topic_name))

    update(source_cluster, topic_name, 400, seed=1)
    copy(*both, ranges_of(source_cluster, topic_name))
    with ClusterAdmin(config(source_cluster)) as admin:  # only now: the copy must have what the cleaner removes
        admin.alter_topic_configs(topic_name, unfenced, CLEANING)
    cleaned(source_cluster, topic_name, more)
    found = compare(both, topic_name, level, cleaned_on=SOURCE)
    assert found.equal and found.cleaned > 200, found
    assert not compare(both, topic_name, level).equal
    with ClusterAdmin(config(target_cluster)) as admin:
        admin.alter_topic_configs(topic_name, unfenced, {"cleanup.policy": "compact,delete", **CLEANING})
    cleaned(target_cluster, topic_name, more)  # and the copy goes on in a log that is being cleaned
    assert compare(both, topic_name, level, cleaned_on=BOTH).equal
    assert ends(source_cluster, topic_name) == ends(target_cluster, topic_name)


def test_last_value_that_the_target_lacks_is_a_difference(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name, cleanup_policy="compact")
    create(target_cluster, topic_name)
    update(source_cluster, topic_name, 100, seed=1)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name))
    both = source_cluster, target_cluster
    with ClusterAdmin(config(target_cluster)) as admin:
        admin.delete_records({TopicPartition(topic_name, 0): 1}, unfenced)
    assert not compare(both, topic_name, cleaned_on=BOTH).equal  # somebody did that: settings are on hold
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
    producer.produce(topic_name, b"only here", b"k1", partition=0)
    assert producer.flush(240) == 0
    producer = Producer({"bootstrap.servers": target_cluster.bootstrap})
    producer.produce(topic_name, b"only there", b"k2", partition=0)
    assert producer.flush(240) == 0
    found = compare(both, topic_name, cleaned_on=BOTH)
    assert not found.equal
