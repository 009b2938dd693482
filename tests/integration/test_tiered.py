"""A source in tiered storage: what brokers have on their disks is a part of it, and the plan counts all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.findings import Finding
from sandbox import Cluster, jars
from sandbox.versions import TOOLS_VERSION
from tests.integration.copying import assert_equal, config, create, flow_of, wait_until
from tests.integration.plain import copy

pytestmark = pytest.mark.versions

RECORDS, BYTES = 8_000, 1_000


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node whose remote store is a directory. Segments go there as soon as they are rolled."""
    store = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rsm.config.dir": str(tmp_path_factory.mktemp("store")),
        "remote.log.manager.task.interval.ms": "500",
    }
    classes = jars.classpath("tiered", version=TOOLS_VERSION)
    with Cluster("tiered", version=TOOLS_VERSION, overrides=store, classes=classes, ready_timeout_s=400) as cluster:
        yield cluster


def disk(source: ClusterAdmin, target: ClusterAdmin, topic: str, free: int, monkeypatch: pytest.MonkeyPatch) -> Finding:
    monkeypatch.setattr(target, "usable_bytes", lambda: {1: free})
    plan = build(Mirror(name="m", source="s", target="t", topics=[topic]), source, target, probe_target=False)
    (finding,) = [f for f in plan.findings if f.check == "disk"]
    return finding


def test_tiered_topic_is_planned_with_all_that_it_holds_and_copied(
    tiered: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tiered, topic_name, remote_storage_enable="true", local_retention_bytes="1", segment_bytes="1048576")
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "batch.size": 60_000, "linger.ms": 20})
    for _ in range(RECORDS):
        producer.produce(topic_name, os.urandom(BYTES), partition=0)
    assert producer.flush(240) == 0
    one = TopicPartition(topic_name, 0)
    with ClusterAdmin(config(tiered)) as source, ClusterAdmin(config(target_cluster)) as target:
        wait_until(
            lambda: source.wire.log_sizes([one])[one] < RECORDS * BYTES // 2, "most of it is in the store", poll_s=0.5
        )
        assert source.wire.log_starts([one])[one] == 0
        assert disk(source, target, topic_name, 2 * RECORDS * BYTES, monkeypatch).level == "pass"
        assert disk(source, target, topic_name, RECORDS * BYTES, monkeypatch).level == "block"  # and headers
    assert copy(*flow_of(tmp_path, tiered, target_cluster, topic_name), "--no-probe", log=tmp_path / "log") == 0
    assert_equal(tiered, target_cluster, topic_name)
