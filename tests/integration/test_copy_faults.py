"""Brokers die, leaders move, the network misbehaves, Spark loses its processes: the copy is equal all the same.

The long version of this is ``make soak``.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import loop as copy_loop
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.target_side import TargetSide
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer import padding
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import LEVELS, PartitionPair
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from sandbox.proxy import FaultProxy
from tests.faults import ProxiedCluster
from tests.integration.copying import (
    HELD_OPEN,
    EncryptedCluster,
    assert_equal,
    config,
    copier_process,
    copy,
    create,
    ends,
    ranges_of,
    read,
    results_of,
    wait_until,
    write,
    write_transactions,
)

pytestmark = pytest.mark.faults


PARTITIONS = 3


@pytest.fixture
def hostile(source_cluster: Cluster, topic_name: str) -> str:
    """Codecs, old timestamps and many transactions, some of them aborted, on the source alone."""
    create(source_cluster, topic_name, PARTITIONS)
    fill_hostile(source_cluster, topic_name)
    return topic_name


def fill_hostile(cluster: Cluster, topic: str) -> None:
    for seed, codec in enumerate(("lz4", "none", "zstd")):
        write(cluster, topic, 1000, seed, codec, partition=seed, **{"batch.size": "20000"})
        write_transactions(cluster, topic, seed=seed, transactions=14, partitions=PARTITIONS)


@contextmanager
def copying(source: Cluster, target: Cluster, topic: str, follow: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Yield a copier process that has begun to write; it does not outlive the block."""
    ranges = ranges_of(source, topic, PARTITIONS)
    process = copier_process(source, target, [replace(r, end_offset=None) for r in ranges] if follow else ranges, topic)
    try:
        wait_until(lambda: copied(target, topic) > 0, "the copier moves")
        yield process
    finally:
        process.kill()
        process.communicate()


def copied(cluster: Cluster, topic: str) -> int:
    try:
        return sum(end for _, _, end in ends(cluster, topic, PARTITIONS).values())
    except Exception:  # while brokers die, and before the job created the topic
        return 0


# --- the engine, while brokers die and leaders move -------------------------------------------------------------------


def elect_preferred(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # the answer needs it to stay alive
    admin.elect_leaders(ElectionType.PREFERRED, None).result(240)


def test_copy_survives_leader_deaths_and_elections_on_both_sides(
    three_nodes: Cluster, source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """Two copies at once: the three nodes are the target of one and the source of the other."""
    there, back = f"{topic_name}-there", f"{topic_name}-back"
    flows = ((source_cluster, three_nodes, there), (three_nodes, target_cluster, back))
    for source, target, topic in flows:
        for cluster in (source, target):
            create(cluster, topic, PARTITIONS, cluster.node_count)
        fill_hostile(source, topic)
    with ExitStack() as stack:
        processes = [stack.enter_context(copying(*flow)) for flow in flows]
        with WireCluster(config(three_nodes)) as wire:
            leader = wire.leader(TopicPartition(there, 0)).node_id
        three_nodes.kill(leader)
        time.sleep(1)
        three_nodes.restart(leader)
        elect_preferred(three_nodes)
        for process, (_, target, topic) in zip(processes, flows, strict=True):
            assert_counted(results_of(process), target, topic)
    for source, target, topic in flows:
        assert_equal(source, target, topic, PARTITIONS)


def test_records_lost_in_an_unclean_election_stop_the_copy(
    three_nodes: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """Also when others have taken their offsets since."""
    short, regrown = 0, 1
    admin = AdminClient({"bootstrap.servers": three_nodes.bootstrap})
    settings = HELD_OPEN | {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    new = NewTopic(topic_name, 2, replica_assignment=[[1, 2], [1, 2]], config=settings)
    admin.create_topics([new])[topic_name].result()
    create(target_cluster, topic_name, 2)

    def stand_at(cluster: Cluster, *expected: int) -> None:
        def seen() -> tuple[int, ...]:
            with suppress(Exception):  # while it has no leader
                return tuple(end for _, _, end in ends(cluster, topic_name, 2).values())
            return ()

        wait_until(lambda: seen() == expected, f"{cluster.name} stands at {expected}")

    for partition in (short, regrown):
        write(three_nodes, topic_name, 100, seed=partition, partition=partition)
    three_nodes.kill(2)  # it does not get what follows, and will lead all the same
    try:
        for partition in (short, regrown):
            write(three_nodes, topic_name, 50, seed=2 + partition, partition=partition)
        stand_at(three_nodes, 150, 150)
        follow = [replace(r, end_offset=None) for r in ranges_of(three_nodes, topic_name, 2)]
        process = copier_process(three_nodes, target_cluster, follow, topic_name)
        try:
            stand_at(target_cluster, 150, 150)
            process.send_signal(signal.SIGSTOP)  # or it would stop before others have taken the offsets
            three_nodes.kill(1)
            three_nodes.restart(2)
            stand_at(three_nodes, 100, 100)
            write(three_nodes, topic_name, 200, seed=9, partition=regrown)
            process.send_signal(signal.SIGCONT)
            errors = {r.partition: str(r.error) for r in results_of(process)}
        finally:
            process.kill()
            process.communicate()
    finally:
        three_nodes.restart(2)
        three_nodes.restart(1)
    for partition in (short, regrown):  # by its leader epoch (KIP-320): it does not matter what is there now
        lost = f"{topic_name}-{partition} offsets [100, 150): the source's new leader"
        assert lost in errors[partition], errors
    assert [end for _, _, end in ends(target_cluster, topic_name, 2).values()] == [150, 150]


@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_restarted_single_node_target_gets_nothing_twice(
    source_cluster: Cluster, proxied: ProxiedCluster, hostile: str, how: str
) -> None:
    create(proxied, hostile, PARTITIONS)
    trim(source_cluster, hostile)
    with copying(source_cluster, proxied, hostile) as process:
        if how == "killed":
            proxied.kill(1)
        proxied.restart(1)
        assert_counted(results_of(process), proxied, hostile)
    assert_equal(source_cluster, proxied, hostile, PARTITIONS)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedCluster]:
    with EncryptedCluster("encrypted", tmp_path_factory.mktemp("tls"), ready_timeout_s=180) as cluster:
        yield cluster


@pytest.mark.parametrize("side", ["source", "target"])
def test_copy_waits_for_a_broker_that_died_under_tls(
    source_cluster: Cluster, target_cluster: Cluster, encrypted: EncryptedCluster, topic_name: str, side: str
) -> None:
    source = encrypted if side == "source" else source_cluster
    target = encrypted if side == "target" else target_cluster
    for cluster in (source, target):
        create(cluster, topic_name, PARTITIONS)
    fill_hostile(source, topic_name)
    with copying(source, target, topic_name, follow=True) as process:
        for seed in range(2):
            wait_until(lambda: copied(target, topic_name) == copied(source, topic_name), "all is copied")
            encrypted.kill(1)  # while long polls, or lease and connections, are all that goes on
            encrypted.restart(1)
            write(source, topic_name, 500, 10 + seed, "lz4", partition=seed)
        wait_until(lambda: copied(target, topic_name) == copied(source, topic_name), "the rest is copied, too")
        assert process.poll() is None
    assert_equal(source, target, topic_name, PARTITIONS)


def assert_counted(results: Sequence[PartitionResult], target: Cluster, topic: str) -> None:
    """Each record is counted once, although answers were lost and batches were sent again."""
    assert [r.error for r in results] == [None] * PARTITIONS
    there = [len(read(target, topic, partition)) for partition in range(PARTITIONS)]
    assert [r.records for r in sorted(results, key=lambda r: r.partition)] == there


def trim(cluster: Cluster, topic: str) -> None:
    """Make the logs start above 0, so that their copies are primed."""
    with WireCluster(config(cluster)) as wire:
        wire.delete_records({TopicPartition(topic, p): 537 for p in range(PARTITIONS)}, unfenced)


def test_idle_target_that_dies_shows_fillers_only_shortly(
    source_cluster: Cluster, proxied: ProxiedCluster, hostile: str
) -> None:
    """It dies while there is nothing to write."""
    create(proxied, hostile, PARTITIONS)
    trim(source_cluster, hostile)

    def starts() -> set[int]:
        return {start for start, _, _ in ends(proxied, hostile, PARTITIONS).values()}

    with copying(source_cluster, proxied, hostile, follow=True) as process:
        wait_until(lambda: copied(proxied, hostile) == copied(source_cluster, hostile), "all is copied", 150)
        assert starts() == {537}
        process.send_signal(signal.SIGSTOP)  # or it would mend that before anybody looks
        proxied.kill(1)
        proxied.restart(1)
        assert starts() == {0}, "the broker remembers by itself now"
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: starts() == {537}, "no filler shows", 60)
    assert_equal(source_cluster, proxied, hostile, PARTITIONS)


def test_fillers_that_a_dying_target_shows_are_found_and_deleted(
    source_cluster: Cluster, proxied: ProxiedCluster, topic_name: str
) -> None:
    """Found by the comparison, deleted by the next copy."""
    create(source_cluster, topic_name)
    create(proxied, topic_name)
    write(source_cluster, topic_name, 1000, 3, "lz4")
    with WireCluster(config(source_cluster)) as wire:
        wire.delete_records({TopicPartition(topic_name, 0): 537}, unfenced)
    ranges, pair = (
        ranges_of(source_cluster, topic_name),
        [PartitionPair(source_topic=topic_name, target_topic=topic_name, partition=0)],
    )
    copy(source_cluster, proxied, ranges, mirror=topic_name)
    assert ends(proxied, topic_name)[0][0] == 537
    proxied.kill(1)
    proxied.restart(1)
    assert ends(proxied, topic_name)[0][0] == 0, "the broker remembers by itself now"
    for level in LEVELS:
        (verdict,) = compare_partitions(pair, config(source_cluster), config(proxied), level)
        assert not verdict.equal and "extra at offset 0" in str(verdict) and "run the copy again" in str(verdict)
    (result,) = copy(source_cluster, proxied, ranges, mirror=topic_name)
    assert (result.done, result.records) == (True, 0)
    (verdict,) = compare_partitions(pair, config(source_cluster), config(proxied))
    assert verdict.equal and verdict.offsets_equal, verdict
    assert_equal(source_cluster, proxied, topic_name)


# --- the network ------------------------------------------------------------------------------------------------------


def cut(proxy: FaultProxy) -> None:
    proxy.cut()


def cut_inside_a_frame(proxy: FaultProxy) -> None:
    proxy.cut_after(5000)


def slow(proxy: FaultProxy) -> None:
    proxy.delay_s, proxy.bytes_per_s = 0.005, 1_000_000


def late(proxy: FaultProxy) -> None:
    proxy.hold()
    time.sleep(0.05)
    proxy.cut_clients()
    time.sleep(0.3)
    proxy.release()


def test_copy_through_repeated_network_faults_ends_equal(
    source_cluster: Cluster, proxied: ProxiedCluster, hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fault strikes twice: while a request is known to be under way, and at any moment between holes and batches."""
    create(proxied, hostile, PARTITIONS)
    proxy, sides, retries, over = proxied.proxy, list[TargetSide](), list[object](), threading.Event()
    retry_later, ended = CopyLoop.retry_later, CopyLoop._ended

    def target_side(*arguments: Any) -> TargetSide:
        sides.append(TargetSide(*arguments))
        return sides[-1]

    def retrying(self: CopyLoop, p: PartitionCopy, cause: Exception | str) -> None:
        retries.append(cause)
        retry_later(self, p, cause)

    def append(seed: int) -> None:
        for partition in range(PARTITIONS):
            write(source_cluster, hostile, 300, seed, "lz4", partition, **{"batch.size": "20000"})

    def await_equal_ends(after: str) -> None:
        wait_until(
            lambda: not runner.is_alive() or copied(proxied, hostile) == copied(source_cluster, hostile), after, 400
        )
        assert runner.is_alive(), f"the copy ended: {retries[-1:]}"

    # Proxy and copier share a busy process: what `late` holds back for a third of a second may well arrive after three.
    monkeypatch.setattr(padding, "_DOUBT_S", 6.0)
    monkeypatch.setattr(copy_loop, "TargetSide", target_side)
    monkeypatch.setattr(CopyLoop, "retry_later", retrying)
    monkeypatch.setattr(CopyLoop, "_ended", lambda self: over.is_set() or ended(self))
    follow = [replace(r, end_offset=None) for r in ranges_of(source_cluster, hostile, PARTITIONS)]
    results: list[PartitionResult] = []
    runner = threading.Thread(target=lambda: results.extend(copy(source_cluster, proxied, follow, mirror=hostile)))
    runner.start()
    try:
        for seed, fault in enumerate((slow, cut, late, cut_inside_a_frame, cut, late)):
            append(10 + seed)  # every connection for batches is there when all of this has arrived
            await_equal_ends(f"all is copied before {fault.__name__}")
            proxy.hold()
            append(20 + seed)
            wait_until(lambda: sides[0].busy, "a request is under way", 300)
            assert copied(proxied, hostile) < copied(source_cluster, hostile)
            before = len(retries)
            fault(proxy)
            proxy.release()
            write_transactions(source_cluster, hostile, seed=seed, transactions=4, partitions=PARTITIONS)
            fault(proxy)
            await_equal_ends(f"all is copied after {fault.__name__}")
            assert fault is slow or len(retries) > before, f"{fault.__name__} did not hit the copy"
    finally:
        proxy.heal()
        over.set()
        runner.join()
    assert_counted(results, proxied, hostile)
    assert_equal(source_cluster, proxied, hostile, PARTITIONS)


# --- Spark ------------------------------------------------------------------------------------------------------------


def test_spark_job_after_lost_worker_and_driver_ends_equal(
    source_cluster: Cluster, target_cluster: Cluster, hostile: str, tmp_path: Path
) -> None:
    """A Python worker is killed and its task tried again; then the driver is killed and the next job finishes."""
    from tests.soak.victims import SparkJob

    create(target_cluster, hostile, PARTITIONS)
    write_transactions(source_cluster, hostile, seed=7, transactions=60, partitions=PARTITIONS)
    port = int(target_cluster.bootstrap.rpartition(":")[2])

    def job(name: str, *extra: str) -> SparkJob:
        (tmp_path / name).mkdir()
        log = tmp_path / name / "log"
        return SparkJob("bulk_copy.py", source_cluster, target_cluster, hostile, log, extra, topics=[hostile])

    first = job("first", "--max-bytes-per-second", "40000")  # or it could be done before it is killed
    orphans = []
    try:
        wait_until(lambda: copied(target_cluster, hostile) > 0 or first.ended, "the job copies", 300)
        worker = first.find("worker", {port})
        assert worker is not None, first.said()
        worker.kill()  # the master is local[2,4]: Spark tries the task again
        at = copied(target_cluster, hostile)
        wait_until(lambda: copied(target_cluster, hostile) > at or first.ended, "another worker goes on", 300)
        assert not first.ended, first.said()
        orphans = first.tree()
        driver = first.find("driver", {port})
        assert driver is not None
        driver.kill()
        assert first.popen.wait(300) != 0
    finally:
        first.kill()
    second = job("second")
    try:
        assert second.popen.wait(600) == 0, second.said()
    finally:
        second.kill()
    assert_equal(source_cluster, target_cluster, hostile, PARTITIONS)
    wait_until(lambda: not any(p.is_running() for p in orphans), "the first job's workers end by themselves", 60)
