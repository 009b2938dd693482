"""Copies whose offsets change on the way: same records in the same order, and a map that says where each one is."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Assigned

from airflow_mirror.copy.offsets import derive
from airflow_mirror.copy.offsets.map import OffsetMap, Where
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from sandbox import Cluster
from tests.integration.copying import (
    Seen,
    config,
    copier_process,
    copy,
    create,
    ends,
    lose,
    map_keys,
    ranges_of,
    read,
    results_of,
    wait_until,
    write,
    write_transactions,
)

PARTITIONS = 2


@pytest.fixture
def hostile(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> str:
    """Transactions with aborts between records of two codecs, from above offset 0 on; the target holds data already."""
    create(source_cluster, topic_name, PARTITIONS)
    create(target_cluster, topic_name, PARTITIONS)
    for seed, codec in enumerate(("lz4", "none")):
        write(source_cluster, topic_name, 700, seed, codec, partition=seed, **{"batch.size": "9000"})
    with WireCluster(config(source_cluster)) as wire:
        wire.delete_records({r.source: 137 for r in ranges_of(source_cluster, topic_name, PARTITIONS)}, unfenced)
    for seed in range(3):
        write_transactions(source_cluster, topic_name, seed=seed, transactions=8, partitions=PARTITIONS)
        write(source_cluster, topic_name, 50, 9 + seed, "zstd", partition=seed % PARTITIONS)
    write(target_cluster, topic_name, 33, 77, partition=1)
    return topic_name


def mapped(ranges: list[CopyRange]) -> list[CopyRange]:
    return [replace(r, mode="mapped") for r in ranges]


def map_of(source: Cluster, target: Cluster, copy_range: CopyRange, mirror: str) -> OffsetMap:
    with WireCluster(config(source)) as here, WireCluster(config(target)) as there:
        return derive.complete(here, there, copy_range, mirror, READ_COMMITTED, MapStore(mirror)).whole


def assert_mapped(source: Cluster, target: Cluster, copy_range: CopyRange, mirror: str) -> OffsetMap:
    """Every source record is on the target once, in order, where the map says; and the map answers for every offset."""
    known = map_of(source, target, copy_range, mirror)
    here = read(source, copy_range.source.topic, copy_range.source.partition)
    there = {seen[0]: seen for seen in read(target, copy_range.target.topic, copy_range.target.partition)}
    assert sum(known.columns[2]) == len(here)
    for offset, *content in here:
        found = known.to_target(offset)
        assert found.where is Where.RECORD
        assert list(there[found.offset][1:]) == content
        assert known.to_source(found.offset).offset == offset
    positions = [known.to_target(seen[0]).offset for seen in here]
    assert positions == sorted(set(positions))
    assert_every_offset_leads_to_the_next_record(
        known, here, ends(source, copy_range.source.topic, copy_range.source.partition + 1)
    )
    return known


def assert_every_offset_leads_to_the_next_record(
    known: OffsetMap, here: list[Seen], source_ends: dict[int, tuple[int, int, int]]
) -> None:
    start, _, end = list(source_ends.values())[-1]
    offsets = [seen[0] for seen in here]
    at = 0
    for offset in range(start, end):
        while at < len(offsets) and offsets[at] < offset:
            at += 1
        expected = known.to_target(offsets[at]).offset if at < len(offsets) else known.target_end
        assert known.to_target(offset).offset == expected, offset
    assert known.to_target(end) == (known.target_end, Where.END)


def others(cluster: Cluster, topic: str, partition: int, known: OffsetMap) -> int:
    """Count records of the target that the map does not know: they must all have been there before."""
    return len(read(cluster, topic, partition)) - sum(known.columns[2])


def test_topic_with_holes_is_mapped_beside_foreign_records(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    ranges = mapped(ranges_of(source_cluster, hostile, PARTITIONS))
    results = copy(source_cluster, target_cluster, ranges, mirror=hostile)
    assert [(r.error, r.done, r.padded, r.primed) for r in results] == [(None, True, 0, 0)] * PARTITIONS
    for one, foreign in zip(ranges, (0, 33), strict=True):
        known = assert_mapped(source_cluster, target_cluster, one, hostile)
        assert others(target_cluster, hostile, one.partition, known) == foreign
    again = copy(source_cluster, target_cluster, ranges, mirror=hostile)
    assert [(r.error, r.records) for r in again] == [(None, 0)] * PARTITIONS


@pytest.mark.faults
@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_mapped_copy_killed_repeatedly_holds_every_record_once(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str, delivery: str
) -> None:
    rng = random.Random(5)
    ranges = mapped(ranges_of(source_cluster, hostile, PARTITIONS))
    in_transactions = delivery == "transactional"
    here = [read(source_cluster, hostile, p) for p in range(PARTITIONS)]
    # Slowed down so that it can't be over before it is killed.
    slowly = {"transaction_bytes": 9000, "max_bytes_per_second": 20_000} if in_transactions else {}
    seen_half = False

    def moved() -> object:
        if in_transactions:
            return progress(target_cluster, hostile)
        return ends(target_cluster, hostile, PARTITIONS)

    for kill in range(6):
        before = moved()
        process = copier_process(
            source_cluster, target_cluster, ranges, mirror=hostile, wait=False, delivery=delivery,
            **slowly,
        )  # fmt: skip
        wait_until(lambda p=process, b=before: p.poll() is not None or moved() != b, "it moves")
        time.sleep(rng.random() * 0.1)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if in_transactions:
            counts = look(target_cluster, hostile, here)
            seen_half |= any(0 < count < len(rows) for count, rows in zip(counts, here, strict=True))
        if kill == 3:  # the map is a convenience: it can be lost, but for its origin
            lose(target_cluster, {k: p for k, p in map_keys(target_cluster, hostile).items() if "/begin@" not in k})
    assert seen_half or not in_transactions
    options = {"mirror": hostile, "delivery": delivery}
    results = copy(source_cluster, target_cluster, ranges, **options)  # type: ignore[arg-type]
    assert [(r.error, r.done) for r in results] == [(None, True)] * PARTITIONS
    for one, foreign in zip(ranges, (0, 33), strict=True):
        known = assert_mapped(source_cluster, target_cluster, one, hostile)
        assert others(target_cluster, hostile, one.partition, known) == foreign


def look(target: Cluster, topic: str, here: list[list[Seen]]) -> list[int]:
    """What a reader of the target gets is what its progress says, transaction or not; return how many records that are.

    For copiers that are gone: only a commit that a broker has begun may still change either.
    """

    def sides() -> tuple[list[list[Seen]], list[list[Seen]]]:
        there = [read(target, topic, p)[foreign:] for p, foreign in enumerate((0, 33))]
        below = zip(here, progress(target, topic), strict=True)
        return [[r[1:] for r in rows] for rows in there], [[r[1:] for r in rows if r[0] < end] for rows, end in below]

    def agree() -> bool:
        visible, promised = sides()
        return visible == promised

    wait_until(agree, "what is visible is what the progress says")
    return [len(rows) for rows in sides()[0]]


def progress(target: Cluster, mirror: str) -> list[int]:
    """Return the source offsets up to which transactions are committed; what an open one will commit is not awaited."""
    conf = {"group.id": f"airflow-mirror:{mirror}:progress", "isolation.level": "read_uncommitted"}
    group = Consumer({"bootstrap.servers": target.bootstrap, **conf})
    committed: list[Assigned] = []

    def answered() -> bool:
        with suppress(KafkaException):  # the first to ask may find a coordinator that is not ready
            committed[:] = group.committed([Assigned(mirror, p) for p in range(PARTITIONS)], timeout=10)
        return bool(committed) and not any(c.error for c in committed)

    wait_until(answered, "the coordinator answers")
    group.close()
    return [c.offset for c in committed]


def test_lost_maps_are_made_again_from_both_logs(source_cluster: Cluster, target_cluster: Cluster, hostile: str) -> None:
    ranges = mapped(ranges_of(source_cluster, hostile, PARTITIONS))
    copy(source_cluster, target_cluster, ranges, mirror=hostile)
    before = [assert_mapped(source_cluster, target_cluster, r, hostile) for r in ranges]
    lose(target_cluster, map_keys(target_cluster, hostile))
    write(source_cluster, hostile, 20, 3)
    ranges = mapped(ranges_of(source_cluster, hostile, PARTITIONS))
    results = copy(source_cluster, target_cluster, ranges, mirror=hostile)
    assert [(r.error, r.records) for r in results] == [(None, 20), (None, 0)]
    after = [assert_mapped(source_cluster, target_cluster, r, hostile) for r in ranges]
    assert [list(m.segments())[0] for m in before] == [list(m.segments())[0] for m in after]


def test_transactional_copy_commits_records_with_their_progress(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    """No transaction stays open at the end."""
    ranges = mapped(ranges_of(source_cluster, hostile, PARTITIONS))
    options = {"mirror": hostile, "delivery": "transactional"}
    results = copy(source_cluster, target_cluster, ranges, **options)  # type: ignore[arg-type]
    assert [(r.error, r.done, r.position) for r in results] == [(None, True, r.end_offset) for r in ranges]
    for one in ranges:
        assert_mapped(source_cluster, target_cluster, one, hostile)
    assert progress(target_cluster, hostile) == [r.end_offset for r in ranges]
    starts, stable, log_ends = zip(*ends(target_cluster, hostile, PARTITIONS).values(), strict=True)
    assert stable == log_ends, starts


@pytest.mark.faults
def test_a_frozen_transactional_copier_that_thaws_commits_nothing(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    ranges = mapped(ranges_of(source_cluster, hostile, PARTITIONS))
    options = {"mirror": hostile, "delivery": "transactional"}
    before = ends(target_cluster, hostile, PARTITIONS)
    first = copier_process(source_cluster, target_cluster, ranges, wait=False, **options)  # type: ignore[arg-type]
    wait_until(lambda: ends(target_cluster, hostile, PARTITIONS) != before, "the first copier moves")
    os.killpg(first.pid, signal.SIGSTOP)
    try:
        second = copier_process(source_cluster, target_cluster, ranges, wait=True, **options)  # type: ignore[arg-type]
        assert [r.error for r in results_of(second)] == [None] * PARTITIONS
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    results_of(first)
    for one, foreign in zip(ranges, (0, 33), strict=True):
        known = assert_mapped(source_cluster, target_cluster, one, hostile)
        assert others(target_cluster, hostile, one.partition, known) == foreign


def test_keyed_records_go_where_javas_producer_puts_them(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """They keep their order, and a killed copier neither loses nor doubles any."""
    create(source_cluster, topic_name, PARTITIONS)
    create(target_cluster, topic_name, 3)
    for partition in range(PARTITIONS):
        write(source_cluster, topic_name, 400, partition, "zstd", partition=partition)
    write_transactions(source_cluster, topic_name, seed=4, transactions=4, partitions=PARTITIONS)
    whole = ranges_of(source_cluster, topic_name, PARTITIONS)
    ranges = [replace(r, mode="mapped", target_partition=t, key_partitions=3) for r in whole for t in range(3)]
    for _ in range(2):  # killed once on the way
        process = copier_process(source_cluster, target_cluster, ranges, mirror=topic_name, wait=False)
        wait_until(lambda: any(end for _, _, end in ends(target_cluster, topic_name, 3).values()), "it moves")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    results = copy(source_cluster, target_cluster, ranges, mirror=topic_name)
    assert [r.error for r in results] == [None] * 6
    for partition, there in ((p, read(target_cluster, topic_name, p)) for p in range(3)):
        for source_partition in range(PARTITIONS):
            here = [s[1:] for s in read(source_cluster, topic_name, source_partition)]
            expected = [s for s in here if place_of(s[1], source_partition) == partition]
            assert [s[1:] for s in there if s[1:] in expected] == expected
    total = sum(len(read(source_cluster, topic_name, p)) for p in range(PARTITIONS))
    assert sum(len(read(target_cluster, topic_name, p)) for p in range(3)) == total


def place_of(key: bytes | None, source_partition: int) -> int:
    """Say where Java's producer would put a key among three partitions, by another implementation than the engine's."""
    from kafka.partitioner.default import murmur2

    return source_partition % 3 if key is None else (int(murmur2(key)) & 0x7FFFFFFF) % 3
