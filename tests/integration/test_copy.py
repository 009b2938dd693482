"""The copy engine on real brokers: what arrives is what was there, at the same offsets; what can't be right stops it."""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import write_txn_markers
from sandbox import Cluster
from tests.integration.copying import (
    TILL_FLUSH,
    assert_equal,
    config,
    copy,
    create,
    ends,
    ranges_of,
    read,
    write,
    write_transactions,
)


@pytest.fixture
def topic(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> str:
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    return topic_name


def test_every_codec_and_irregular_record_arrives_at_its_offset(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    for seed, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        write(source_cluster, topic, 300, seed, codec)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert (result.done, result.records, result.reencoded) == (True, 1500, 0)
    assert_equal(source_cluster, target_cluster, topic)


def test_second_run_copies_nothing_and_third_only_new_records(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write(source_cluster, topic, 200, 1)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    (again,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert (again.done, again.records) == (True, 0)
    write(source_cluster, topic, 33, 2, "zstd")
    (later,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert later.records == 33
    assert_equal(source_cluster, target_cluster, topic)


def delete_before(cluster: Cluster, topic: str, offset: int) -> None:
    with ClusterAdmin(config(cluster)) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset}, unfenced)


def test_log_starting_inside_a_batch_is_primed_and_trimmed(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write(source_cluster, topic, 1000, 3, "lz4")
    delete_before(source_cluster, topic, 537)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert (result.primed, result.records, result.error) == (537, 463, None)
    assert ends(target_cluster, topic)[0] == (537, 1000, 1000)
    assert_equal(source_cluster, target_cluster, topic)


def test_emptied_log_starts_and_ends_as_on_the_source(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write(source_cluster, topic, 70, 3)
    delete_before(source_cluster, topic, 70)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert ends(target_cluster, topic)[0] == (70, 70, 70)
    write(source_cluster, topic, 5, 4)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert_equal(source_cluster, target_cluster, topic)


@pytest.mark.parametrize("direct", [True, False], ids=["bulk-markers", "coordinator-only"])
def test_transactions_leave_holes_that_are_padded(
    source_cluster: Cluster, target_cluster: Cluster, topic: str, direct: bool
) -> None:
    write_transactions(source_cluster, topic, seed=4)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic), direct_markers=direct)
    assert result.done
    assert result.padded > result.dropped > 0  # an aborted batch is one drop and several offsets
    assert_equal(source_cluster, target_cluster, topic)


def test_log_append_time_keeps_what_readers_see(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name, message_timestamp_type="LogAppendTime")
    create(target_cluster, topic_name)
    write(source_cluster, topic_name, 120, 5, "snappy")
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), merge_below=0)
    assert result.reencoded == result.batches > 0
    here, there = read(source_cluster, topic_name), read(target_cluster, topic_name)
    assert [(o, t[1], k, v, h) for o, t, k, v, h in here] == [(o, t[1], k, v, h) for o, t, k, v, h in there]
    assert ends(source_cluster, topic_name) == ends(target_cluster, topic_name)


def test_a_topic_that_the_real_cleaner_compacted_keeps_every_offset(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    cleaning = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "100", "delete_retention_ms": "0"}
    create(source_cluster, topic_name, cleanup_policy="compact", max_compaction_lag_ms="100", **cleaning)
    create(target_cluster, topic_name)
    rng = random.Random(6)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        conf = {"compression.type": codec, "linger.ms": TILL_FLUSH}
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap, **conf})
        for i in range(400):
            value = None if rng.random() < 0.1 else rng.randbytes(30)
            producer.produce(topic_name, value, b"key %d" % rng.randint(0, 300), timestamp=1_600_000_000_000 + i)
        producer.flush()
        time.sleep(0.2)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
    deadline = time.monotonic() + 240
    while len(read(source_cluster, topic_name)) > 1200:
        producer.produce(topic_name, b"tick", b"tick")  # the cleaner takes no active segment; this one rolls it
        producer.flush()
        assert time.monotonic() < deadline, "the cleaner did not come"
        time.sleep(0.5)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name))
    assert result.done, result.error
    assert result.reencoded > 0
    assert result.padded > 0
    seen = read(target_cluster, topic_name)
    # The source's cleaner goes on: every record that it still has stands at the same offset on the target.
    by_offset = {row[0]: row for row in seen}
    here = [row for row in read(source_cluster, topic_name) if row[0] < result.position]
    assert here
    assert all(by_offset[row[0]] == row for row in here)


def test_target_with_foreign_records_is_refused_before_any_write(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write(source_cluster, topic, 50, 7)
    write(target_cluster, topic, 20, 8)
    before = ends(target_cluster, topic)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert result.final
    assert f"{topic}-0 offsets [" in str(result.error)
    assert "Nothing was written" in str(result.error)
    assert ends(target_cluster, topic) == before


def test_surplus_marker_at_target_end_stops_the_copy(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    """It is not taken for a copied record."""
    write_transactions(source_cluster, topic, seed=16, transactions=2)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    with WireCluster(config(target_cluster)) as wire:
        wire.refresh([topic])
        write_txn_markers(wire, TopicPartition(topic, 0), 2**61, 0, 1)
    write(source_cluster, topic, 40, 17)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert result.final
    assert "aborted records, where the source has 1 record(s)" in str(result.error)


def test_a_source_topic_that_was_created_again_stops_the_copy(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write(source_cluster, topic, 90, 9)
    old = ranges_of(source_cluster, topic)
    copy(source_cluster, target_cluster, old)
    with ClusterAdmin(config(source_cluster)) as admin:
        admin.delete_topics([topic], unfenced)
    time.sleep(1)
    create(source_cluster, topic)
    write(source_cluster, topic, 200, 10)
    (planned,) = copy(source_cluster, target_cluster, old)
    assert f"{topic}-0 offsets [0, 90): the source topic was deleted and created again" in str(planned.error)
    (unplanned,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert "differs from the source at offset" in str(unplanned.error)
    assert ends(target_cluster, topic)[0][2] == 90


def test_source_shorter_than_target_stops_the_copy(source_cluster: Cluster, target_cluster: Cluster, topic: str) -> None:
    write(source_cluster, topic, 20, 11)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    write(target_cluster, topic, 7, 12)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert "[20, 27)" in str(result.error)
    assert result.final


def test_records_that_retention_took_before_they_were_copied_are_named(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write(source_cluster, topic, 20, 13)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    write(source_cluster, topic, 80, 14)
    delete_before(source_cluster, topic, 61)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic))
    assert f"{topic}-0 offsets [20, 61): the source deleted" in str(result.error)
    assert ends(target_cluster, topic)[0][2] == 20


def test_record_refused_by_target_stops_only_its_partition(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name, partitions=2)
    create(target_cluster, topic_name, partitions=2, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
    for i in range(10):
        producer.produce(topic_name, b"v", None if i == 6 else b"k", partition=0)
        producer.produce(topic_name, b"v", b"k%d" % i, partition=1)
        producer.flush()
    refused, fine = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name, 2))
    assert (fine.done, fine.position) == (True, 10)
    assert (refused.position, refused.final) == (6, True)
    assert f"{topic_name}-0 offsets [6, 7): the target refuses" in str(refused.error)


def test_uncommitted_records_are_copied_when_asked_for(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    write_transactions(source_cluster, topic, seed=15, transactions=4)
    ranges = ranges_of(source_cluster, topic, committed=False)
    (result,) = copy(source_cluster, target_cluster, ranges, committed_only=False)
    assert result.done
    assert result.records > len(read(source_cluster, topic))
    assert ends(source_cluster, topic) == ends(target_cluster, topic)
