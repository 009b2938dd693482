"""Command lines of the first MirrorMaker, run by itself and then, unchanged, by the tail: the real one of Kafka 3.9.1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.jobs.runner.java import find_java
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster, jars
from tests.integration.copying import config, create, ends, wait_until, write
from tests.integration.test_spark_jobs import driver_of, end_job, stop, submit
from tests.integration.test_taking_over import Content, content

pytestmark = pytest.mark.parity
PARTITIONS = 3


def files(directory: Path, source: str, target: Cluster, group: str) -> list[str]:
    """Write both files, and return the options that name them."""
    consumer, producer = directory / f"{group}.consumer", directory / f"{group}.producer"
    consumer.write_text(f"bootstrap.servers={source}\ngroup.id={group}\nauto.offset.reset=earliest\n")
    producer.write_text(f"bootstrap.servers={target.bootstrap}\nacks=all\n")
    return ["--consumer.config", str(consumer), "--producer.config", str(producer)]


@contextmanager
def mirror_maker(options: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(find_java().executable), "-XX:-UsePerfData", "-cp", jars.classpath("broker", version="3.9.1")]
    with log.open("wb") as out:
        tool = subprocess.Popen(
            [*command, "kafka.tools.MirrorMaker", *options], stdout=out, stderr=subprocess.STDOUT, process_group=0
        )
    try:
        yield tool
    finally:
        tool.kill()
        tool.wait(60)


def count(cluster: Cluster, topic: str) -> int:
    try:
        return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())
    except Exception:  # a tool creates the topic
        return 0


def all_of(cluster: Cluster, topic: str) -> Counter[Content]:
    return sum((Counter(content(cluster, topic, p)) for p in range(PARTITIONS)), Counter())


def fill(cluster: Cluster, topic: str, seed: int, records: int) -> None:
    for partition in range(PARTITIONS):
        write(cluster, topic, records + partition, seed * 10 + partition, "lz4", partition=partition)


def committed(cluster: Cluster, group: str, topic: str) -> int:
    with ClusterAdmin(config(cluster)) as admin:
        positions = admin.group_offsets(group)
    return sum(positions[tp].offset for p in range(PARTITIONS) if (tp := TopicPartition(topic, p)) in positions)


def test_the_command_line_goes_on_where_the_killed_tool_ended(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """It keeps no partition of records without a key, and commits only when it is stopped: nothing is lost or twice."""
    group = f"mm-{topic_name}"
    options = [*files(tmp_path, source_cluster.bootstrap, target_cluster, group), "--num.streams", "2"]
    options += ["--whitelist", topic_name]
    create(source_cluster, topic_name, PARTITIONS)
    create(target_cluster, topic_name, PARTITIONS)
    fill(source_cluster, topic_name, 1, 300)
    with mirror_maker(options, tmp_path / "first.log") as tool:
        wait_until(lambda: count(target_cluster, topic_name) == 903, "the tool copies what was there", 240, 0.5)
        tool.terminate()
        tool.wait(120)
    assert committed(source_cluster, group, topic_name) == 903
    with mirror_maker(options, tmp_path / "second.log") as tool:
        fill(source_cluster, topic_name, 2, 200)
        wait_until(lambda: count(target_cluster, topic_name) == 1506, "the tool copies more", 240, 0.5)
        tool.send_signal(signal.SIGKILL)
        tool.wait(60)
    assert committed(source_cluster, group, topic_name) == 903, "it was killed before its first commit"
    fill(source_cluster, topic_name, 3, 100)
    with ClusterAdmin(config(source_cluster)) as admin:
        wait_until(lambda: admin.group_states([group])[group] == "Empty", "the group has forgotten it", 120, 1)
    log = tmp_path / "tail.log"
    tail = submit("streaming_tail.py", *options, log=log)
    try:
        wait_until(lambda: count(target_cluster, topic_name) >= 1809, "the mirror copies the rest", 300, 0.5)
        fill(source_cluster, topic_name, 4, 10)
        wait_until(lambda: count(target_cluster, topic_name) >= 1842, "and what comes then", 120, 0.5)
        stop(tail, log)
    finally:
        end_job(tail)
    assert all_of(target_cluster, topic_name) == all_of(source_cluster, topic_name)
    said = log.read_text()
    assert "--num.streams: mapped: --tasks, --processes" in said
    assert "records behind the position" in said


def follow(options: list[str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "airflow_mirror.console.main", "follow", *options]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


@pytest.mark.parametrize("program", ["follow", "streaming_tail.py"])
def test_a_source_that_is_dead_stops_only_its_own_partitions(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, program: str
) -> None:
    create(source_cluster, topic_name, PARTITIONS)
    fill(source_cluster, topic_name, 1, 50)
    dead = files(tmp_path, "127.0.0.1:1", target_cluster, f"dead-{topic_name}")[:2]
    alive = files(tmp_path, source_cluster.bootstrap, target_cluster, f"alive-{topic_name}")
    log = tmp_path / "tail.log"
    options = [*dead, *alive, "--whitelist", topic_name, "--prefix", "dc1_"]
    tail = follow(options, log) if program == "follow" else submit("streaming_tail.py", *options, log=log)
    try:
        wait_until(
            lambda: f"dead-{topic_name} begins again" in log.read_text(), "one source is found to be dead", 240, 0.5
        )
        fill(source_cluster, topic_name, 2, 20)
        wait_until(lambda: count(target_cluster, f"dc1_{topic_name}") == 216, "the other one is copied", 300, 0.5)
        os.kill(tail.pid if program == "follow" else driver_of(tail.pid), signal.SIGTERM)
        assert tail.wait(240) == 1, "the dead source is not forgotten"
    finally:
        end_job(tail)
    assert all_of(target_cluster, f"dc1_{topic_name}") == all_of(source_cluster, topic_name)


def test_keys_choose_where_the_target_has_fewer_partitions(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """The literal line of before, onto two partitions from three."""
    create(source_cluster, topic_name, PARTITIONS)
    create(target_cluster, topic_name, 2)
    fill(source_cluster, topic_name, 1, 50)
    options = [*files(tmp_path, source_cluster.bootstrap, target_cluster, f"mm-{topic_name}"), "--whitelist", topic_name]
    log = tmp_path / "tail.log"

    def arrived() -> Counter[Content]:
        return sum((Counter(content(target_cluster, topic_name, p)) for p in range(2)), Counter())

    tail = follow(options, log)
    try:
        wait_until(lambda: arrived().total() == 153, "what was there has arrived", 120, 0.5)
        fill(source_cluster, topic_name, 2, 20)
        wait_until(lambda: arrived().total() == 216, "and what comes", 120, 0.5)
        os.kill(tail.pid, signal.SIGTERM)
        assert tail.wait(120) == 0, log.read_text()
    finally:
        end_job(tail)
    assert arrived() == all_of(source_cluster, topic_name)
    assert "all records are partitioned by key" in log.read_text()
