"""What comes too late, and what is still under way: neither may be taken for what is awaited now."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import target_side
from airflow_mirror.copy.loop.fetch_lane import Kind
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, row
from tests.driven.copying import Following, copy, ends, ranges_of
from tests.driven.protocol import API_VERSIONS
from tests.driven.script import WAIT_S, Fault

TP, MOVES = TopicPartition("t", 0), TopicPartition("t", 1)


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


@pytest.fixture
def two_brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[DrivenCluster]:
    """A target whose broker 1 leads both partitions of a topic, in one lane."""
    monkeypatch.setattr(target_side, "_LANES", 1)
    with DrivenCluster("target", brokers=2) as target:
        target.create("t", 2)
        target.move_leader(MOVES, 1)
        yield target


def append(source: DrivenCluster, tp: TopicPartition) -> None:
    with source.changing():
        Writer(source.log(tp)).plain(5)


def move(source: DrivenCluster, target: DrivenCluster, following: Following) -> None:
    """Give MOVES, which waits in a lane, another leader, and have the copy find out."""
    target.move_leader(MOVES, 2)
    source.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, {MOVES})).wait()
    p = copy_of(following, MOVES)
    following.until(lambda: p.target_leader.node_id == 2 and p.queued_bytes > 0, "it was opened again")


def copy_of(following: Following, tp: TopicPartition) -> PartitionCopy:
    return next(p for p in following.loop.partitions if p.range.source == tp)


def until_queued(following: Following, tp: TopicPartition) -> None:
    p = copy_of(following, tp)
    following.until(lambda: following.loop._out.has(p), "it waits for the lane")


def written_by(target: DrivenCluster, broker: int) -> set[int]:
    """Return the partitions that a broker was asked to write to."""
    asked = [r.message.topic_data for r in target.asked("Produce") if r.broker == broker]
    return {p.index for topics in asked for topic in topics for p in topic.partition_data}


@pytest.mark.parametrize("comes_up", [True, False])
@pytest.mark.parametrize("in_front", [True, False])
def test_records_waiting_for_the_old_leader_go_to_the_new(
    source: DrivenCluster, two_brokers: DrivenCluster, comes_up: bool, in_front: bool
) -> None:
    source.create("t", 2)
    target, old = two_brokers, two_brokers.brokers[1]
    with Following(source, target, ranges_of(source, "t")) as following:
        following.until(lambda: all(p.state is State.READY for p in following.loop.partitions), "they are open")
        old.deaf_to = {API_VERSIONS}
        for tp in (MOVES, TP) if in_front else (TP, MOVES):
            append(source, tp)
            until_queued(following, tp)
        assert old.deaf.wait(WAIT_S)
        move(source, target, following)
        with target.changing():
            old.deaf_to = set()
            if not comes_up:
                old.disconnect()
        following.until(lambda: ends(target) == [5, 5], "both are written")
    assert [log.rows() for log in target.topics["t"].logs] == [log.rows() for log in source.topics["t"].logs]
    assert (written_by(target, 1), written_by(target, 2)) == ({0}, {1})


def test_lane_is_connected_to_its_own_broker_whoever_waits_in_it(
    source: DrivenCluster, two_brokers: DrivenCluster
) -> None:
    """What waits in front may have another leader by the time at which the lane is connected again."""
    source.create("t", 2)
    target = two_brokers
    with Following(source, target, ranges_of(source, "t")) as following:
        following.until(lambda: all(p.state is State.READY for p in following.loop.partitions), "they are open")
        lost = target.script.on("Produce", replace(Fault.not_arrived(), hold=True))
        append(source, TP)
        lost.wait()
        append(source, MOVES)
        until_queued(following, MOVES)
        move(source, target, following)
        target.brokers[1].disconnect()
        lost.release()
        following.until(lambda: ends(target) == [5, 5] or 0 in written_by(target, 2), "both are written")
    assert written_by(target, 2) == {1}


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


def test_range_that_could_take_no_more_gets_its_turn_beside_one_that_has_read_all(
    source: DrivenCluster, target: DrivenCluster
) -> None:
    """Both read one source partition. What the other has got no answer for must not be asked for first each time."""
    log = source.create("t").logs[0]
    target.create("t", 2)

    def produce() -> None:
        with source.changing():
            log.lay(records.encode([row(log.end, 40_000)._replace(key=None)], leader_epoch=log.epoch))

    with Following(source, target, shared_by_two()) as following:
        slow, quick = following.loop.partitions
        following.until(lambda: slow.state is State.READY is quick.state, "both are open")
        held = target.script.on("Produce", Fault(hold=True))
        while slow.takes_more:
            produce()
            following.until(lambda: slow.fetch_offset == log.end == quick.position, "both have it")
        produce()
        following.until(lambda: quick.position == log.end, "one has it")
        held.release()
        following.until(lambda: slow.position == log.end, "both have read it")
    assert [one.end for one in target.topics["t"].logs] == [log.end, 0]


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
