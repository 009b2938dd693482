"""What comes too late, and what is still under way: neither may be taken for what is awaited now."""

from __future__ import annotations

import threading
import time

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.fetch_lane import Kind
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, ends, ranges_of
from tests.driven.protocol import API_VERSIONS
from tests.driven.script import WAIT_S, Fault

TP = TopicPartition("t", 0)


def test_fetch_answer_from_before_a_failure_is_discarded(source: DrivenCluster, target: DrivenCluster) -> None:
    """It begins behind what was lost: what it lacks would be taken for a hole."""
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    Writer(log).plain(5)
    late = source.script.on("Fetch", Fault(hold=True), when=lambda r: r.message.topics[0].partitions[0].fetch_offset == 5)
    refusal = Fault(hold=True, effect=False, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused = target.script.on("Produce", refusal)
    with Following(source, target, ranges_of(source, "t")) as following:
        (p,) = following.loop.partitions
        refused.wait()
        late.wait()
        with source.changing():
            Writer(log).plain(5)
        again = source.script.on("Fetch", Fault(hold=True))
        refused.release()
        again.wait()
        assert p.failures == 1 and p.state is State.READY
        late.release()
        following.until(lambda: not following.loop._in._lanes[1, Kind.TAIL].busy, "the late answer is there")
        again.release()
        following.until(lambda: ends(target) == [10], "all is copied")
        assert p.counters.padded == 0
    assert target.topics["t"].logs[0].rows() == log.rows()


def test_partition_is_not_opened_while_it_is_padded(source: DrivenCluster, target: DrivenCluster) -> None:
    """What opening would read of the target's end is about to change."""
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    Writer(log).plain(2)
    Writer(log).skip(5)
    Writer(log).plain(2)
    padding = target.script.on("EndTxn", Fault(hold=True))
    with Following(source, target, ranges_of(source, "t")) as following:
        (p,) = following.loop.partitions
        padding.wait()
        refused = source.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        refused.wait()
        following.until(lambda: p.state is State.WAITING, "it failed")
        asked = len(target.asked("DescribeProducers"))
        for _ in range(30):
            seen = len(source.requests)
            following.until(lambda: p.state is State.WAITING, "it waits")
            time.sleep(0.005)
            assert seen <= len(source.requests)
        assert len(target.asked("DescribeProducers")) == asked
        padding.release()
        following.until(lambda: ends(target) == [9], "it goes on")
    assert target.topics["t"].logs[0].rows() == log.rows()


def test_the_end_awaits_what_is_under_way(source: DrivenCluster, target: DrivenCluster) -> None:
    """What is reported of a copy that was told to stop is what is on the target."""
    for cluster in (source, target):
        cluster.create("t")
    Writer(source.topics["t"].logs[0]).plain(10)
    sent = target.script.on("Produce", Fault(hold=True))
    later = threading.Timer(0.3, sent.release)

    def should_stop() -> bool:
        if sent.arrived.is_set() and not later.is_alive():
            later.start()
        return sent.arrived.is_set()

    (p,) = copy(source, target, ranges_of(source, "t"), should_stop=should_stop)
    later.join()
    assert (p.position, p.counters.records, ends(target)) == (10, 10, [10])


@pytest.mark.parametrize("comes_up", [True, False])
def test_records_waiting_for_the_old_leader_go_to_the_new(comes_up: bool) -> None:
    with DrivenCluster("source") as source, DrivenCluster("target", brokers=2) as target:
        for cluster in (source, target):
            cluster.create("t")
        log, old = source.topics["t"].logs[0], target.brokers[1]
        with Following(source, target, ranges_of(source, "t")) as following:
            (p,) = following.loop.partitions
            following.until(lambda: p.state is State.READY, "it is open")
            old.deaf_to = {API_VERSIONS}
            with source.changing():
                Writer(log).plain(5)
            assert old.deaf.wait(WAIT_S)
            target.move_leader(TP, 2)
            source.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)).wait()
            following.until(lambda: p.target_leader.node_id == 2 and p.queued_bytes > 0, "it was opened again")
            with target.changing():
                old.deaf_to = set()
                if not comes_up:
                    old.disconnect()
            following.until(lambda: ends(target) == [5], "it is written")
        assert target.topics["t"].logs[0].rows() == log.rows()
        assert {request.broker for request in target.asked("Produce")} == {2}


def shared_by_two() -> list[CopyRange]:
    """Two ranges of one source partition, each with the keys of one target partition."""
    return [
        CopyRange(
            source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=60, mode=MAPPED,
            target_partition=number, key_partitions=2,
        )
        for number in range(2)
    ]  # fmt: skip


def test_ranges_of_one_source_partition_get_their_records_each(source: DrivenCluster, target: DrivenCluster) -> None:
    """A request asks for a partition once, so they take turns."""
    log = source.create("t").logs[0]
    target.create("t", 2)
    for _ in range(6):
        Writer(log).plain(10)
    copies = copy(source, target, shared_by_two())
    assert [p.error for p in copies] == [None, None]
    bodies = [row[1:] for one in target.topics["t"].logs for row in one.rows()]
    assert sorted(map(repr, bodies)) == sorted(repr(row[1:]) for row in log.rows())
    assert all(one.end for one in target.topics["t"].logs)


def test_ranges_of_one_source_partition_follow_it_in_turn(source: DrivenCluster, target: DrivenCluster) -> None:
    """While one's long poll waits, the other waits for its turn: also when nothing arrives that would remind of it."""
    log = source.create("t").logs[0]
    target.create("t", 2)
    with Following(source, target, shared_by_two()) as following:
        following.until(lambda: all(p.state is State.READY for p in following.loop.partitions), "both are open")
        polled = len(source.asked("Fetch"))
        following.until(lambda: len(source.asked("Fetch")) > polled + 8, "each had its turns, in vain")
        with source.changing():
            Writer(log).plain(10)
        following.until(lambda: [p.position for p in following.loop.partitions] == [10, 10], "both have read it")
    bodies = [row[1:] for one in target.topics["t"].logs for row in one.rows()]
    assert sorted(map(repr, bodies)) == sorted(repr(row[1:]) for row in log.rows())
