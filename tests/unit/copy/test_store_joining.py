"""Joining the pieces of stored maps, and answers that are lost meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.offsets import encoding
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import MissingRight, TryAgain
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.script import Fault
from tests.unit.copy.maps_world import (
    World,
    ends,
    nothing,
    prefix,
    run,
    story,
)


@pytest.fixture
def world() -> Iterator[World]:
    with DrivenCluster("target") as target, WireCluster(target.config) as wire:
        yield World(target, wire)


# --- joining -----------------------------------------------------------------------------------------------------------


def test_joining_keeps_the_map_and_leaves_few_pieces(world: World) -> None:
    whole, _ = world.stored(6, parts=200, many=8)
    assert world.load() == whole
    assert len(world.left()) <= 8


def test_pieces_of_earlier_writers_are_joined_as_well(world: World) -> None:
    """A tail opens its partitions at each turn, and stores a little in each."""
    whole, pieces = story(7, parts=60)
    world.begin(world.store(), whole)
    for piece in pieces:
        world.append(world.writer(many=8), piece)
    assert world.load() == whole and len(world.left()) <= 8


@pytest.mark.repeats
def test_large_pieces_are_never_written_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions make a run each: 10^8 records may be 10^7 runs, and a task has little memory."""
    monkeypatch.setattr(encoding, "LARGEST", 1000)
    store, whole = world.store(many=8), OffsetMap(0, 0)
    world.begin(store, whole)
    for _ in range(200):
        piece = OffsetMap(whole.source_end, whole.target_end)
        for _ in range(40):
            piece.add(piece.source_end + 1, piece.target_end, 3)
        world.append(store, piece)
        whole.extend(piece)
    runs = [int(key.rpartition("x")[2]) for key in world.left()]
    assert sum(runs) == len(whole) == 8000
    assert max(runs) <= 1000 and len(runs) < 30
    end = world.end()
    assert ends(end) == ends(whole) and end is not None and len(end) == 1
    assert world.load() == whole


def test_part_that_is_stored_again_and_longer_survives_joining(world: World) -> None:
    """The answer to the first one was lost for good. The joined piece has the key of the longer one."""
    store = world.store(many=2)
    world.begin(store, OffsetMap(0, 0))
    world.append(store, run(0, 5, 0), run(0, 9, 0))
    assert world.load() == run(0, 9, 0)
    assert len(world.left()) == 1


class Killed(BaseException):
    """The process dies."""


@pytest.mark.parametrize("allowed", range(6))
def test_a_crash_at_any_moment_of_joining_loses_nothing(world: World, allowed: int) -> None:
    whole, pieces = story(allowed)
    store = world.store(many=len(pieces))
    world.begin(store, whole)
    world.append(store, *pieces[:-1])
    left = iter([True] * allowed)

    def check() -> None:
        if not next(left, False):
            raise Killed

    try:
        world.append(store, pieces[-1], check=check)
    except Killed:
        world.append(world.writer(many=len(pieces) + 9), prefix(pieces[-1:], 1))  # it had not told that it was stored
    assert world.load() == whole and ends(world.end()) == ends(whole)
    more = run(whole.source_end, 4, 500)
    world.append(world.writer(many=2), more)
    whole.extend(more)
    assert world.load() == whole
    assert len(world.left()) <= 3


# --- answers that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.repeats
@pytest.mark.parametrize(
    "fault",
    [
        Fault.lost_answer(),
        Fault.not_arrived(),
        Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault.done_but_refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault.done_but_refused(ErrorCode.REQUEST_TIMED_OUT),
    ],
    ids=["answer lost", "request lost", "too few replicas", "after append", "not leader", "timed out"],
)
@pytest.mark.parametrize("nth", range(1, 8))
def test_map_is_whole_though_any_write_fails_once(world: World, fault: Fault, nth: int) -> None:
    rule = world.target.script.on("Produce", fault, nth=nth)
    whole, _ = world.stored(parts=5, many=5)
    assert len(rule.hits) == 1 and world.load() == whole and ends(world.end()) == ends(whole)


@pytest.mark.repeats
def test_late_copies_of_older_records_change_nothing(world: World) -> None:
    """Requests that a proxy held, the tombstones too."""
    whole, _ = world.stored(parts=20, many=5)
    (log,) = (log for log in world.target.topics[MAPS].logs if log.end)
    rows = log.rows()
    for row in random.Random(3).sample(rows, len(rows)):
        if row.value is not None or not any(other.key == row.key and other.value for other in log.rows()[-1:]):
            TopicLog(world.wire, MAPS, log.tp.partition).put({str(row.key, "utf-8"): row.value}, 60)
        assert world.load() == whole
    assert ends(world.end()) == ends(whole)


def test_map_that_nobody_takes_is_said_to_be_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.copy.offsets.store._PATIENCE_S", 0.0)
    whole, pieces = story(1)
    store = world.store()
    world.begin(store, whole)
    world.target.script.on("Produce", Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS), times=None)
    with pytest.raises(TryAgain, match="could not be written"):
        world.append(store, pieces[0])
    world.target.script.clear()
    asked = len(world.target.asked("Produce"))
    with pytest.raises(TryAgain, match=f"{MAPS}-.* is not written to for a while"):
        world.append(store, pieces[0])
    assert len(world.target.asked("Produce")) == asked, "the maps behind this one don't wait as long again"
    later = time.monotonic() + 5.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    world.append(store, prefix(pieces, 2))  # what is left is stored with the next part
    assert world.load() == prefix(pieces, 2)


def test_missing_right_to_write_is_named(world: World) -> None:
    world.target.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(MissingRight, match=MAPS):
        world.begin(world.store(), OffsetMap(0, 0))


def test_maps_are_spread_over_the_partitions_of_their_topic(world: World) -> None:
    world.target.create("many", 64)
    store = MapStore("m")
    for partition in range(64):
        one = CopyRange(source_topic="here", target_topic="many", partition=partition, start_offset=0, mode=MAPPED)
        store.begin(world.wire, one, 0, 0, nothing)
    used = [log.end for log in world.target.topics[MAPS].logs]
    assert len(used) == MAP_PARTITIONS and sum(1 for end in used if end) > MAP_PARTITIONS * 3 // 4
