"""A thousand partitions and a hot one in a single Spark job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from benchmarks.planning import fill
from sandbox import Cluster, clusters
from tests.integration.copying import config, create, properties_of, wait_until
from tests.integration.test_spark_jobs import end_job, submit, summary_of

pytestmark = pytest.mark.faults

TOPICS, PARTITIONS, RECORDS = 100, 10, 2
HOT = TopicPartition("hot", 0)
HOT_RECORDS, HOT_BYTES = 400, 100_000


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Cluster]]:
    """Two clusters of their own: a thousand logs more would weigh on every other test's brokers."""
    with clusters("many-source", "many-target", overrides={"log.index.size.max.bytes": "4096"}) as (source, target):
        fill(source, TOPICS, PARTITIONS, RECORDS)
        create(source, HOT.topic)
        producer = Producer({"bootstrap.servers": source.bootstrap, "batch.size": "1000000"})
        for _ in range(HOT_RECORDS):
            producer.produce(HOT.topic, os.urandom(HOT_BYTES))
        producer.flush()
        yield [source, target]


def test_small_partitions_do_not_wait_for_the_hot_one(pair: list[Cluster], tmp_path: Path) -> None:
    """One job copies a thousand small partitions and a hot one at a limited rate."""
    source, target = pair
    small = [TopicPartition(f"t{number:05}", p) for number in range(TOPICS) for p in range(PARTITIONS)]
    arguments = [*properties_of(tmp_path, source, target), "--include", ".*"]
    # Each of the two tasks has half of the rate, so that the hot partition alone takes 80 s.
    rate = HOT_RECORDS * HOT_BYTES // 40
    job = submit("bulk_copy.py", *arguments, f"--max-bytes-per-second={rate}", log=tmp_path / "log")
    try:
        with ClusterAdmin(config(target)) as admin:

            def end(tps: list[TopicPartition]) -> int:
                assert job.poll() is None, (tmp_path / "log").read_text()[-3000:]
                # The job creates them. To ask for the ends of unknown topics takes half a minute, the hot one's time.
                if len(admin.topics(names := {tp.topic for tp in tps})) < len(names):
                    return 0
                return sum(admin.wire.log_ends(tps).values())

            wait_until(lambda: end(small) == len(small) * RECORDS, "the small ones are there", 600, 0.2)
            assert 0 < end([HOT]) < HOT_RECORDS
        assert job.wait(600) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        end_job(job)
    summary = summary_of(tmp_path / "log")
    assert summary["partitions"] == len(small) + 1 and summary["errors"] == []
    assert summary["records"] == len(small) * RECORDS + HOT_RECORDS
