"""Offset maps on a cluster: whatever is lost, late, doubled or frozen, what loads is right and begins at the origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mirror.common.policy import MAPS
from airflow_mirror.copy.offsets import encoding
from airflow_mirror.copy.offsets.map import OffsetMap, Segment
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import LeaseLost, TryAgain
from airflow_mirror.ledger.kinds import MOST_BYTES
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import UnknownTopic
from tests.driven.cluster import DrivenCluster
from tests.driven.copying import create_maps, lose_maps, lose_pieces
from tests.driven.script import Fault
from tests.unit.copy.maps_world import (
    ONE,
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


# --- what is stored is loaded ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [2, 5, 32])
def test_what_was_stored_is_loaded_by_another_process(world: World, many: int) -> None:
    whole, _ = world.stored(seed=4, parts=40, many=many)
    assert world.load() == whole
    assert ends(world.end()) == ends(whole)


def test_nothing_is_known_without_origin_or_topic(world: World) -> None:
    assert world.load() is None and world.end() is None
    lose_maps(world.target)
    assert world.load() is None, "a reader derives, or says that there is no map"
    with pytest.raises(UnknownTopic, match=MAPS):
        world.end()


def test_an_origin_alone_is_an_empty_map(world: World) -> None:
    world.begin(world.store(), OffsetMap(17, 4))
    assert world.load() == world.end() == OffsetMap(17, 4)
    assert world.store().source_start(world.wire, ONE) == 17


def test_without_an_origin_nothing_is_stored(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.append(world.writer(), run(0, 5, 0))
    assert world.left() == [] and "no origin" in caplog.text


def test_maps_of_other_mirrors_topics_and_flows_are_apart(world: World) -> None:
    whole, _ = world.stored()
    by_key = CopyRange(
        source_topic="here", target_topic="orders", partition=3, start_offset=0, mode=MAPPED,
        target_partition=1, key_partitions=4,
    )  # fmt: skip
    other = MapStore("m2")
    other.resume(world.wire, ONE)
    other.begin(world.wire, ONE, 1, 1, nothing)
    assert MapStore("m").load(world.wire, by_key) is None
    assert world.load() == whole and other.load(world.wire, ONE) == OffsetMap(1, 1)


def test_begun_topics_are_named_with_their_ids(world: World) -> None:
    assert MapStore("m").begun(world.wire) == set()
    world.stored()
    assert MapStore("m").begun(world.wire) == {("orders", world.wire.topic_id("orders"))}
    assert MapStore("m2").begun(world.wire) == set()


def test_a_partition_of_the_topic_is_read_once(world: World) -> None:
    """Of everybody's maps in it a task keeps its own, and then reads what is new."""
    world.stored(parts=20)
    store = world.store()
    store.load(world.wire, ONE)
    before = len(world.target.asked("Fetch"))
    store.source_start(world.wire, ONE)
    assert len(world.target.asked("Fetch")) == before


def test_large_part_is_stored_in_records_that_brokers_take(world: World) -> None:
    """What is derived of a lost map may have millions of runs, and numbers of any size."""
    whole = OffsetMap(2**60, 2**61)
    for number in range(3 * encoding.LARGEST):
        whole.add(whole.source_end + 2**40 + number % 7, whole.target_end + 2**41, 2**42)
    store = world.store()
    world.begin(store, whole)
    world.append(store, whole)
    values = [row.value for log in world.target.topics[MAPS].logs for row in log.rows()]
    assert max(len(value or b"") for value in values) < MOST_BYTES
    assert world.load() == whole and ends(world.end()) == ends(whole)


@pytest.mark.repeats
@given(st.sets(st.integers(0, 29), max_size=3), st.sampled_from([3, 7, 32]), st.integers(0, 999))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_loaded_end_is_that_of_the_whole_map(lost: set[int], many: int, seed: int) -> None:
    """Pieces may be lost or joined: loading stops at the first gap."""
    with DrivenCluster("target") as target, WireCluster(target.config) as wire:
        world = World(target, wire)
        whole, pieces = world.stored(seed, parts=30, many=many)
        keys = world.left()
        for index in lost & set(range(len(keys))):
            world.lose(sorted(keys)[index])
        loaded = world.load()
        assert ends(world.end()) == ends(loaded)
        assert loaded is not None
        assert list(loaded.segments()) == list(whole.segments(0, loaded.source_end))
        if not lost & set(range(len(keys))):
            assert loaded == whole


def test_lost_pieces_leave_an_empty_map_with_its_origin(world: World) -> None:
    whole, _ = world.stored()
    lose_pieces(world.target)
    assert world.load() == OffsetMap(whole.source_start, whole.target_start)


def test_record_that_is_no_piece_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A later version of the package may have written it."""
    _, pieces = world.stored()
    key = next(key for key in world.left() if f"/{pieces[4].source_start}-" in key)
    (log,) = (log for log in world.target.topics[MAPS].logs if log.end)
    for value in (b"", b"{", b"[]", b"null", b'{"v":2}', b'{"v":1,"source":[0,1]}', b"\xff"):
        TopicLog(world.wire, MAPS, log.tp.partition).put({key: value, "a": b"1", "a/b/c/d/e/f/g": b"", "": b""}, 60)
        assert world.load() == prefix(pieces, 4)
    assert "is not used" in caplog.text


def test_end_without_records_belongs_to_the_end(world: World) -> None:
    """Markers alone follow the last record, on both sides."""
    store = world.store()
    world.begin(store, OffsetMap(0, 0))
    markers = OffsetMap(5, 5)
    markers.advance(7, 8)
    more = OffsetMap(7, 5)
    more.advance(9, 11)
    world.append(store, run(0, 5, 0), markers, more)
    end = world.end()
    assert end is not None and (end.source_end, end.target_end, end.target_log_end) == (9, 5, 11)
    assert end.last == Segment(0, 0, 5)


# --- a map that was loaded is read on -----------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [3, 32])
def test_of_a_map_that_was_loaded_only_the_rest_is_read(world: World, many: int) -> None:
    """Also if pieces are joined meanwhile. Who follows a busy topic asks every few seconds, and a map may be large."""
    whole, pieces = story(5, 40)
    store, reader = world.store(many), world.store()
    world.begin(store, whole)
    world.append(store, *pieces[:30])
    kept = reader.load_on(world.wire, ONE, None)
    for count in range(31, 41):
        world.append(store, pieces[count - 1])
        before = len(world.target.asked("Fetch"))
        found = reader.load_on(world.wire, ONE, kept)
        asked = len(world.target.asked("Fetch")) - before
        assert found is kept and kept is not None and kept.whole == world.load() == prefix(pieces, count)
        assert asked <= 4, "what was appended, and one value"


def test_map_of_another_copy_or_writer_is_read_anew(world: World) -> None:
    """Pieces of the writer before may count no more, and nothing of a copy before."""
    frozen, reader = world.store(), world.store()
    world.begin(frozen, OffsetMap(0, 0))
    world.append(frozen, run(0, 15, 0), run(15, 15, 0))
    kept = reader.load_on(world.wire, ONE, None)
    world.append(world.writer(), run(15, 10, 1, source_start=15))
    found = reader.load_on(world.wire, ONE, kept)
    assert found is not None and list(found.whole.segments()) == [Segment(0, 0, 15), Segment(15, 16, 10)]
    world.begin(world.writer(), OffsetMap(3, 4))
    anew = reader.load_on(world.wire, ONE, found)
    assert anew is not None and anew.whole == OffsetMap(3, 4)
    lose_maps(world.target)
    assert world.store().load_on(world.wire, ONE, anew) is None


def test_map_that_says_otherwise_than_what_is_stored_is_read_anew(world: World) -> None:
    _, pieces = world.stored()
    reader = world.store()
    kept = reader.load_on(world.wire, ONE, None)
    assert kept is not None
    wrong = OffsetMap(kept.whole.source_start, kept.whole.target_start)
    wrong.advance(pieces[4].source_end - 1)
    found = reader.load_on(world.wire, ONE, kept._replace(whole=wrong))
    assert found is not None and found.whole == world.load()


# --- writers that are frozen, and those that come after them -----------------------------------------------------------


def test_frozen_writer_that_thaws_changes_nothing(world: World) -> None:
    """It had written 15 to 30, which the target lost; who came after it wrote them behind a stranger's record."""
    frozen = world.store()
    world.begin(frozen, OffsetMap(0, 0))
    world.append(frozen, run(0, 15, 0))
    heir = world.writer()
    world.append(heir, run(15, 10, 1, source_start=15), run(25, 5, 1))
    world.append(frozen, run(15, 15, 0), run(30, 9, 0))
    loaded = world.load()
    assert loaded is not None and list(loaded.segments()) == [Segment(0, 0, 15), Segment(15, 16, 15)]
    assert ends(world.end()) == ends(loaded)


def test_frozen_writer_that_joins_pieces_takes_none_away(world: World) -> None:
    frozen = world.store(many=3)
    world.begin(frozen, OffsetMap(0, 0))
    world.append(frozen, run(0, 5, 0), run(5, 5, 0))
    heir = world.writer()
    world.append(heir, run(12, 5, 1, source_start=10))
    world.append(frozen, run(10, 9, 0))  # joined to [0, 19), of which [0, 10) counts
    assert [key.split("/")[-1] for key in world.left()] == ["10-17x1", "0-19x1"]
    loaded = world.load()
    assert loaded is not None and list(loaded.segments()) == [Segment(0, 0, 10), Segment(12, 13, 5)]
    world.append(heir, run(17, 5, 1), run(22, 5, 1))
    assert (whole := world.load()) is not None and whole.source_end == 27
    assert ends(world.end()) == ends(whole)


def test_writer_without_a_lease_stores_nothing(world: World) -> None:
    def lost() -> None:
        raise LeaseLost("id", 1, "another one")

    store = world.writer()
    with pytest.raises(LeaseLost):
        store.begin(world.wire, ONE, 0, 0, lost)
    assert world.load() is None
    whole, _ = world.stored()
    with pytest.raises(LeaseLost):
        world.append(world.writer(), run(whole.source_end, 5, 0), check=lost)
    assert world.load() == whole


@pytest.mark.parametrize("frozen_after", ["begin", "resume"])
def test_new_origin_ends_the_map_even_for_frozen_writers(world: World, frozen_after: str) -> None:
    whole, pieces = story(3)
    frozen = world.store()
    world.begin(frozen, whole)
    if frozen_after == "resume":
        frozen = world.writer()
    world.append(frozen, pieces[0])
    world.begin(world.writer(), whole)
    assert world.left() == [], "what counts no more is removed"
    world.append(frozen, pieces[1], pieces[0])
    assert world.load() == world.end() == OffsetMap(whole.source_start, whole.target_start)


def test_target_topic_that_was_created_again_has_no_map(world: World) -> None:
    """What is stored of the deleted one is removed when the next copy begins. A frozen writer knows the old id alone."""
    whole, pieces = world.stored()
    frozen = world.writer()
    world.target.create("orders", 4)
    with WireCluster(world.target.config) as fresh:
        assert world.store().load(fresh, ONE) is None and world.store().resume(fresh, ONE) is None
        heir = world.store()
        heir.begin(fresh, ONE, 0, 0, nothing)
        assert world.left() == []
        world.append(frozen, *pieces)
        assert world.store().load(fresh, ONE) == OffsetMap(0, 0)
        assert MapStore("m").begun(fresh) == {("orders", fresh.topic_id("orders"))}


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_topic_that_no_broker_describes_keeps_its_map(world: World, nth: int) -> None:
    """Such an answer has no id. Another id would be another topic, whose map begins anew."""
    whole, _ = world.stored()
    with WireCluster(world.target.config) as fresh:
        world.target.script.on("Metadata", Fault.refused(ErrorCode.LEADER_NOT_AVAILABLE), nth=nth)
        store = world.store()
        assert store.load(fresh, ONE) == whole and ends(store.resume(fresh, ONE)) == ends(whole)
    with WireCluster(world.target.config) as fresh:
        fresh.refresh([MAPS])
        rule = world.target.script.on(
            "Metadata", Fault.refused(ErrorCode.LEADER_NOT_AVAILABLE), times=None,
            when=lambda request: [topic.name for topic in request.message.topics or ()] == ["orders"],
        )  # fmt: skip
        with pytest.raises(TryAgain, match="topic 'orders' has no id: no broker describes it"):
            world.store().resume(fresh, ONE)
        assert rule.hits


def test_maps_topic_that_was_created_again_is_read_anew(world: World) -> None:
    whole, pieces = world.stored()
    store = world.store()
    assert store.load(world.wire, ONE) == whole
    lose_maps(world.target)
    create_maps(world.target)
    assert store.load(world.wire, ONE) is None
    store.begin(world.wire, ONE, whole.source_start, whole.target_start, nothing)
    world.append(store, *pieces[:2])
    assert world.load() == prefix(pieces, 2)


def test_longer_topic_in_the_old_ones_place_is_read_from_its_start(world: World) -> None:
    world.begin(world.store(), OffsetMap(99, 99))
    store = world.store()
    assert store.load(world.wire, ONE) == OffsetMap(99, 99)
    lose_maps(world.target)
    create_maps(world.target)
    whole, _ = world.stored(seed=8, parts=9)
    assert store.load(world.wire, ONE) == whole


def test_topic_that_lost_its_last_records_is_read_anew(world: World) -> None:
    """As by an unclean election: what was read is not there, and what others wrote is in its place."""
    _, pieces = world.stored(parts=6)
    store = world.store()
    store.load(world.wire, ONE)
    (log,) = (log for log in world.target.topics[MAPS].logs if log.end)
    with world.target.changing():
        log.truncate(4)
    assert store.load(world.wire, ONE) == prefix(pieces, 3)
    world.append(world.writer(), *pieces[3:])
    assert store.load(world.wire, ONE) == prefix(pieces, 6)


def test_pieces_that_others_removed_meanwhile_are_looked_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = world.stored(parts=6)
    reader, read = world.store(), MapStore._find
    joined: list[bool] = []

    def then_joined(self: MapStore, *of: object) -> object:
        found = read(self, *of)  # type: ignore[arg-type]
        if not joined:
            joined.append(True)
            world.append(world.writer(many=2), run(whole.source_end, 3, 100))
            for log in world.target.topics[MAPS].logs:  # the cleaner comes at once
                gone = {row.key for row in log.rows() if row.value is None}
                keep = {row.offset for row in log.rows() if row.key not in gone or row.value is None}
                log.batches = [one for one in log.batches if one.base_offset in keep]
        return found

    monkeypatch.setattr(MapStore, "_find", then_joined)
    found = reader.load(world.wire, ONE)
    assert found is not None and found.source_end == whole.source_end + 3
