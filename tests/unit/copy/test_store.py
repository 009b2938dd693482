"""Offset maps on a cluster: whatever is lost, late, doubled or frozen, what loads is right and begins at the origin."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.offsets import encoding
from airflow_mirror.copy.offsets.map import OffsetMap, Segment
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import LeaseLost, MissingRight, TryAgain
from airflow_mirror.ledger.kinds import MOST_BYTES
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire import metadata
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import UnknownTopic
from tests.driven.cluster import DrivenCluster
from tests.driven.copying import create_maps, lose_maps, lose_pieces
from tests.driven.script import Fault

ONE = CopyRange(source_topic="here", target_topic="orders", partition=3, start_offset=0, mode=MAPPED)


class World:
    """A target with the topic ``orders``; stores as processes have them."""

    def __init__(self, target: DrivenCluster, wire: WireCluster) -> None:
        self.target, self.wire = target, wire
        target.create("orders", 4)
        create_maps(target)

    def store(self, many: int = 32) -> MapStore:
        return MapStore("m", [ONE.map_key], many=many)

    def writer(self, many: int = 32) -> MapStore:
        """A process that has opened the partition."""
        store = self.store(many)
        store.resume(self.wire, ONE)
        return store

    def begin(self, store: MapStore, whole: OffsetMap) -> None:
        store.begin(self.wire, ONE, whole.source_start, whole.target_start, nothing)

    def append(self, store: MapStore, *parts: OffsetMap, check: Callable[[], None] = lambda: None) -> None:
        for part in parts:
            store.append(self.wire, ONE, part, check)

    def stored(self, seed: int = 1, parts: int = 9, many: int = 32) -> tuple[OffsetMap, list[OffsetMap]]:
        """Store a map piece by piece; return it, and the pieces."""
        whole, pieces = story(seed, parts)
        store = self.store(many)
        self.begin(store, whole)
        self.append(store, *pieces)
        return whole, pieces

    def load(self) -> OffsetMap | None:
        return self.store().load(self.wire, ONE)

    def end(self) -> OffsetMap | None:
        return self.store().resume(self.wire, ONE)

    def left(self) -> list[str]:
        """The keys that the cleaner would leave, without the begin's."""
        there: dict[bytes | None, bytes | None] = {}
        for log in self.target.topics[MAPS].logs:
            there |= {row.key: row.value for row in log.rows()}
        return [str(key, "utf-8") for key, value in there.items() if key and value is not None and b"begin" not in key]

    def lose(self, key: str) -> None:
        """Remove one piece."""
        (log,) = (log for log in self.target.topics[MAPS].logs if log.end)
        TopicLog(self.wire, MAPS, log.tp.partition).put({key: None}, 60)


def nothing() -> None:
    pass


def story(seed: int, parts: int = 9) -> tuple[OffsetMap, list[OffsetMap]]:
    """Return a map with holes on both sides, and the pieces that a copier would have stored of it."""
    chance = random.Random(seed)
    source, target = chance.randrange(50), chance.randrange(50)
    whole, pieces = OffsetMap(source, target), []
    for _ in range(parts):
        piece = OffsetMap(source, target)
        for _ in range(chance.randrange(4)):
            source, target = source + chance.choice([0, 0, 1, 5]), target + chance.choice([0, 0, 0, 2])
            count = chance.randrange(1, 9)
            piece.add(source, target, count)
            source, target = source + count, target + count
        source += chance.choice([1, 2, 7])
        piece.advance(source)
        pieces.append(piece)
        whole.extend(piece)
    return whole, pieces


def prefix(pieces: list[OffsetMap], count: int) -> OffsetMap:
    joined = OffsetMap(pieces[0].source_start, pieces[0].target_start)
    for piece in pieces[:count]:
        joined.extend(piece)
    return joined


def ends(one: OffsetMap | None) -> tuple[object, ...]:
    """What a copy that goes on needs to know: the ends, and where the last record is. Its run may begin earlier."""
    assert one is not None
    last = one.last
    after = None if last is None else (last.source + last.count, last.target + last.count)
    return one.source_end, one.target_end, one.target_log_end, after


def run(start: int, count: int, shift: int, source_start: int | None = None) -> OffsetMap:
    """A piece with one run; its target offsets are ``shift`` higher."""
    first = start if source_start is None else source_start
    piece = OffsetMap(first, first + shift)
    piece.add(start, start + shift, count)
    return piece


@pytest.fixture(autouse=True)
def believing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All brokers say at once that there is no topic; it need not be asked for three seconds."""
    monkeypatch.setattr(metadata, "_UNANIMOUS_S", 0.1)


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
        with pytest.raises(TryAgain, match="no broker describes topic 'orders'"):
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
