"""What partitions weigh, asked of real brokers: sizes where that is allowed, samples where it is not."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.driver.weights import OPENING, bytes_to_copy
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.builders import rule
from tests.integration.copying import config, copy, create, ranges_of, wait_until, write, write_transactions

PARTITIONS = 5


@pytest.fixture
def uneven(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> str:
    """Few large records on 0, many small ones on 1, transactions, one record alone, nothing: offsets say little."""
    fill_unevenly(source_cluster, topic_name)
    create(target_cluster, topic_name, PARTITIONS)
    return topic_name


def fill_unevenly(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, PARTITIONS)
    write(cluster, topic, 3000, 1, partition=0)
    write(cluster, topic, 5000, 2, "zstd", partition=1, **{"batch.size": "4000"})
    write_transactions(cluster, topic, 3, 12, partitions=3)
    write(cluster, topic, 1, 4, partition=3)


def weigh(source: Cluster, target: Cluster, ranges: list[CopyRange]) -> dict[int, int]:
    with WireCluster(config(source)) as here, WireCluster(config(target)) as there:
        found: Mapping[TopicPartition, int] = bytes_to_copy(here, there, ranges)
    return {tp.partition: weight - OPENING for tp, weight in found.items()}


def on_disk(cluster: Cluster, topic: str) -> dict[int, int]:
    folder = cluster.directory / "node-1" / "data"
    return {p: sum(f.stat().st_size for f in (folder / f"{topic}-{p}").glob("*.log")) for p in range(PARTITIONS)}


def test_weights_are_the_bytes_of_the_logs(source_cluster: Cluster, target_cluster: Cluster, uneven: str) -> None:
    ranges = ranges_of(source_cluster, uneven, PARTITIONS)
    assert weigh(source_cluster, target_cluster, ranges) == pytest.approx(on_disk(source_cluster, uneven), abs=2)


def test_what_was_copied_before_weighs_nothing(source_cluster: Cluster, target_cluster: Cluster, uneven: str) -> None:
    ranges = ranges_of(source_cluster, uneven, PARTITIONS)
    copy(source_cluster, target_cluster, ranges[:1], mirror=uneven)
    write(source_cluster, uneven, 1000, 5, partition=1)
    weights = weigh(source_cluster, target_cluster, ranges_of(source_cluster, uneven, PARTITIONS))
    assert weights[0] == 0
    assert weights[1] == pytest.approx(on_disk(source_cluster, uneven)[1], abs=2)


@pytest.mark.faults
def test_without_the_right_to_ask_samples_tell_large_from_small(
    target_cluster: Cluster, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster("guarded", authorizer=True, ready_timeout_s=180) as guarded:
        fill_unevenly(guarded, topic_name)
        denied = rule("kafka-cluster", "DESCRIBE", "DENY", "User:ANONYMOUS", kind="CLUSTER")
        with ClusterAdmin(ClientConfig(guarded.admin_properties(), "source")) as root:
            root.create_acls([denied], unfenced)
            wait_until(lambda: root.describe_acls() == [denied], "the broker has heard of the ACL")
        create(target_cluster, topic_name, PARTITIONS)
        with caplog.at_level(logging.INFO):
            weights = weigh(guarded, target_cluster, ranges_of(guarded, topic_name, PARTITIONS))
        real = on_disk(guarded, topic_name)
    (said,) = [r.getMessage() for r in caplog.records if "estimated from samples" in r.getMessage()]
    assert "DescribeLogDirs" in said and "User:ANONYMOUS lacks Describe on cluster" in said
    assert weights[4] == 0
    assert weights[0] == pytest.approx(real[0], rel=0.5) and weights[1] == pytest.approx(real[1], rel=0.5)
    assert weights[0] / 3000 > weights[1] / 5000 and weights[1] > 5 * weights[2]  # not by offsets
