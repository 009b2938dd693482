"""A mapped copy begins again: what is stored of its map is right, is completed from both logs, or stops the copy."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.offsets.map import OffsetMap, Segment
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.opening import recheck
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import ForeignData, LeaseUnconfirmed, MissingRight, PartitionStopped
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, lose
from tests.driven.copying import Following, copy, errors, lose_maps, map_of, ranges_of
from tests.driven.script import Fault

TP = TopicPartition("t", 0)
OURS = 7001


class World:
    """A source of five records that were copied with a map."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster) -> None:
        self.source, self.target = source, target
        self.here, self.there = source.create("t").logs[0], target.create("t").logs[0]
        self.here_writer = Writer(self.here)
        self.here_writer.plain(5)
        assert self.copy() is None

    def copy(self) -> Exception | None:
        ranges = ranges_of(self.source, "t", MAPPED)
        return errors(copy(self.source, self.target, ranges))[TP]

    def segments(self) -> list[Segment]:
        found = map_of(self.target, ranges_of(self.source, "t", MAPPED)[0])
        assert found is not None
        return list(found.segments())


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster) -> World:
    return World(source, target)


def test_lost_map_is_derived_again_past_foreign_records(world: World) -> None:
    Writer(world.there).plain(3)
    world.here_writer.plain(4)
    assert world.copy() is None
    lose_maps(world.target)
    world.here_writer.plain(2)
    assert world.copy() is None
    assert world.segments() == [Segment(0, 0, 5), Segment(5, 8, 6)]


def test_lost_map_whose_first_record_expired_stops_the_copy(world: World) -> None:
    lose_maps(world.target)
    world.here.begin_at(2)
    world.here_writer.plain(2)
    assert isinstance(world.copy(), ForeignData)
    assert world.there.end == 5


def test_target_that_lost_mapped_records_stops_the_copy(world: World) -> None:
    world.here_writer.plain(4)
    assert world.copy() is None
    world.there.truncate(5)
    assert isinstance(world.copy(), PartitionStopped)
    assert world.there.end == 5


def test_uncopied_records_lost_to_retention_stop_mapped_copy(world: World) -> None:
    world.here_writer.plain(4)
    world.here_writer.plain(4)
    world.here.begin_at(7)
    error = world.copy()
    assert isinstance(error, PartitionStopped) and (error.start_offset, error.end_offset) == (5, 7)


def test_a_map_that_belongs_to_other_records_stops_the_copy(world: World) -> None:
    world.here_writer.plain(2)
    assert world.copy() is None
    world.here.truncate(0)
    Writer(world.here).plain(8, size=33)
    assert isinstance(world.copy(), ForeignData)
    assert world.there.end == 7


@pytest.mark.parametrize(("offset", "is_foreign"), [(5, True), (6, False)])
def test_strangers_record_in_a_source_hole_is_foreign(
    source: DrivenCluster, target: DrivenCluster, offset: int, is_foreign: bool
) -> None:
    """At 5 the source has a hole, at 6 the very record; the stranger's batch holds both, or the last alone."""
    for cluster, skipped in ((source, 1), (target, offset - 5)):
        writer = Writer(cluster.create("t").logs[0])
        writer.plain(5)
        writer.skip(skipped)
        writer.plain(7 - 5 - skipped)
    one = CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=7)
    with WireCluster(source.config) as here, WireCluster(target.config) as there:
        if is_foreign:
            with pytest.raises(ForeignData, match=r"\[5, 7\)"):
                recheck.not_foreign(here, there, one, OURS, 5, 7, READ_COMMITTED)
        else:
            recheck.not_foreign(here, there, one, OURS, 5, 7, READ_COMMITTED)


def test_record_missing_on_target_since_our_write_is_reported(source: DrivenCluster, target: DrivenCluster) -> None:
    Writer(source.create("t").logs[0]).plain(7)
    log = target.create("t").logs[0]
    Writer(log).plain(5)
    log.append_marker(1, 0, commit=True, coordinator_epoch=0)
    Writer(log).plain(1)
    one = CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=7)
    with (
        WireCluster(source.config) as here,
        WireCluster(target.config) as there,
        pytest.raises(ForeignData, match=r"\[5, 7\)"),
    ):
        recheck.not_foreign(here, there, one, OURS, 5, 7, READ_COMMITTED)


ANY_MAP = [TopicPartition(MAPS, p) for p in range(MAP_PARTITIONS)]


def test_without_the_right_to_store_a_map_nothing_is_copied(source: DrivenCluster, target: DrivenCluster) -> None:
    Writer(source.create("t").logs[0]).plain(5)
    target.create("t")
    target.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ANY_MAP), times=None)
    error = errors(copy(source, target, ranges_of(source, "t", MAPPED)))[TP]
    assert isinstance(error, MissingRight) and MAPS in str(error)
    assert target.log(TP).end == 0


def test_map_that_can_not_be_stored_any_more_is_derived_later(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Records go on, because nothing is lost as long as the source has them."""
    world.here_writer.plain(4)
    rule = world.target.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ANY_MAP), times=None)
    assert world.copy() is None
    assert len(rule.hits) > 0 and "is derived at the next start" in caplog.text
    assert world.segments() == [Segment(0, 0, 5)] and world.there.end == 9
    world.target.script.clear()
    assert world.copy() is None
    assert world.segments() == [Segment(0, 0, 9)] and world.there.end == 9


@pytest.mark.parametrize("foreign", [0, 2])
def test_target_topic_created_again_is_copied_from_the_start(world: World, foreign: int) -> None:
    """Its map was of another topic, whoever has written to this one since."""
    log = world.target.create("t").logs[0]
    if foreign:
        Writer(log).plain(foreign)
    assert world.copy() is None
    assert world.segments() == [Segment(0, foreign, 5)] and log.end == 5 + foreign


def test_copies_under_another_name_have_maps_of_their_own(world: World) -> None:
    one = ranges_of(world.source, "t", MAPPED)[0]
    with WireCluster(world.target.config) as there:
        assert MapStore("other").load(there, one) is None


@pytest.mark.parametrize("behind", ["its question", "its map"])
def test_what_was_mapped_outlives_an_opening_that_fails(
    source: DrivenCluster, target: DrivenCluster, behind: str
) -> None:
    """The source's cleaner takes one of these records meanwhile: they can't be counted any more."""
    log = source.create("t").logs[0]
    Writer(log).plain(5)
    target.create("t")
    away = Fault.refused(ErrorCode.LEADER_NOT_AVAILABLE, {TP})
    cleaned = replace(away, before=lambda _: lose(log, 3))
    with Following(source, target, ranges_of(source, "t", MAPPED)) as tail:
        tail.until(lambda: tail.loop.partitions[0].position == 5, "it is copied, and the map in hand")
        if behind == "its question":
            failing = target.script.on("OffsetForLeaderEpoch", cleaned)
        else:
            target.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ANY_MAP))
            failing = source.script.on("Fetch", cleaned, when=lambda request: not request.message.max_wait_ms)
        source.script.on("Fetch", away, when=lambda request: request.message.max_wait_ms > 0)
        failing.wait()
        with source.changing():
            Writer(log).plain(2)
        tail.until(lambda: tail.loop.partitions[0].position == 7, "it goes on")
    whole = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert whole is not None and list(whole.segments()) == [Segment(0, 0, 7)]


@pytest.mark.parametrize("fails_first", [False, True], ids=["at once", "behind an opening that fails"])
def test_what_the_target_lost_and_was_not_stored_yet_is_copied_again(
    source: DrivenCluster, target: DrivenCluster, fails_first: bool
) -> None:
    """Its next leader lacks the last second. A copier that is killed then goes on, and so does one that runs."""
    log = source.create("t").logs[0]
    for _ in range(4):
        Writer(log).plain(5)
    there, away = target.create("t").logs[0], ErrorCode.NOT_LEADER_OR_FOLLOWER
    with Following(source, target, ranges_of(source, "t", MAPPED), merge_below=0) as tail:
        (p,) = tail.loop.partitions
        tail.until(lambda: p.position == 20, "it is copied, and the map in hand")
        if fails_first:  # and somebody else writes meanwhile, where the records were
            strangers = Fault(effect=False, code=away, before=lambda _: Writer(there).plain(7, size=21))
            source.script.on("Fetch", strangers, when=lambda request: not request.message.max_wait_ms)
        with target.changing():
            there.truncate(15)
        source.script.on("Fetch", Fault.refused(away), when=lambda request: request.message.max_wait_ms > 0)
        again = 27 if fails_first else 20
        tail.until(lambda: there.end == again or p.error is not None, "it is copied again")
        with source.changing():
            Writer(log).plain(2)
        tail.until(lambda: p.position == 22 or p.error is not None, "it goes on")
        assert p.error is None
    ours = [row for row in there.rows() if not (fails_first and 15 <= row.offset < 22)]
    assert [row[1:] for row in ours] == [row[1:] for row in log.rows()]
    whole = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert whole is not None and there.end == again + 2
    assert [whole.to_target(row.offset).offset for row in log.rows()] == [row.offset for row in ours]


def test_map_is_not_stored_without_a_confirmed_lease(
    source: DrivenCluster, target: DrivenCluster, caplog: pytest.LogCaptureFixture
) -> None:
    Writer(source.create("t").logs[0]).plain(5)
    target.create("t")
    ranges, unconfirmed = ranges_of(source, "t", MAPPED), threading.Event()

    def check() -> None:
        if unconfirmed.is_set() and threading.current_thread().name == "crew":
            raise LeaseUnconfirmed("id", 1, 9.0, None)

    with Following(source, target, ranges, check=check) as following:
        following.until(lambda: following.loop.partitions[0].position == 5, "it is copied")
        unconfirmed.set()
    assert map_of(target, ranges[0]) == OffsetMap(0, 0) and "is derived at the next start" in caplog.text
