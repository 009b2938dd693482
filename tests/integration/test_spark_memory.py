"""Ordinary data, many partitions, several of them in one task: a bulk copy on Spark comes to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sandbox import Cluster, clusters
from tests.integration.copying import create, ends, properties_of, read, wait_until
from tests.integration.test_spark_jobs import end_job, submit, summary_of

pytestmark = pytest.mark.faults

PARTITIONS, BATCH, RECORD = 32, 10, b"v" * 290
LEAST, MOST = 10_000, 80_000  # records of a partition: 3 MB to 24 MB
STILL = "no partition has advanced"


@pytest.fixture
def pair() -> Iterator[list[Cluster]]:
    """Clusters of their own: it is much for those that all others share."""
    with clusters("memory-source", "memory-target") as (source, target):
        yield [source, target]


def fill(source: Cluster, topic: str) -> int:
    """Write partitions of growing size, in batches of 3 KB; return the number of records."""
    create(source, topic, PARTITIONS)
    small = {"batch.num.messages": BATCH, "queue.buffering.max.messages": 1_000_000, "message.timeout.ms": 600_000}
    producer, total = Producer({"bootstrap.servers": source.bootstrap, **small}), 0
    for partition in range(PARTITIONS):
        count = LEAST + (MOST - LEAST) * partition // (PARTITIONS - 1)
        for number in range(count):
            producer.produce(topic, RECORD, b"%d" % number, partition)
        assert producer.flush(240) == 0
        total += count
    return total


def test_partitions_that_have_ended_leave_their_memory_to_the_others(
    pair: list[Cluster], topic_name: str, tmp_path: Path
) -> None:
    """With half of it copied it stood still for ever: who had ended kept what had been fetched."""
    source, target = pair
    total, log = fill(source, topic_name), tmp_path / "log"
    job = submit("bulk_copy.py", *properties_of(tmp_path, source, target), "--include", topic_name, log=log)
    try:
        wait_until(lambda: job.poll() is not None or STILL in log.read_text(), "the copy ends", 600, 0.5)
        assert job.poll() == 0, log.read_text()[-3000:]
    finally:
        end_job(job)
    summary = summary_of(log)
    assert (summary["partitions"], summary["records"], summary["errors"]) == (PARTITIONS, total, [])
    assert ends(source, topic_name, PARTITIONS) == ends(target, topic_name, PARTITIONS)
    for partition in (0, PARTITIONS // 3, PARTITIONS - 1):  # to read all of them twice takes a minute
        assert read(source, topic_name, partition) == read(target, topic_name, partition)
