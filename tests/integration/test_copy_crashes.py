"""Death, twins and zombies: whatever happens to copiers, the target is equal in the end and nothing is twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import replace
from functools import partial

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease_watch import LeaseWatch
from airflow_mirror.wire import heart
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import (
    assert_equal,
    config,
    copier_process,
    copy,
    create,
    ends,
    ranges_of,
    results_of,
    wait_until,
    write,
    write_transactions,
)
from tests.integration.raw_batches import stored

pytestmark = pytest.mark.faults

PARTITIONS = 3


@pytest.fixture
def hostile(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> str:
    """A topic with every codec, transactions with aborts (thus holes), and old timestamps, on three partitions.

    In small batches, as most producers send them: who is killed is killed over merged ones.
    """
    create(source_cluster, topic_name, PARTITIONS)
    create(target_cluster, topic_name, PARTITIONS)
    for seed, codec in enumerate(("lz4", "none", "zstd")):
        write(source_cluster, topic_name, 3000, seed, codec, partition=seed, **{"batch.size": "2000"})
        write_transactions(source_cluster, topic_name, seed=seed, transactions=20, partitions=PARTITIONS)
    return topic_name


def moved_or_ended(cluster: Cluster, topic: str, at: int, process: subprocess.Popen[str]) -> bool:
    return copied(cluster, topic) > at or process.poll() is not None


def assert_merged(source: Cluster, target: Cluster, topic: str) -> None:
    """Of each partition, the largest batch on the target has more records than any on the source."""
    for partition in range(PARTITIONS):
        counts = [max(raw.header.record_count for raw in stored(one, topic, partition=partition) if raw.header)
                  for one in (source, target)]  # fmt: skip
        assert counts[1] > 2 * counts[0], (partition, counts)


def copied(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())


def test_copier_killed_again_and_again_leaves_an_equal_target(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    rng = random.Random(1)
    ranges = ranges_of(source_cluster, hostile, PARTITIONS)
    total = sum(r.end_offset or 0 for r in ranges)
    kills = 0
    while kills < 12 and (at := copied(target_cluster, hostile)) < total:
        # The kill proves the end of the killed copier, so the next one need not wait for its lease.
        process = copier_process(source_cluster, target_cluster, ranges, mirror=hostile, wait=False)
        wait_until(partial(moved_or_ended, target_cluster, hostile, at, process), "the copier moves")
        time.sleep(rng.random() * 0.15)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kills += 1
    assert kills >= 3, "the copy was over before it could be killed"
    results = copy(source_cluster, target_cluster, ranges, mirror=hostile)
    assert [r.error for r in results] == [None] * PARTITIONS
    assert_equal(source_cluster, target_cluster, hostile, PARTITIONS)
    if heart.engine is not None:
        assert_merged(source_cluster, target_cluster, hostile)


def test_second_copier_leaves_equal_target_and_first_loses_lease(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    """The first copier's error names the writer lease."""
    ranges = ranges_of(source_cluster, hostile, PARTITIONS)
    endless = [replace(r, end_offset=None) for r in ranges]  # or it could be done before the second one takes the lease
    first = copier_process(source_cluster, target_cluster, endless, mirror=hostile, wait=False)
    try:
        wait_until(lambda: copied(target_cluster, hostile) > 0, "the first copier moves")
        second = copier_process(source_cluster, target_cluster, ranges, mirror=hostile, wait=False)
        loser, winner = results_of(first), results_of(second)
    finally:
        first.kill()
    assert [r.error for r in winner] == [None] * PARTITIONS
    assert len(loser) == PARTITIONS and all("writer lease" in str(r.error) for r in loser)
    assert_equal(source_cluster, target_cluster, hostile, PARTITIONS)


def test_frozen_copier_changes_nothing_after_a_second_took_over(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    ranges = ranges_of(source_cluster, hostile, PARTITIONS)
    endless = [replace(r, end_offset=None) for r in ranges]  # or it could be done before it is frozen
    first = copier_process(source_cluster, target_cluster, endless, mirror=hostile, wait=False)
    wait_until(lambda: copied(target_cluster, hostile) > 0, "the first copier moves")
    os.killpg(first.pid, signal.SIGSTOP)
    try:
        second = copier_process(source_cluster, target_cluster, ranges, mirror=hostile, wait=True)
        assert [r.error for r in results_of(second)] == [None] * PARTITIONS
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    loser = results_of(first)
    assert len(loser) == PARTITIONS and all("writer lease" in str(r.error) for r in loser)
    assert_equal(source_cluster, target_cluster, hostile, PARTITIONS)


def test_released_lease_is_handed_over_without_a_pause(target_cluster: Cluster, topic_name: str) -> None:
    """A held one after it."""
    with WireCluster(config(target_cluster)) as wire:
        first = lease.take(wire, topic_name)
        assert first.wait_s == 0
        lease.release(wire, first)
        second = lease.take(wire, topic_name)
        assert second.wait_s == 0
        third = lease.take(wire, topic_name)
        assert third.wait_s == lease.HANDOVER_S
        lease.release(wire, second)  # not its to give back any more
        assert lease.take(wire, topic_name).wait_s == lease.HANDOVER_S


def test_a_copier_without_the_lease_writes_nothing(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str
) -> None:
    from airflow_mirror.errors import LeaseLost

    with WireCluster(config(target_cluster)) as wire:
        old = lease.take(wire, hostile)
        lease.take(wire, hostile)
    with pytest.raises(LeaseLost, match="epoch 1"):
        LeaseWatch(config(target_cluster), old)
    ranges = ranges_of(source_cluster, hostile, PARTITIONS)
    os.environ["TEST_SOURCE"], os.environ["TEST_TARGET"] = config(source_cluster).dump(), config(target_cluster).dump()
    results = copy_ranges(
        CopyWork(source="env:TEST_SOURCE", target="env:TEST_TARGET", options=CopyOptions(mirror=hostile), lease=old),
        ranges,
    )
    assert all("writer lease" in str(r.error) and r.final and not r.done for r in results)
    assert copied(target_cluster, hostile) == 0
