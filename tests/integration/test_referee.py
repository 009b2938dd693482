"""The last word of the demo must be able to be "no": one damaged record, one missing, one offset off by one."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.clients import Partition, admin, commit_positions, create_topics, delete_records, delete_topic
from demo.faults import KINDS, inflict
from demo.filling import Writer, write_in_batches
from demo.records import hostile
from demo.referee import compare_topics
from demo.traffic import value_of
from sandbox import Cluster

pytestmark = pytest.mark.tools

REPOSITORY = Path(__file__).parents[2]
GROUP = "referee-readers"
RECORDS = 401


def _fill(cluster: Cluster, topic: str) -> None:
    settings = cluster.admin_properties()
    create_topics(admin(settings), [(topic, 3, {"retention.ms": "-1"})])
    for partition in (0, 1):  # the third stays empty
        records = list(hostile(random.Random(f"{partition}"), RECORDS, 1_500_000_000_000, 86_400_000))
        write_in_batches(Writer(settings, "zstd"), topic, partition, records, (1, 90, 7))
    commit_positions(settings, GROUP, {Partition(topic, 0): 17, Partition(topic, 1): 333, Partition(topic, 2): 0})


@pytest.fixture
def topic(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> Iterator[str]:
    """A topic with the same records on both clusters, and a group with the same positions."""
    for cluster in (source_cluster, target_cluster):
        _fill(cluster, topic_name)
    yield topic_name
    for cluster in (source_cluster, target_cluster):
        delete_topic(admin(cluster.admin_properties()), topic_name)


def _referee(source: Cluster, target: Cluster, topic: str, directory: Path) -> tuple[int, str]:
    """Run the referee as a user would; return its exit status and what it printed."""
    command = [sys.executable, "-m", "demo.referee", "--topic", topic, "--group", GROUP]
    for side, cluster in (("source", source), ("target", target)):
        file = directory / f"{side}.properties"
        file.write_text("".join(f"{k}={v}\n" for k, v in cluster.admin_properties().items()), encoding="utf-8")
        command += [f"--{side}", str(file)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_equal_topics_and_groups_are_called_equal(
    source_cluster: Cluster, target_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    status, said = _referee(source_cluster, target_cluster, topic, tmp_path)
    assert status == 0, said
    assert f"{2 * RECORDS}" in said


@pytest.mark.parametrize("kind", KINDS)
def test_single_fault_on_the_target_is_found_and_located(
    kind: str, source_cluster: Cluster, target_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    place = inflict(kind, target_cluster.admin_properties(), topic, [GROUP])
    status, said = _referee(source_cluster, target_cluster, topic, tmp_path)
    assert status == 1, said
    assert place in said
    assert "1 problem(s)" in said, said  # and nothing else is blamed
    assert {"corrupt": "value", "drop": "the target has none", "shift": "now at offset 332"}[kind] in said


def test_topic_that_is_missing_on_the_target_is_named(
    source_cluster: Cluster, target_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    missing = f"{topic}-missing"
    create_topics(admin(source_cluster.admin_properties()), [(missing, 2, {})])
    status, said = _referee(source_cluster, target_cluster, missing, tmp_path)
    assert status == 1
    assert "the source has 2 partitions, the target 0" in said


def test_log_start_that_differs_is_named_with_both_offsets(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    source, target = source_cluster.admin_properties(), target_cluster.admin_properties()
    delete_records(admin(source), {Partition(topic, 1): 95})
    [result] = compare_topics(source, target, [topic])
    starts = [str(d) for d in result.offsets]
    assert starts == [f"{topic}-1 offset 95: the source's log starts here, the target's at 0"]
    assert [str(d) for d in result.differences] == [
        f"{topic}-1 offset 0: the target has a record here, the source has none"
    ]


def test_record_written_twice_after_the_cutover_is_found(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    source, target = source_cluster.admin_properties(), target_cluster.admin_properties()
    promised = [value_of(n) for n in range(5)]
    writer = Writer(target, "lz4")
    for number, value in enumerate(promised):
        writer.producer.produce(topic, value, partition=number % 3)
    writer.flush()
    [result] = compare_topics(source, target, [topic], {topic: promised})
    assert (result.added, result.problems) == (5, [])
    writer.producer.produce(topic, promised[3], partition=2)
    writer.flush()
    [result] = compare_topics(source, target, [topic], {topic: promised})
    assert [d.partition for d in result.differences] == [Partition(topic, 2)]
    [result] = compare_topics(source, target, [topic], {topic: [*promised, promised[3], value_of(9)]})
    assert "1 records written after the cutover are gone" in result.problems[0]


def test_record_beyond_the_source_log_end_is_found(source_cluster: Cluster, target_cluster: Cluster, topic: str) -> None:
    writer = Writer(target_cluster.admin_properties())
    writer.producer.produce(topic, b"foreign", partition=2)
    writer.flush()
    [result] = compare_topics(source_cluster.admin_properties(), target_cluster.admin_properties(), [topic])
    assert result.problems == [f"topic {topic}-2 offset 0: the source's log ends here, the target's at 1"]
