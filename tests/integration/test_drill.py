"""A drill on real brokers: the mirror is killed while producers write, and what that costs is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import is_lease
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.disaster import warm_up, write_canaries
from airflow_mirror.extras.drill.failback import create_again, fail_back
from airflow_mirror.extras.drill.failover import fail_over
from airflow_mirror.extras.drill.reading import Read, patiently, read_to
from airflow_mirror.extras.drill.rehearsal import Fault, kill_tail, recreate_topic, rehearse
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.drill_base import health_of
from sandbox import Cluster
from tests.integration.copying import config, copier_process, create, ends, properties_of, wait_until, write
from tests.integration.test_spark_jobs import end_job, submit

PARTITIONS = 3


def written(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())


def test_drill_counts_what_writers_lose_in_the_disaster(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Writers go on through it; the acknowledged records that the target lacks are lost. Then the source returns."""
    create(source_cluster, topic_name, PARTITIONS)
    create(target_cluster, topic_name, PARTITIONS)
    source, target = config(source_cluster), config(target_cluster)
    follow = [
        CopyRange(source_topic=topic_name, target_topic=topic_name, partition=p, start_offset=0)
        for p in range(PARTITIONS)
    ]
    tail = copier_process(source_cluster, target_cluster, follow, mirror=topic_name)

    def disaster() -> None:
        os.killpg(tail.pid, signal.SIGKILL)
        tail.communicate()
        at = written(source_cluster, topic_name)
        wait_until(lambda: written(source_cluster, topic_name) >= at + 20, "the source is written on")

    try:
        warm_up(source, target, topic_name, timeout_s=240)
        canaries = write_canaries(source, topic_name, topic_name, seconds=3, per_s=50, disaster=disaster)
    finally:
        if tail.poll() is None:
            os.killpg(tail.pid, signal.SIGKILL)
            tail.communicate()
    held = written(target_cluster, topic_name)
    canaries.save(tmp_path / "canaries.json")
    report = fail_over(target, Canaries.load(tmp_path / "canaries.json"), timeout_s=240)
    # All canaries have offsets behind the warm-up's one record a partition; what the target got is what it held then.
    assert report.on_target == held - PARTITIONS
    assert report.lost == report.acknowledged - report.on_target > 10
    assert report.rpo_s > 0
    assert (report.skipped, report.reread) == (0, 0)
    back = fail_back(source, target, Canaries.load(tmp_path / "canaries.json"), topic_name, timeout_s=240)
    # Canaries that nobody waited for any more are surplus too; one record was written on the target meanwhile.
    assert back.surplus >= report.lost and back.records == held + 1
    assert (back.nowhere, back.differing, back.skipped, back.reread) == (0, [], 0, 0)
    assert written(source_cluster, topic_name) == held + 2, "what was copied back, and one written there"
    with ClusterAdmin(source) as admin:
        ids = [one for one in admin.transactional_ids().values() if topic_name in one]
    assert ids and not any(map(is_lease, ids)), "a first mirror onto this source would take its ledger for lost"


def test_canaries_are_written_at_their_rate(source_cluster: Cluster, topic_name: str) -> None:
    """A poll of the producer returns with the first acknowledgement: without a clock, a drill wrote 1,800 for 50."""
    create(source_cluster, topic_name)
    began = time.monotonic()
    canaries = write_canaries(config(source_cluster), topic_name, topic_name, seconds=2, per_s=20, disaster=lambda: None)
    assert 2 <= len(canaries.acked) <= 20 * (time.monotonic() - began) + 1


def test_unread_records_do_not_count_as_skipped(target_cluster: Cluster, topic_name: str) -> None:
    with pytest.raises(ClusterUnreachable, match=rf"did not read 1 partitions .*\({topic_name}-1: 20 of 25\)"):
        read_from(target_cluster, topic_name, [0, 0], {0: 20, 1: 25})


def test_group_without_a_place_is_astray_and_gets_nothing(target_cluster: Cluster, topic_name: str) -> None:
    read = read_from(target_cluster, topic_name, [19, 21], {0: 20, 1: 22})
    assert (read.astray, read.rows) == ({1}, [(0, 19, "canary")])


def read_from(cluster: Cluster, topic: str, places: list[int], to: dict[int, int]) -> Read:
    """Read two partitions of 20 records each with a group that stands at ``places``."""
    create(cluster, topic, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(40):
        producer.produce(topic, key=b"canary", partition=number % 2)
    assert producer.flush(120) == 0
    with ClusterAdmin(config(cluster)) as admin:
        positions = {TopicPartition(topic, p): GroupPosition(offset) for p, offset in enumerate(places)}
        patiently(lambda: admin.commit_group_offsets(topic, positions, unfenced), 60)
    return read_to(config(cluster), topic, topic, dict(enumerate(places)), to, 10)


@contextmanager
def tail_of(source: Cluster, target: Cluster, topic: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A tail that has copied all of a topic, which it copies alone."""
    create(source, topic)
    write(source, topic, 30, 1)
    arguments = ["--include", topic, "--name", topic, "--job-dir", str(directory / "job")]
    tail = submit("streaming_tail.py", *arguments, *properties_of(directory, source, target), log=directory / "log")
    try:
        with ClusterAdmin(config(target)) as admin:
            wait_until(lambda: topic in admin.topics(), "the target has the topic", 300, 0.5)
        wait_until(lambda: ends(target, topic)[0][2] == 30, "all is copied", 300, 0.5)
        yield tail
    finally:
        end_job(tail)


def noticed(target: Cluster, topic: str, *faults: Fault) -> list[dict[str, Any]]:
    mirror = Mirror(name=topic, source="src", target="dst", topics=[topic])
    with ClusterAdmin(config(target)) as admin:
        view = TailView(admin, topic)
        rows = rehearse(faults, lambda: health_of(view, mirror), 300)
    assert None not in [row["noticed_s"] for row in rows], rows
    return rows


@pytest.mark.spark
def test_injected_faults_are_noticed_by_the_mirrors_health(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """A topic that is created again under its tail, and the death of that tail."""
    spec = NewTopicSpec(topic_name, 1, 1)
    with (
        tail_of(source_cluster, target_cluster, topic_name, tmp_path) as tail,
        ClusterAdmin(config(source_cluster)) as source,
    ):
        first, second = noticed(
            target_cluster, topic_name, recreate_topic(topic_name, lambda: create_again(source, spec, 240)),
            kill_tail(lambda: os.killpg(tail.pid, signal.SIGKILL)),
        )  # fmt: skip
    assert f"{topic_name}-0 offsets [0, 30): the source topic" in first["how"]
    assert second["how"].startswith("tail: no sign of life")


@pytest.mark.spark
def test_paused_broker_of_a_sandbox_is_noticed(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """No drill does that to a broker of production, whose other topics applications use."""
    pause = Fault(name="pause_broker", inject=lambda: source_cluster.pause(1), shows=lambda one: one.level == "block")
    with tail_of(source_cluster, target_cluster, topic_name, tmp_path):
        try:
            (row,) = noticed(target_cluster, topic_name, pause)
        finally:
            source_cluster.resume(1)
    assert "do not follow" in row["how"], row
