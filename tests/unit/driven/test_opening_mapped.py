"""A mapped copy begins again: what is stored of its map is right, is completed from both logs, or stops the copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_mirror.copy.offsets.map import Segment
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.opening import recheck
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import ForeignData, RetentionLost, TargetTruncated
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, ranges_of

TP = TopicPartition("t", 0)
OURS = 7001


class World:
    """A source of five records that were copied with a map."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster, maps: Path) -> None:
        self.source, self.target, self.maps = source, target, maps
        self.here, self.there = source.create("t").logs[0], target.create("t").logs[0]
        self.here_writer = Writer(self.here)
        self.here_writer.plain(5)
        assert self.copy() is None

    def copy(self) -> Exception | None:
        ranges = ranges_of(self.source, "t", MAPPED)
        return errors(copy(self.source, self.target, ranges, map_dir=str(self.maps)))[TP]

    def segments(self) -> list[Segment]:
        found = MapStore(str(self.maps)).load(ranges_of(self.source, "t", MAPPED)[0].map_key)
        assert found is not None
        return list(found.segments())


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster, tmp_path: Path) -> World:
    return World(source, target, tmp_path / "maps")


def test_lost_map_is_derived_again_past_foreign_records(world: World) -> None:
    Writer(world.there).plain(3)
    world.here_writer.plain(4)
    assert world.copy() is None
    shutil.rmtree(world.maps)
    world.here_writer.plain(2)
    assert world.copy() is None
    assert world.segments() == [Segment(0, 0, 5), Segment(5, 8, 6)]


def test_lost_map_whose_first_record_expired_stops_the_copy(world: World) -> None:
    shutil.rmtree(world.maps)
    world.here.begin_at(2)
    world.here_writer.plain(2)
    assert isinstance(world.copy(), ForeignData)
    assert world.there.end == 5


def test_target_that_lost_mapped_records_stops_the_copy(world: World) -> None:
    world.here_writer.plain(4)
    assert world.copy() is None
    world.there.truncate(5)
    assert isinstance(world.copy(), TargetTruncated)
    assert world.there.end == 5


def test_uncopied_records_lost_to_retention_stop_mapped_copy(world: World) -> None:
    world.here_writer.plain(4)
    world.here_writer.plain(4)
    world.here.begin_at(7)
    error = world.copy()
    assert isinstance(error, RetentionLost) and (error.start_offset, error.end_offset) == (5, 7)


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
