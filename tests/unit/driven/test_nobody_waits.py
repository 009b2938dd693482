"""Nothing in the loop waits: what takes its time holds up its own partition, at the moment at which it does most harm."""

from __future__ import annotations

import select
import threading
import time
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import loop
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.fetch_lane import Kind
from airflow_mirror.copy.loop.leaders import Connect
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import LeaseUnconfirmed
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.produce import API_KEY as PRODUCE
from tests.driven import copying
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, map_of, ranges_of
from tests.driven.script import WAIT_S, Fault

SLOW, QUICK = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_silent_broker_during_opening_holds_up_no_other_partition(side: str, api: str) -> None:
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target", brokers=2) as target:
        for cluster in (source, target):
            cluster.create("t", 2)
        for log in source.topics["t"].logs:
            Writer(log).plain(10)
        ranges = ranges_of(source, "t")
        with Following(source, target, ranges) as copy:
            copy.until(lambda: ends(target) == [10, 10], "both are copied")
        held = {"source": source, "target": target}[side]
        by = held.topics["t"].leaders[SLOW.partition]
        gate = held.script.on(api, Fault(hold=True), broker=by, times=None, when=lambda r: r.message.replica_id == -1)
        with Following(source, target, ranges) as copy:
            gate.wait()
            with source.changing():
                for log in source.topics["t"].logs:
                    Writer(log).plain(5)
            copy.until(lambda: ends(target)[QUICK.partition] == 15, "the other one goes on")
            assert ends(target)[SLOW.partition] == 10
            held.script.clear()
            copy.until(lambda: ends(target) == [15, 15], "the slow one comes after")


def test_lagging_follower_holds_up_only_its_own_partition(source: DrivenCluster, target: DrivenCluster) -> None:
    for cluster in (source, target):
        cluster.create("t", 2)
    for log in source.topics["t"].logs:
        Writer(log).plain(10)
    ranges = ranges_of(source, "t")
    with Following(source, target, ranges) as copy:
        copy.until(lambda: ends(target) == [10, 10], "both are copied")
    with target.changing():
        target.topics["t"].logs[SLOW.partition].replicated_to = 7
    with Following(source, target, ranges) as copy:
        with source.changing():
            for log in source.topics["t"].logs:
                Writer(log).plain(5)
        copy.until(lambda: ends(target)[QUICK.partition] == 15, "the other one goes on")
        assert ends(target)[SLOW.partition] == 10
        with target.changing():
            target.topics["t"].logs[SLOW.partition].replicated_to = None
        copy.until(lambda: ends(target) == [15, 15], "its replicas have followed")


def test_a_map_that_is_written_slowly_holds_up_no_record(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mirror.copy.loop import maps

    for cluster in (source, target):
        cluster.create("t", 2)
    for log in source.topics["t"].logs:
        Writer(log).plain(10)
    writing, go_on, append = threading.Event(), threading.Event(), MapStore.append

    def slowly(*of: Any) -> None:
        writing.set()
        assert go_on.wait(WAIT_S)
        append(*of)

    monkeypatch.setattr(MapStore, "append", slowly)
    monkeypatch.setattr(maps, "EVERY_S", 0.0)
    with Following(source, target, ranges_of(source, "t", MAPPED)) as copy:
        copy.until(writing.is_set, "a map is written")
        with source.changing():
            for log in source.topics["t"].logs:
                Writer(log).plain(5)
        copy.until(lambda: ends(target) == [15, 15], "both go on")
        go_on.set()
    found = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert found is not None and found.source_end == 15


def test_ending_copy_waits_for_its_maps_for_a_minute(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes none may hold up each for some seconds; they are derived at the next start."""
    for cluster in (source, target):
        cluster.create("t", 8)
    for log in source.topics["t"].logs:
        Writer(log).plain(3)
    now, append = [0.0], MapStore.append

    def slowly(*of: Any) -> None:
        deadline = time.monotonic() + WAIT_S
        while now[0] > 60 and time.monotonic() < deadline:  # its time is over: it has to be told so
            of[-1]()
            time.sleep(0.001)
        append(*of)
        now[0] += 25

    copying.create_maps(target)
    ranges = ranges_of(source, "t", MAPPED)
    copy = loop.CopyLoop(
        ranges, Clusters.of(source.config, target.config), CopyOptions(mirror="m"), lambda: None, clock=lambda: now[0]
    )  # fmt: skip
    monkeypatch.setattr(MapStore, "append", slowly)
    assert all(p.done for p in copy.run(lambda: False))
    stored = [found for one in ranges if (found := map_of(target, one)) and found.source_end == 3]
    assert len(stored) == 3


def test_frozen_target_broker_does_not_keep_others_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One response brings batches of both partitions; its buffer is held until both are done with it."""
    monkeypatch.setattr(loop, "_MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(loop, "_HOLD_S", 0.01)
    with DrivenCluster("source") as source, DrivenCluster("target", brokers=2) as target:
        for cluster in (source, target):
            cluster.create("t", 2)
        for log in source.topics["t"].logs:
            for _ in range(12):
                Writer(log).plain(10, size=20_000)
        slow = target.topics["t"].leaders[SLOW.partition]
        gate = target.script.on("Produce", Fault(hold=True), broker=slow, times=None)
        with Following(source, target, ranges_of(source, "t")) as copy:
            gate.wait()
            copy.until(lambda: ends(target)[QUICK.partition] == 120, "the other one goes on")
            assert ends(target)[SLOW.partition] == 0
            target.script.clear()
            copy.until(lambda: ends(target) == [120, 120], "the slow one comes after")
        assert [log.rows() for log in target.topics["t"].logs] == [log.rows() for log in source.topics["t"].logs]
        assert [p.counters.records for p in copy.loop.partitions] == [120, 120]


def test_opening_reads_no_more_of_the_source_than_it_compares(source: DrivenCluster, target: DrivenCluster) -> None:
    for cluster in (source, target):
        cluster.create("t")
    for _ in range(3):
        Writer(source.topics["t"].logs[0]).plain(10)
    ranges = ranges_of(source, "t")
    copying.copy(source, target, ranges)
    before = len(source.asked("Fetch"))
    copying.copy(source, target, ranges)
    (compared,) = source.asked("Fetch")[before:]
    assert compared.message.max_bytes <= 1 << 17


def test_arrived_answer_is_read_before_giving_up_its_broker(source: DrivenCluster, target: DrivenCluster) -> None:
    """A turn took longer than any broker may: the answer is there, and everything would be asked anew, for ever."""
    for cluster in (source, target):
        cluster.create("t")
    Writer(source.topics["t"].logs[0]).plain(10)
    now, answered = [1000.0], threading.Event()
    gate = target.script.on("Produce", Fault(hold=True))

    def turn() -> None:
        if gate.arrived.is_set() and not answered.is_set():
            gate.release()
            asked = [lane.connection for lane in copy.loop._out._lanes.values() if lane.sent]
            asked += [lane.connection for lane in copy.loop._in._lanes.values() if lane.busy]
            for connection in asked:
                assert connection is not None
                assert select.select([connection], [], [], WAIT_S)[0], "the answer has arrived"
            answered.set()
            now[0] += 3600

    with Following(source, target, ranges_of(source, "t"), check=turn, clock=lambda: now[0]) as copy:
        copy.until(lambda: copy.loop.partitions[0].position == 10, "it is copied")
        assert answered.is_set()
    assert len(target.asked("Produce")) == 1
    assert [p.failures for p in copy.loop.partitions] == [0]


@pytest.mark.parametrize(("side", "api"), [("source", "Fetch"), ("target", "Produce")])
def test_answer_that_stops_midway_holds_up_no_other_partition(side: str, api: str) -> None:
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target", brokers=2) as target:
        for cluster in (source, target):
            cluster.create("t", 2)
        for log in source.topics["t"].logs:
            Writer(log).plain(10)
        held = {"source": source, "target": target}[side]
        slow = held.brokers[held.topics["t"].leaders[SLOW.partition]]
        stuck = held.script.on(api, Fault.stuck_answer(30), broker=slow.node_id)
        with Following(source, target, ranges_of(source, "t")) as copy:
            stuck.wait()
            for count in (5, 5):
                with source.changing():
                    Writer(source.topics["t"].logs[QUICK.partition]).plain(count)
                end = source.topics["t"].logs[QUICK.partition].end
                copy.until(lambda end=end: ends(target)[QUICK.partition] == end, "the other one goes on")  # type: ignore[misc]
            assert copy.loop.partitions[SLOW.partition].position == 0
            slow.disconnect()
            copy.until(lambda: ends(target) == [10, 20], "the slow one comes after")
        assert [log.rows() for log in target.topics["t"].logs] == [log.rows() for log in source.topics["t"].logs]


def test_a_target_broker_that_reads_nothing_holds_up_no_other() -> None:
    """What it is sent is more than the kernels of both sides take."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target", brokers=2) as target:
        for cluster in (source, target):
            cluster.create("t", 2)
        for log in source.topics["t"].logs:
            for _ in range(8):
                Writer(log).plain(9, size=100_000)
        target.settings = {"socket.send.buffer.bytes": "65536", "socket.timeout.ms": "300000"}
        slow = target.brokers[target.topics["t"].leaders[SLOW.partition]]
        slow.deaf_to = {PRODUCE}
        with Following(source, target, ranges_of(source, "t")) as copy:
            assert slow.deaf.wait(WAIT_S)
            copy.until(lambda: ends(target)[QUICK.partition] == 72, "the other one goes on")
            assert copy.loop.partitions[SLOW.partition].state is State.SENDING
            with target.changing():
                slow.deaf_to = set()
            copy.until(lambda: ends(target) == [72, 72], "the slow one comes after")
            assert [p.failures for p in copy.loop.partitions] == [0, 0]
        assert [log.rows() for log in target.topics["t"].logs] == [log.rows() for log in source.topics["t"].logs]
        assert len(target.asked("Produce")) == 16


def test_without_the_lease_the_rest_of_a_request_stays_here() -> None:
    """What the broker has of it is no request; it comes again once the lease is confirmed."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        for cluster in (source, target):
            cluster.create("t")
        Writer(source.topics["t"].logs[0]).plain(9, size=100_000)
        target.settings = {"socket.send.buffer.bytes": "65536", "socket.timeout.ms": "300000"}
        target.brokers[1].deaf_to = {PRODUCE}
        unconfirmed = threading.Event()

        def check() -> None:
            if unconfirmed.is_set():
                raise LeaseUnconfirmed("id", 1, 9.0, None)

        with Following(source, target, ranges_of(source, "t"), check=check) as copy:
            (p,) = copy.loop.partitions
            assert target.brokers[1].deaf.wait(WAIT_S)
            # A turn later: in the middle of the first call, a broker that listens again gets the rest in it, too.
            copy.until(lambda: any(lane.writing for lane in copy.loop._out._lanes.values()), "a part is left")
            unconfirmed.set()
            with target.changing():
                target.brokers[1].deaf_to = set()
            copy.until(lambda: p.state is State.WAITING, "it is kept back")
            assert ends(target) == [0] and not target.asked("Produce")
            unconfirmed.clear()
            copy.until(lambda: ends(target) == [9], "it is sent again")
            assert p.failures == 0


def test_ending_session_is_replaced_while_copying_goes_on(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login takes as long as a broker likes, and the loop is not the one who waits for it."""
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    Writer(log).plain(5)
    opening, may_open = threading.Event(), threading.Event()
    monkeypatch.setattr(Connection, "_log_in", lambda _: pytest.fail("the loop logs in"))

    with Following(source, target, ranges_of(source, "t")) as copy:
        copy.until(lambda: ends(target) == [5] and (1, Kind.TAIL) in copy.loop._in._lanes, "it is copied, and followed")
        lanes = [copy.loop._in._lanes[1, Kind.TAIL], *copy.loop._out._lanes.values()]
        copy.until(lambda: all(lane.connection for lane in lanes), "all are connected")
        before = [lane.connection for lane in lanes]
        for p in copy.loop.partitions:
            p.source_leader = p.source_leader._replace(connect=_slow(p.source_leader.connect, opening, may_open))
            p.target_leader = p.target_leader._replace(connect=_slow(p.target_leader.connect, opening, may_open))
        for connection in before:
            assert connection is not None
            connection.put_off(0)
        with source.changing():
            Writer(log).plain(5)
        assert opening.wait(WAIT_S)
        copy.until(lambda: ends(target) == [10], "the old sessions are used while new ones are not there")
        may_open.set()
        deadline = time.monotonic() + WAIT_S
        while any(lane.connection in before for lane in lanes):  # a new one is taken when the next request is sent
            assert time.monotonic() < deadline
            with source.changing():
                Writer(log).plain(5)
            copy.until(lambda: ends(target) == [log.end], "it goes on")
            time.sleep(0.01)
        assert copy.loop.partitions[0].failures == 0
    assert source.topics["t"].logs[0].rows() == target.topics["t"].logs[0].rows()


def test_a_lane_whose_session_ended_while_it_rested_is_connected_anew(
    source: DrivenCluster, target: DrivenCluster
) -> None:
    """The broker closes on the next request, and nobody could tell whether its batches are in the log."""
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    Writer(log).plain(5)
    login, may_open = threading.Event(), threading.Event()
    may_open.set()
    with Following(source, target, ranges_of(source, "t")) as copy:
        copy.until(lambda: ends(target) == [5], "it is copied")
        (p,), lanes = copy.loop.partitions, [*copy.loop._out._lanes.values()]
        generation = p.generation
        p.target_leader = p.target_leader._replace(connect=_slow(p.target_leader.connect, login, may_open))
        for lane in lanes:
            if lane.connection is not None:
                lane.connection._renew_at = lane.connection._over_at = 0.0
        closed_on = target.script.on("Produce", Fault.not_arrived(), when=lambda _: not login.is_set())
        with source.changing():
            Writer(log).plain(5)
        copy.until(lambda: ends(target) == [10], "it goes on")
        assert not closed_on.hits and p.generation == generation


def _slow(connect: Connect, opening: threading.Event, may_open: threading.Event) -> Connect:
    def slowly() -> Connection:
        opening.set()
        assert may_open.wait(WAIT_S)
        return connect()

    return slowly


def test_a_session_without_a_successor_is_used_to_its_end(source: DrivenCluster, target: DrivenCluster) -> None:
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    Writer(log).plain(5)
    refused = list[bool]()

    def refuse() -> Connection:
        refused.append(True)
        raise ConnectionLost("target", "nowhere:1", "connect", "refused")

    with Following(source, target, ranges_of(source, "t")) as copy:
        copy.until(lambda: ends(target) == [5], "it is copied")
        (p,) = copy.loop.partitions
        p.target_leader = p.target_leader._replace(connect=refuse)
        for lane in copy.loop._out._lanes.values():
            assert lane.connection is not None
            lane.connection.put_off(0)
        for end in range(10, 40, 5):
            with source.changing():
                Writer(log).plain(5)
            copy.until(lambda end=end: ends(target) == [end], "it goes on")  # type: ignore[misc]
        assert p.failures == 0 and len(refused) == 1, "not again within seconds"
