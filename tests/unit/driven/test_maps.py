"""The maps of a mirror's topics, as both logs stand when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import InputError, NoOffsetMap
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.maps import MapSource, OffsetMaps, map_source
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, lose_pieces, ranges_of

TP = TopicPartition("t", 0)


def a_plan(partitions: int = 1, mode: str = MAPPED, **fields: object) -> Plan:
    mirror = Mirror(name="m", source="src", target="dst", **fields)  # type: ignore[arg-type]
    return plan_of(mirror, topic_plan("t", dict.fromkeys(range(partitions), 0), source_topic_id="id", mode=mode))


class World:
    """A source with a hole in the middle, and a target that held three records of somebody else before."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster) -> None:
        self.source, self.target = source, target
        self.here, self.there = source.create("t", 2), target.create("t", 2)
        Writer(self.there.logs[0]).plain(3)
        self.writer = Writer(self.here.logs[0])
        self.writer.plain(5)
        self.writer.skip(4)
        self.writer.plain(5)

    def copy(self) -> None:
        ranges = [one for one in ranges_of(self.source, "t", MAPPED) if one.partition == 0]
        assert errors(copy(self.source, self.target, ranges)) == {TP: None}

    def maps(self, plan: Plan) -> OffsetMaps:
        return OffsetMaps(plan, self.source.config, self.target.config)

    def read(self) -> int:
        """How often the logs themselves were read."""
        return len(self.source.asked("Fetch")) + len(self.target.asked("Fetch"))


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster) -> World:
    return World(source, target)


@pytest.fixture
def maps(world: World) -> Iterator[OffsetMaps]:
    world.copy()
    with world.maps(a_plan()) as maps:
        yield maps


def test_an_offset_is_translated_there_and_back(maps: OffsetMaps) -> None:
    assert maps
    there = {0: 3, 4: 7, 5: 8, 8: 8, 9: 8, 13: 12, 14: 13}  # 5 to 8 are the hole: the next record goes on
    assert {offset: maps.to_target(TP, offset).offset for offset in there} == there
    assert {offset: maps.to_source(TP, offset).offset for offset in (3, 7, 8, 12)} == {3: 0, 7: 4, 8: 9, 12: 13}
    assert maps.to_target(TP, 15).where is Where.BEYOND


@pytest.mark.parametrize(
    ("others", "end"),
    [
        (lambda log: log.plain(2), 15),
        (lambda log: log.in_transaction(9, 2), 15),  # open: it may be committed
        (lambda log: (log.in_transaction(9, 2), log.end(9, commit=True)), 16),
    ],
    ids=["plain", "open", "committed"],
)
@pytest.mark.parametrize("again", [False, True])
def test_offset_behind_records_of_others_has_no_counterpart(
    world: World, maps: OffsetMaps, others: Callable[[Writer], object], end: int, again: bool
) -> None:
    """Applications that write to the target: a group that has read theirs can't go on where the mirror ended."""
    maps.to_source(TP, 3)
    others(Writer(world.there.logs[0]))
    if again:  # a job that finds nothing to copy notes how far the target was looked through
        world.copy()
    assert maps.to_source(TP, 13) == Translated(14, Where.END), "it has read what the mirror has written"
    assert [maps.to_source(TP, offset).where for offset in (14, end)] == [Where.BEYOND, Where.BEYOND]


def test_offset_behind_what_others_have_aborted_is_the_end(world: World, maps: OffsetMaps) -> None:
    log = Writer(world.there.logs[0])
    log.in_transaction(9, 2)
    log.end(9, commit=False)
    assert {maps.to_source(TP, offset) for offset in (13, 14, 16)} == {Translated(14, Where.END)}


def test_group_that_has_read_everything_costs_no_question(world: World, maps: OffsetMaps) -> None:
    """A way back translates many of them, and behind the end of what the mirror wrote there is nothing to look for."""
    maps.to_source(TP, 3)
    before = [len(cluster.requests) for cluster in (world.source, world.target)]
    assert maps.to_source(TP, 13) == Translated(14, Where.END)
    assert [len(cluster.requests) for cluster in (world.source, world.target)] == before


def test_logs_are_walked_on_only_when_one_of_them_moved(world: World, maps: OffsetMaps) -> None:
    maps.to_target(TP, 2)
    before = world.read()
    for offset in (0, 9, 30):  # the last one is beyond the map: the logs are looked at, and have not moved
        maps.to_target(TP, offset)
    assert world.read() == before
    world.writer.plain(2)
    assert maps.to_target(TP, 15).where is Where.BEYOND, "not copied yet"
    world.copy()
    assert maps.to_target(TP, 15) == Translated(14, Where.RECORD)
    assert world.read() > before


def test_map_goes_on_from_where_it_was_complete(world: World, maps: OffsetMaps) -> None:
    """It is the one that is made of all that is stored, which is not read again while the same process writes."""
    for count in (1, 30, 2):
        world.writer.skip(2)
        world.writer.plain(count)
        world.copy()
        (found,) = maps.of(["t"]).values()
        with world.maps(a_plan()) as fresh:
            assert fresh.of(["t"]) == {TP: found}
    world.writer.plain(1)
    assert maps.of(["t"])[TP] is found


def test_map_of_a_log_that_was_cut_is_read_anew(world: World, maps: OffsetMaps) -> None:
    """By an unclean election: the mirror's last records are gone, before a map that names them was stored."""
    assert maps.to_target(TP, 13) == Translated(12, Where.RECORD)
    lose_pieces(world.target)
    with world.target.changing():
        world.there.logs[0].truncate(8)
    (found,) = maps.of(["t"]).values()
    with world.maps(a_plan()) as fresh:
        assert fresh.of(["t"]) == {TP: found}
    assert found.to_target(13).where is Where.BEYOND


def test_open_transaction_on_the_target_hides_later_records(world: World) -> None:
    stranger = Writer(world.there.logs[0])
    stranger.in_transaction(9, 2)
    world.copy()
    with world.maps(a_plan(2)) as maps:
        assert maps.positions() == {TP: 0}, "and partition 1 has not begun"
        stranger.end(9, commit=True)
        assert maps.positions() == {TP: 14}


def test_partition_without_a_map_is_named(world: World, maps: OffsetMaps) -> None:
    with pytest.raises(NoOffsetMap, match="t-1"):
        maps.to_target(TopicPartition("t", 1), 0)


def test_records_dealt_out_by_key_have_no_counterpart(world: World) -> None:
    with world.maps(a_plan(partitioning="by_key")) as maps, pytest.raises(InputError, match="by_key"):
        maps.to_target(TP, 0)
    assert world.source.requests == world.target.requests == []


def test_mirror_without_mapped_topics_needs_no_maps() -> None:
    assert map_source(a_plan(mode="identical")) is None
    assert map_source(a_plan(isolation="read_uncommitted")) == MapSource("m", False)
