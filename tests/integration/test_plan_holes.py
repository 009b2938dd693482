"""Holes as real brokers leave them, estimated by the plan and counted by the copy."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build, holes
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.model import HoleEstimate
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config, copy, create, ranges_of, read, write, write_transactions


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan leaves out what is not answered within seconds; here a slow machine must not change an estimate."""
    monkeypatch.setattr(holes, "_PATIENCE_S", 300.0)
    monkeypatch.setattr(holes, "WireCluster", lambda *args, **kw: WireCluster(*args, **kw | {"timeout_s": 90.0}))


def planned(mirror: Mirror, source: Cluster, target: Cluster) -> Plan:
    with ClusterAdmin(config(source)) as here, ClusterAdmin(config(target)) as there:
        return build(mirror, here, there, probe_target=False)


def estimate(source: Cluster, target: Cluster, topic: str, **fields: object) -> HoleEstimate:
    mirror = Mirror(name="estimated", source="s", target="t", topics=[topic], groups=["-"], **fields)  # type: ignore[arg-type]
    found = planned(mirror, source, target).topic(topic).holes
    assert found is not None
    return found


def test_holes_of_a_small_topic_are_counted_exactly(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """Markers and aborted records are holes; for read_uncommitted the markers alone are."""
    create(source_cluster, topic_name, partitions=2)
    create(target_cluster, topic_name, partitions=2)
    write_transactions(source_cluster, topic_name, seed=21, partitions=2)
    found = estimate(source_cluster, target_cluster, topic_name)
    results = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name, 2))
    assert found.count == sum(r.padded for r in results) > 0
    everything = sum(r.position for r in results)
    assert found.share == pytest.approx(found.count / everything)
    uncommitted = estimate(source_cluster, target_cluster, topic_name, isolation="read_uncommitted")
    assert 0 < uncommitted.count < found.count  # then only the markers are holes


@pytest.mark.months
def test_holes_of_a_compacted_topic_are_estimated_from_samples(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """The topic is large, and only a part of its offsets is read."""
    cleaning = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "500", "max_compaction_lag_ms": "100"}
    create(source_cluster, topic_name, cleanup_policy="compact", **cleaning)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "linger.ms": 20, "batch.size": 20_000})
    for i in range(60_000):  # the first half is overwritten again and again, the second half never
        key = b"k%d" % (i % 1_000) if i < 30_000 else b"unique %d" % i
        producer.produce(topic_name, b"%032d" % i, key, partition=0)
    producer.flush()
    ticker = Producer({"bootstrap.servers": source_cluster.bootstrap})
    deadline = time.monotonic() + 300
    while len(read(source_cluster, topic_name)) > 34_000:
        ticker.produce(topic_name, b"tick", b"tick", partition=0)  # the cleaner takes no active segment; this rolls it
        ticker.flush()
        assert time.monotonic() < deadline, "the cleaner did not come"
        time.sleep(0.5)
    records = len(read(source_cluster, topic_name))
    found = estimate(source_cluster, target_cluster, topic_name)
    offsets = round(found.count / found.share)
    assert found.sampled < offsets * 0.9
    assert found.count == pytest.approx(offsets - records, rel=0.1)


def test_dense_topic_shows_no_holes_and_empty_one_is_unsampled(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name)
    create(source_cluster, f"{topic_name}-empty")
    write(source_cluster, topic_name, 500, 22, "lz4")
    mirror = Mirror(name="m", source="s", target="t", topics=[f"{topic_name}.*"], groups=["-"])
    plan = planned(mirror, source_cluster, target_cluster)
    dense, empty = plan.topics
    assert dense.holes is not None and dense.holes.count == 0 and dense.holes.sampled > 100
    assert empty.holes is None
    assert "none seen" in render(plan)
