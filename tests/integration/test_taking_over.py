"""A mirror goes on where an older tool was killed, in the topics that the tool has filled: nothing is lost or twice.

The tool here does what the first MirrorMaker and the Go mirror maker do: it reads, writes what it read as records of its
own producer, and commits its consumer group's position now and then. Where it is killed is chosen to the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient

from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from tests.integration.copying import config, create, properties_of, read, write, write_transactions
from tests.integration.test_spark_jobs import summary_of
from tests.integration.warm_jobs import WarmJobs

# What the two sides' records have in common: the offsets differ.
Content = tuple[tuple[int, int], bytes | None, bytes | None, object]


@pytest.fixture
def bulk(
    source_cluster: Cluster, target_cluster: Cluster, warm_jobs: WarmJobs, topic_name: str, tmp_path: Path
) -> Callable[..., str]:
    """Run a bulk copy of the topic that takes over, and return its log."""
    properties = properties_of(tmp_path, source_cluster, target_cluster)

    def run(*arguments: str, status: int = 0) -> str:
        log = tmp_path / "job.log"
        taking_over = ["--include", topic_name, "--name", topic_name, "--no-probe", "--start-group", f"tool-{topic_name}"]
        assert warm_jobs.run("bulk", *properties, *taking_over, *arguments, log=log) == status, log.read_text()[-3000:]
        return log.read_text()

    return run


def content(cluster: Cluster, topic: str, partition: int) -> list[Content]:
    return [(when, key, value, str(headers)) for _, when, key, value, headers in read(cluster, topic, partition)]


def run_tool(
    source: Cluster, target: Cluster, topic: str, written: Mapping[int, int], committed: Mapping[int, int], *,
    start: Mapping[int, int] | None = None, shuffled: int = 0, spread: bool = False,
) -> None:  # fmt: skip
    """Copy records [start, written) of each partition by their number, and commit behind ``committed`` of them.

    :param shuffled: the target partition is that of the source plus this, so that the tool keeps no partition.
    :param spread: records go to all partitions in turn.
    """
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 1})
    positions = []
    for partition, end in written.items():
        records = read(source, topic, partition)
        for n, (_, (_, when), key, value, headers) in enumerate(records[(start or {}).get(partition, 0) : end]):
            place = (n if spread else partition + shuffled) % len(written)
            producer.produce(topic, value, key, place, timestamp=when, headers=headers)
        position = records[committed[partition]][0] if committed[partition] < len(records) else records[-1][0] + 1
        positions.append(Assigned(topic, partition, position))
    assert producer.flush(60) == 0
    commit(source, f"tool-{topic}", positions)


def commit(cluster: Cluster, group: str, positions: list[Assigned]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    futures = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions)])
    for future in futures.values():
        future.result(60)


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    create(cluster, topic, partitions)
    for partition in range(partitions):
        write(cluster, topic, 137 + 50 * partition, seed=partition + 7, codec="lz4", partition=partition)
    write_transactions(cluster, topic, seed=3, partitions=partitions)


@pytest.mark.faults
def test_nothing_is_lost_or_twice_where_a_tool_was_killed(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, bulk: Callable[..., str], tmp_path: Path
) -> None:
    """It had begun again twice: some records are there twice before anybody took over, and no others afterwards."""
    fill(source_cluster, topic_name, 3)
    create(target_cluster, topic_name, 3)
    run_tool(source_cluster, target_cluster, topic_name, {0: 90, 1: 120, 2: 40}, {0: 50, 1: 120, 2: 0})
    run_tool(
        source_cluster,
        target_cluster,
        topic_name,
        {0: 70, 1: 120, 2: 0},
        {0: 50, 1: 120, 2: 0},
        start={0: 50, 1: 120, 2: 0},
    )
    assert "40 records behind the position" in bulk()
    assert bulk() and summary_of(tmp_path / "job.log")["records"] == 0  # a second run goes on where the first ended
    write(source_cluster, topic_name, 21, seed=99, partition=1)
    bulk()
    assert summary_of(tmp_path / "job.log")["records"] == 21
    for partition in range(3):
        original = content(source_cluster, topic_name, partition)
        copied = content(target_cluster, topic_name, partition)
        twice = original[50:70] if partition == 0 else []
        assert Counter(copied) == Counter(original) + Counter(twice)
        behind = {0: 90, 1: 120, 2: 40}[partition]
        assert copied[-len(original[behind:]) :] == original[behind:]


@pytest.mark.parity
@pytest.mark.parametrize("how", [{"shuffled": 1}, {"spread": True}])
def test_copies_are_found_in_whatever_partition_a_tool_has_put_them(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, bulk: Callable[..., str], how: dict[str, Any]
) -> None:
    """Spread, the last committed record of partition 0 is in the one of the same number, and what follows it is not."""
    fill(source_cluster, topic_name, 2)
    create(target_cluster, topic_name, 2)
    run_tool(source_cluster, target_cluster, topic_name, {0: 60, 1: 33}, {0: 31, 1: 33}, **how)
    bulk()
    both = [
        sum((Counter(content(c, topic_name, p)) for p in (0, 1)), Counter()) for c in (source_cluster, target_cluster)
    ]
    assert both[0] == both[1]


@pytest.mark.parity
def test_a_copy_to_a_new_topic_begins_at_the_groups_positions_and_keeps_the_offsets(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, bulk: Callable[..., str]
) -> None:
    """A partition in which the group has no position begins where ``start`` says."""
    fill(source_cluster, topic_name, 2)
    with ClusterAdmin(config(source_cluster)) as admin:
        assert not admin.group_offsets(f"tool-{topic_name}")
    position = read(source_cluster, topic_name, 1)[44][0]
    commit(source_cluster, f"tool-{topic_name}", [Assigned(topic_name, 1, position)])
    bulk()
    assert read(target_cluster, topic_name, 0) == read(source_cluster, topic_name, 0)
    assert read(target_cluster, topic_name, 1) == read(source_cluster, topic_name, 1)[44:]


@pytest.mark.parity
def test_what_is_not_clear_is_refused_before_anything_is_written(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, bulk: Callable[..., str]
) -> None:
    fill(source_cluster, topic_name, 1)
    create(target_cluster, topic_name, 1)
    write(target_cluster, topic_name, 5, seed=1)  # somebody else's, which no search is misled by
    assert "it has no position in any topic that the mirror selects" in bulk(status=2)
    run_tool(source_cluster, target_cluster, topic_name, {0: 60}, {0: 50})
    last = read(source_cluster, topic_name, 0)[80]
    producer = Producer({"bootstrap.servers": target_cluster.bootstrap})
    producer.produce(topic_name, last[3], last[2], 0, timestamp=last[1][1], headers=last[4])
    assert producer.flush(60) == 0
    before = read(target_cluster, topic_name, 0)
    assert "and has 1 that come later" in bulk(status=2)
    consumer = Consumer({"bootstrap.servers": source_cluster.bootstrap, "group.id": f"tool-{topic_name}"})
    consumer.subscribe([topic_name])
    consumer.poll(20)
    try:
        assert "the tool from which the mirror takes over still runs" in bulk(status=2).replace("so the tool", "the tool")
    finally:
        consumer.close()
    assert read(target_cluster, topic_name, 0) == before
