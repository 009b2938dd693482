"""Partitions that rest in a real broker's fetch session: whatever comes is copied, and the session loses it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.fetch_lane import Kind
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from sandbox import Cluster
from tests.integration.copying import config, create, ends, named, ranges_of, read, wait_until, write

pytestmark = pytest.mark.faults

MANY = 110
BUSY = (0, 7, 109)


def test_what_comes_to_partitions_that_rest_is_copied(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name, MANY)
    create(target_cluster, topic_name, MANY)
    for partition in BUSY:
        write(source_cluster, topic_name, 3, partition, partition=partition)
    ranges = [replace(r, end_offset=None) for r in ranges_of(source_cluster, topic_name, MANY)]
    skipped = [0.0]
    loop = CopyLoop(
        named(target_cluster, ranges), Clusters.of(config(source_cluster), config(target_cluster)),
        CopyOptions(mirror=topic_name), lambda: None, clock=lambda: time.monotonic() + skipped[0],
    )  # fmt: skip
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop.is_set,))
    thread.start()

    def rest() -> None:
        skipped[0] += 11.0
        wait_until(lambda: all(p in loop._in._sessions for p in loop.partitions), "all of them rest")
        lanes = [lane for (_, kind), lane in loop._in._lanes.items() if kind is Kind.REST]
        wait_until(lambda: all(lane.session.is_kept for lane in lanes), "the brokers keep their sessions")

    def is_copied() -> bool:
        here, there = (ends(cluster, topic_name, MANY) for cluster in (source_cluster, target_cluster))
        return all(here[p][2] == there[p][2] for p in BUSY)

    try:
        wait_until(is_copied, "what was there is copied")
        rest()
        opened = sum(p.failures for p in loop.partitions)
        for seed in (1, 2):
            for partition in BUSY:
                write(source_cluster, topic_name, 2, seed, partition=partition)
            wait_until(is_copied, "what comes is copied")
            rest()
        # Readers of committed records see these all at once, at an offset that was readable by others before.
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "transactional.id": topic_name})
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            for partition in BUSY:
                producer.produce(topic_name, b"in a transaction", partition=partition)
            producer.flush()
            rest()
            producer.commit_transaction() if commit else producer.abort_transaction()
            wait_until(is_copied, "the transaction's end is copied")
        rest()
        assert sum(p.failures for p in loop.partitions) == opened == 0
        held = {tp for lane in loop._in._lanes.values() if lane.kind is Kind.REST for tp in lane.named}
        assert held == {TopicPartition(topic_name, p) for p in range(MANY)}
    finally:
        stop.set()
        thread.join(60)
    for partition in BUSY:
        assert read(source_cluster, topic_name, partition) == read(target_cluster, topic_name, partition)
