"""A drill on real brokers: the mirror is killed while producers write, and what that costs is measured."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.drill.canaries import Canaries
from airflow_mirror.drill.disaster import warm_up, write_canaries
from airflow_mirror.drill.failback import create_again, fail_back
from airflow_mirror.drill.failover import fail_over
from airflow_mirror.drill.rehearsal import kill_tail, recreate_topic, rehearse
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.drill import health_of
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


def test_injected_faults_are_noticed_by_the_mirrors_health(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """A topic that is created again under a tail that copies it alone, and the death of that tail."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 30, 1)
    arguments = ["--include", topic_name, "--name", topic_name, "--job-dir", str(tmp_path / "job")]
    arguments += properties_of(tmp_path, source_cluster, target_cluster)
    tail = submit("streaming_tail.py", *arguments, log=tmp_path / "log")
    mirror = Mirror(name=topic_name, source="src", target="dst", topics=[topic_name])
    spec = NewTopicSpec(topic_name, 1, 1)
    try:
        with ClusterAdmin(config(source_cluster)) as source, ClusterAdmin(config(target_cluster)) as target:
            wait_until(lambda: topic_name in target.topics(), "the target has the topic", 300, 0.5)
            wait_until(lambda: ends(target_cluster, topic_name)[0][2] == 30, "all is copied", 300, 0.5)
            view = TailView(target, topic_name)
            faults = [
                recreate_topic(topic_name, lambda: create_again(source, spec, 240)),
                kill_tail(lambda: os.killpg(tail.pid, signal.SIGKILL)),
            ]
            first, second = rehearse(faults, lambda: health_of(view, mirror), 300)
    finally:
        end_job(tail)
    assert f"{topic_name}-0 offsets [0, 30): the source topic" in first["how"], first
    assert second["how"].startswith("tail: no sign of life"), second
    assert first["noticed_s"] > 0 and second["noticed_s"] > 0
