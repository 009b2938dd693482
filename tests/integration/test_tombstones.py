"""Fillers on real brokers: the holes of compacted topics are taken by records that the target's cleaner removes."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.opening import journal
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionPair
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from airflow_mirror.wire.transactions import write_txn_markers
from sandbox import Cluster
from tests.integration.copying import (
    TILL_FLUSH,
    Seen,
    config,
    copier_process,
    copy,
    create,
    ends,
    ranges_of,
    read,
    results_of,
    wait_until,
    write_transactions,
)

OLD = 1_600_000_000_000


@pytest.fixture
def topic(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> str:
    """A topic with small holes (transactions), two large ones, and one at its end; its times rise and sometimes fall."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    rng = random.Random(8)
    with WireCluster(config(source_cluster)) as wire:
        for seed, hole in ((1, 2_500), (2, 110_000), (3, 1)):
            producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "compression.type": "lz4"})
            for i in range(200):
                at = OLD + seed * 1_000_000 + i * 1_000 - rng.randint(0, 3_000)
                producer.produce(topic_name, rng.choice([None, b"v%d" % i]), b"k%d" % rng.randint(0, 40), timestamp=at)
            producer.flush()
            write_transactions(source_cluster, topic_name, seed=seed, transactions=3)
            for _ in range(0, hole, 10_000):
                write_txn_markers(wire, TopicPartition(topic_name, 0), 2**61 + seed, 0, min(hole, 10_000))
    return topic_name


def records_of(seen: list[Seen]) -> list[Seen]:
    return [row for row in seen if row[2] != tombstones.KEY]


def differences(source: Cluster, target: Cluster, topic: str, level: str = "records") -> tuple[bool, int, str]:
    pair = PartitionPair(source_topic=topic, target_topic=topic, partition=0)
    (verdict,) = compare_partitions([pair], config(source), config(target), level)
    return verdict.equal, verdict.fillers, str(verdict)


def found_by_time(cluster: Cluster, topic: str, records: list[Seen]) -> list[int | None]:
    """Return the first record that a reader gets who searches for a time and goes on from there, for many times."""
    tp, offsets = TopicPartition(topic, 0), [row[0] for row in records]
    times = [0, *range(OLD + 990_000, OLD + 3_300_000, 20_011), 2**50]
    with WireCluster(config(cluster)) as wire:
        found = [wire.offsets_for_time([tp], at)[tp] for at in times]
    return [None if at < 0 else next((offset for offset in offsets if offset >= at), None) for at in found]


def test_fillers_take_every_hole_and_keep_search_by_time(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    """A comparison gives the same verdict with them."""
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic), tombstone_topics=[topic])
    assert (result.done, result.error) == (True, None)
    here, there = read(source_cluster, topic), read(target_cluster, topic)
    assert records_of(there) == here
    assert ends(source_cluster, topic) == ends(target_cluster, topic)
    assert result.padded == len(there) - len(here) > 112_500
    assert [offset for offset, *_ in there] == list(range(len(there)))  # not one offset is empty
    for level in ("batches", "records"):
        assert differences(source_cluster, target_cluster, topic, level)[:2] == (True, result.padded)
    found = found_by_time(source_cluster, topic, here)
    assert found_by_time(target_cluster, topic, here) == found and len(set(found)) > 10


def test_copy_that_ended_inside_a_hole_goes_on(source_cluster: Cluster, target_cluster: Cluster, topic: str) -> None:
    """And a foreign source is found out."""
    (whole,) = ranges_of(source_cluster, topic)
    assert whole.end_offset is not None
    for end in (60_000, whole.end_offset - 20_000, whole.end_offset):
        (result,) = copy(source_cluster, target_cluster, [replace(whole, end_offset=end)], tombstone_topics=[topic])
        assert (result.position, result.error) == (end, None)
    assert differences(source_cluster, target_cluster, topic)[0]
    dense = f"{topic}-dense"  # it has records at the offsets where the target has fillers
    create(source_cluster, dense)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "linger.ms": TILL_FLUSH})
    for i in range(60_500):
        producer.produce(dense, b"x", b"k", partition=0)
        if i % 20_000 == 0:
            producer.flush()
    producer.flush()
    other = f"{topic}-other"
    create(target_cluster, other)
    short = CopyRange(source_topic=topic, target_topic=other, partition=0, start_offset=0, end_offset=60_000)
    copy(source_cluster, target_cluster, [short], tombstone_topics=[other])
    before = ends(target_cluster, other)
    (refused,) = copy(
        source_cluster,
        target_cluster,
        [CopyRange(source_topic=dense, target_topic=other, partition=0, start_offset=0, end_offset=60_500)],
        tombstone_topics=[other],
    )
    assert refused.final and "the target's last batch differs from" in str(refused.error)
    assert ends(target_cluster, other) == before


@pytest.mark.faults
def test_target_is_equal_after_killed_and_doubled_filling_copiers(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    ranges, rng = ranges_of(source_cluster, topic), random.Random(4)
    options = {"tombstone_topics": [topic], "mirror": topic, "wait": False}
    for _ in range(3):
        at = ends(target_cluster, topic)[0][2]
        process = copier_process(source_cluster, target_cluster, ranges, **options)  # type: ignore[arg-type]
        wait_until(lambda: ends(target_cluster, topic)[0][2] > at or process.poll() is not None, "the copier moves")  # noqa: B023
        time.sleep(rng.random() * 0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    twins = [copier_process(source_cluster, target_cluster, ranges, **options) for _ in range(2)]  # type: ignore[arg-type]
    for twin in twins:
        results_of(twin)
    (result,) = copy(source_cluster, target_cluster, ranges, mirror=topic, tombstone_topics=[topic])
    assert result.error is None
    equal, fillers, said = differences(source_cluster, target_cluster, topic)
    assert equal, said
    assert fillers > 112_500
    assert ends(source_cluster, topic) == ends(target_cluster, topic)


@pytest.mark.months
def test_target_cleaner_removes_fillers_and_keeps_records_in_place(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic), tombstone_topics=[topic])
    here = read(source_cluster, topic)
    cleaning = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "100"}
    with ClusterAdmin(config(target_cluster)) as admin:
        admin.alter_topic_configs(topic, unfenced, set={**cleaning, "segment.ms": "300", "max.compaction.lag.ms": "100"})
    ticker = Producer({"bootstrap.servers": target_cluster.bootstrap})
    deadline = time.monotonic() + 300
    while True:
        ticker.produce(topic, b"tick", b"tick", partition=0)  # the cleaner takes no active segment; this rolls it
        ticker.flush()
        left = read(target_cluster, topic)
        values = {row[2]: row for row in here if row[3] is not None}
        if not [row for row in left if row[2] == tombstones.KEY] and len(left) < 1.5 * len(values) + 10:
            break
        assert time.monotonic() < deadline, f"{len(left)} records are left"
        time.sleep(0.5)
    latest = {row[2]: row for row in here}
    kept = {row[0]: row for row in left if row[0] < result.position}
    assert all(row in here for row in kept.values())  # nothing moved, nothing changed
    assert all(kept[row[0]] == row for row in latest.values() if row[3] is not None)  # the last of each key is there


@pytest.mark.months
def test_copy_continues_behind_a_batch_thinned_by_the_cleaner(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name)
    cleaning = {"min_cleanable_dirty_ratio": "0.001", "segment_ms": "300", "max_compaction_lag_ms": "100"}
    create(target_cluster, topic_name, cleanup_policy="compact", **cleaning)
    produce(source_cluster, topic_name, 60)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), mirror=topic_name)
    time.sleep(0.5)  # segments are rolled by the records' times
    produce(source_cluster, topic_name, 1)  # rolls the segment: the first batch can be cleaned
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), mirror=topic_name)
    wait_until(lambda: len(read(target_cluster, topic_name)) < 20, "the cleaner came", timeout_s=300, poll_s=0.2)
    with WireCluster(config(target_cluster)) as wire:
        tp = TopicPartition(topic_name, 0)
        thinned = journal.last_data_batch(wire, tp, 0, 60, READ_COMMITTED)
        assert thinned is not None and thinned.header is not None and not thinned.header.is_dense
        after = journal._next_sequence(topic_name, tp, 60, thinned, [])
        assert after == (thinned.header.producer_epoch, (thinned.header.base_sequence + 60) % 2**31)


def produce(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": TILL_FLUSH})
    for i in range(count):
        producer.produce(topic, b"v%d" % i, b"k%d" % (i % 7), partition=0)
    assert producer.flush(120) == 0
