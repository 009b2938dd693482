"""Mapped offsets on real brokers: every offset leads to the right record, whatever happened to copiers and maps.

The judge is a plain consumer on each side. For every offset between a log's start and its end: the first record that a
reader of the target gets from the translated offset on is the copy of the first record that a reader of the source gets.
"""

from __future__ import annotations

import os
import random
import signal
from bisect import bisect_left
from dataclasses import replace
from itertools import count

import pytest
from confluent_kafka import Producer

from airflow_mirror.copy.offsets.map import Where
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import NoOffsetMap
from airflow_mirror.sync.maps import MapSource, mapped_range
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionPair
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import (
    TILL_FLUSH,
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

MIRROR = "mapped"


def mapped(source: Cluster, topic: str, partitions: int) -> list[CopyRange]:
    return [replace(one, mode="mapped") for one in ranges_of(source, topic, partitions)]


def judge(source: Cluster, target: Cluster, topic: str, partition: int, foreign: int = 0) -> int:
    """Translate every offset there is, both ways, and look what a consumer finds there; return how many were tried.

    :param foreign: how many records of somebody else stand before ours on the target.
    """
    here, there = read(source, topic, partition), read(target, topic, partition)[foreign:]
    assert [r[1:] for r in here] == [r[1:] for r in there]
    here_at, there_at = [r[0] for r in here], [r[0] for r in there]
    with WireCluster(config(source)) as left, WireCluster(config(target)) as right:
        one = MapSource(MIRROR, True).open().complete(mapped_range(topic, topic, partition), left, right)
    start, _, end = ends(source, topic, partition + 1)[partition]
    assert (one.source_start, one.source_end) == (start, end)
    for offset in range(start, end + 1):
        found = one.to_target(offset)
        first = bisect_left(here_at, offset)
        assert bisect_left(there_at, found.offset) == first, f"{topic}-{partition} offset {offset}: {found}"
        is_record = first < len(here_at) and here_at[first] == offset
        wanted = Where.RECORD if is_record else Where.END if offset == end else Where.HOLE
        assert found.where is wanted and (first == len(here_at) or found.offset == there_at[first])
    for offset in range(one.target_start, one.target_log_end + 1):
        first = bisect_left(there_at, offset)
        assert bisect_left(here_at, one.to_source(offset).offset) == first, f"target {topic}-{partition} offset {offset}"
    return end + 1 - start


def damage(target: Cluster, topic: str, rng: random.Random) -> str:
    """Lose something of the stored maps."""
    stored = map_keys(target, topic)
    pieces = sorted(key for key in stored if "/begin@" not in key)
    how = rng.choice(["everything", "a piece", "all pieces", "an origin", "nothing"])
    if how == "everything":
        lose(target, stored)
    elif how == "an origin":
        lose(target, {key: stored[key] for key in sorted(stored) if "/begin@" in key and rng.random() < 0.5})
    elif pieces and how == "a piece":
        lost = rng.choice(pieces)
        lose(target, {lost: stored[lost]})
    elif how == "all pieces":
        lose(target, {key: stored[key] for key in pieces})
    return how


@pytest.fixture
def shifted(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> str:
    """Two partitions with holes and old times; those of the target hold somebody else's records already."""
    create(source_cluster, topic_name, 2)
    create(target_cluster, topic_name, 2)
    for partition, foreign in enumerate((3, 11)):
        write(target_cluster, topic_name, foreign, seed=90 + partition, partition=partition)
        write(source_cluster, topic_name, 700, partition, "lz4", partition=partition, **{"batch.size": "6000"})
    write_transactions(source_cluster, topic_name, seed=4, transactions=15, partitions=2)
    return topic_name


@pytest.mark.faults
def test_every_offset_translates_through_holes_kills_and_lost_maps(
    source_cluster: Cluster, target_cluster: Cluster, shifted: str
) -> None:
    """The topic then grows by a partition, which is translated as well."""
    rng, lost = random.Random(8), []
    for turn in range(4):
        write(source_cluster, shifted, 150, 20 + turn, "zstd", partition=turn % 2)
        write_transactions(source_cluster, shifted, seed=30 + turn, transactions=2, partitions=2)
        before = written(target_cluster, shifted)
        process = copier_process(source_cluster, target_cluster, mapped(source_cluster, shifted, 2), MIRROR, wait=False)
        wait_until(lambda: process.poll() is not None or written(target_cluster, shifted) > before, "it copies")  # noqa: B023
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        lost.append(damage(target_cluster, shifted, rng))
    process = copier_process(source_cluster, target_cluster, mapped(source_cluster, shifted, 2), MIRROR)
    assert all(r.done for r in results_of(process))
    tried = judge(source_cluster, target_cluster, shifted, 0, foreign=3)
    tried += judge(source_cluster, target_cluster, shifted, 1, foreign=11)
    assert tried > 2000 and len(set(lost)) > 1

    for cluster in (source_cluster, target_cluster):
        create_partitions(cluster, shifted, 3)
    write_transactions(source_cluster, shifted, seed=77, transactions=5, partitions=3)
    assert all(r.done for r in copy(
        source_cluster, target_cluster, mapped(source_cluster, shifted, 3), MIRROR
    ))  # fmt: skip
    for partition, foreign in enumerate((3, 11, 0)):
        judge(source_cluster, target_cluster, shifted, partition, foreign)


def written(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, 2).values())


def create_partitions(cluster: Cluster, topic: str, count: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_partitions([NewPartitions(topic, count)])[topic].result(240)
    wait_until(lambda: len(client.list_topics(topic, timeout=60).topics[topic].partitions) == count, "it grows")


def test_a_transactional_copy_is_translated_over_its_own_markers(
    source_cluster: Cluster, target_cluster: Cluster, shifted: str
) -> None:
    ranges = mapped(source_cluster, shifted, 2)
    options = {"delivery": "transactional"}
    for until in (200, 500, None):
        cut = [replace(r, end_offset=min(r.end_offset or 0, until or r.end_offset or 0)) for r in ranges]
        copy(source_cluster, target_cluster, cut, MIRROR, **options)
    judge(source_cluster, target_cluster, shifted, 0, foreign=3)
    judge(source_cluster, target_cluster, shifted, 1, foreign=11)


@pytest.mark.months
def test_every_offset_is_translated_over_what_the_real_cleaner_took(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    cleaning = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "100", "max_compaction_lag_ms": "100"}
    create(source_cluster, topic_name, cleanup_policy="compact", **cleaning)
    create(target_cluster, topic_name)
    write(target_cluster, topic_name, 5, seed=90)
    rng, offsets, last = random.Random(9), count(), dict[bytes, int]()
    for codec in ("none", "lz4", "zstd"):
        conf = {"compression.type": codec, "linger.ms": TILL_FLUSH}
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap, **conf})
        for _ in range(300):
            key = b"key %d" % rng.randint(0, 150)
            producer.produce(topic_name, rng.randbytes(20), key, partition=0)
            last[key] = next(offsets)
        assert producer.flush(240) == 0
    ticker = Producer({"bootstrap.servers": source_cluster.bootstrap})

    def cleaned() -> bool:
        # The cleaner takes no active segment; this one rolls it. Under another key each time, so that it takes none.
        ticker.produce(topic_name, b"tick", b"tick %d" % next(offsets), partition=0)
        ticker.flush(240)
        return [row[0] for row in read(source_cluster, topic_name) if row[0] < 900] == sorted(last.values())

    wait_until(cleaned, "the cleaner has taken all that it can", poll_s=0.5)
    ranges = mapped(source_cluster, topic_name, 1)
    (result,) = copy(source_cluster, target_cluster, ranges, MIRROR)
    assert (result.done, result.padded) == (True, 0), result.error
    assert judge(source_cluster, target_cluster, topic_name, 0, foreign=5) > 900


def test_the_comparison_goes_through_the_map_and_names_both_offsets(
    source_cluster: Cluster, target_cluster: Cluster, shifted: str
) -> None:
    copy(source_cluster, target_cluster, mapped(source_cluster, shifted, 2), MIRROR)
    pairs = [PartitionPair(source_topic=shifted, target_topic=shifted, partition=p, mapped=True) for p in range(2)]
    maps = MapSource(MIRROR, True)
    sides = config(source_cluster), config(target_cluster)
    for level in ("records", "batches", "offsets"):
        verdicts = compare_partitions(pairs, *sides, level, maps=maps)
        assert [v.first_difference for v in verdicts] == [None, None]
        assert level == "offsets" or [v.records for v in verdicts] == [
            len(read(source_cluster, shifted, p)) for p in range(2)
        ]
    # A record more on the source, not copied: the bounds tell. A stranger behind ours on the target does not matter...
    end = ends(source_cluster, shifted, 2)[0][2]
    write(source_cluster, shifted, 1, seed=1)
    (verdict, _) = compare_partitions(pairs, *sides, "records", maps=maps)
    assert verdict.first_difference is not None and (verdict.first_difference.kind, verdict.first_difference.offset) == (
        "end",
        end,
    )
    # ... until a record of ours follows: then it stands between two copies.
    write(target_cluster, shifted, 1, seed=2)
    copy(source_cluster, target_cluster, mapped(source_cluster, shifted, 2), MIRROR)
    (verdict, _) = compare_partitions(pairs, *sides, "records", maps=maps)
    assert verdict.first_difference is not None and verdict.first_difference.kind == "extra"
    assert verdict.first_difference.offset == end
    stranger = verdict.first_difference.target_offset
    assert stranger == read(target_cluster, shifted)[-2][0]


def test_a_partition_that_was_never_copied_has_no_map(
    source_cluster: Cluster, target_cluster: Cluster, shifted: str
) -> None:
    with (
        WireCluster(config(source_cluster)) as left,
        WireCluster(config(target_cluster)) as right,
        pytest.raises(NoOffsetMap),
    ):
        MapSource(MIRROR, True).open().complete(mapped_range(shifted, shifted, 0), left, right)
    (verdict,) = compare_partitions(
        [PartitionPair(source_topic=shifted, target_topic=shifted, partition=0, mapped=True)],
        config(source_cluster),
        config(target_cluster),
        "records",
        maps=MapSource(MIRROR, True),
    )
    assert not verdict.equal
