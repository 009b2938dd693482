"""Stored maps: whatever is lost, torn or doubled, what is loaded is right and begins at the origin."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mirror.copy.offsets import store as map_store
from airflow_mirror.copy.offsets.map import OffsetMap, Segment
from airflow_mirror.copy.offsets.store import MapStore

KEY = "orders/3"


@pytest.fixture(scope="module", autouse=True)
def _without_a_disk() -> Iterator[None]:
    """Thousands of parts are written here, and each would wait for the disk twice; test_files.py holds that one does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airflow_mirror.files.os.fsync", lambda _: None)
        yield


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


def stored(root: Path, seed: int = 1) -> tuple[OffsetMap, list[OffsetMap], list[Path]]:
    whole, pieces = story(seed)
    store = MapStore(str(root))
    store.origin(KEY, whole.source_start, whole.target_start)
    for piece in pieces:
        store.append(KEY, piece)
    return whole, pieces, sorted((root / KEY).glob("*.parquet"))


def prefix(pieces: list[OffsetMap], count: int) -> OffsetMap:
    joined = OffsetMap(pieces[0].source_start, pieces[0].target_start)
    for piece in pieces[:count]:
        joined.extend(piece)
    return joined


def test_what_was_stored_is_loaded_by_another_process(tmp_path: Path) -> None:
    whole, _, _ = stored(tmp_path)
    assert MapStore(str(tmp_path)).load(KEY) == whole


def test_a_url_is_as_good_as_a_path() -> None:
    root = f"memory://maps-{uuid.uuid4().hex}/eu/mirror"
    whole, pieces = story(4, parts=40)
    store = MapStore(root)
    assert store.load(KEY) is None
    store.origin(KEY, whole.source_start, whole.target_start)
    for piece in pieces:
        store.append(KEY, piece)
    store.compact(KEY)
    assert MapStore(root).load(KEY) == whole
    assert ends(MapStore(root).load_end(KEY)) == ends(whole)
    store.origin(KEY, 5, 6)
    assert MapStore(root).load(KEY) == OffsetMap(5, 6)


def test_nothing_is_known_of_a_key_that_was_never_stored(tmp_path: Path) -> None:
    assert MapStore(str(tmp_path / "not yet there")).load(KEY) is None
    MapStore(str(tmp_path)).compact(KEY)
    assert list(tmp_path.iterdir()) == []


def test_an_origin_alone_is_an_empty_map(tmp_path: Path) -> None:
    MapStore(str(tmp_path)).origin(KEY, 17, 4)
    assert MapStore(str(tmp_path)).load(KEY) == OffsetMap(17, 4)


@pytest.mark.repeats
@given(st.sets(st.integers(0, 8)), st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_map_loads_up_to_its_first_lost_part(tmp_path: Path, lost: set[int], seed: int) -> None:
    """Any subset of the parts may be lost."""
    root = tmp_path / uuid.uuid4().hex
    _, pieces, paths = stored(root, seed)
    for index in lost:
        paths[index].unlink()
    assert MapStore(str(root)).load(KEY) == prefix(pieces, min(lost, default=len(pieces)))


@pytest.mark.repeats
@given(st.integers(0, 8), st.integers(0, 10**6), st.sampled_from(["cut", "flip", "garbage", "empty"]), st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
def test_torn_part_ends_the_map_and_is_never_believed(tmp_path: Path, index: int, at: int, how: str, seed: int) -> None:
    """With a flipped bit that nobody reads the map may also be whole."""
    root = tmp_path / uuid.uuid4().hex
    whole, pieces, paths = stored(root, seed)
    content = bytearray(paths[index].read_bytes())
    at %= len(content)
    if how == "flip":
        content[at] ^= 1 << at % 8
    paths[index].write_bytes(
        {"cut": content[:at], "flip": content, "garbage": b"PAR1" + b"\xa5" * at + b"PAR1", "empty": b""}[how]
    )
    loaded = MapStore(str(root)).load(KEY)
    # A flipped bit may hit a name or a statistic that nobody reads.
    assert loaded == prefix(pieces, index) or (how == "flip" and loaded == whole)


def test_unreadable_or_lost_origin_means_no_map(tmp_path: Path) -> None:
    """A map that begins too late would be wrong."""
    stored(tmp_path)
    origin = tmp_path / KEY / "origin.json"
    for content in (b"", b'{"source_start": 3', b'{"source_start": 3}', b"[]", b"\xff\xfe"):
        origin.write_bytes(content)
        assert MapStore(str(tmp_path)).load(KEY) is None
    origin.unlink()
    assert MapStore(str(tmp_path)).load(KEY) is None


def test_parts_of_a_zombie_that_overlap_are_cut(tmp_path: Path) -> None:
    whole, pieces, _ = stored(tmp_path)
    doubled = prefix(pieces[2:5], 3)
    MapStore(str(tmp_path)).append(KEY, doubled)
    MapStore(str(tmp_path)).append(KEY, prefix(pieces[4:], 5))
    assert MapStore(str(tmp_path)).load(KEY) == whole


def test_part_that_contradicts_an_earlier_one_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = MapStore(str(tmp_path))
    store.origin(KEY, 0, 0)
    for starts, segment in (((0, 0), Segment(0, 0, 10)), ((5, 6), Segment(5, 6, 20)), ((10, 10), Segment(12, 10, 4))):
        piece = OffsetMap(*starts)
        piece.add(*segment)
        store.append(KEY, piece)
    loaded = store.load(KEY)
    assert loaded is not None and list(loaded.segments()) == [Segment(0, 0, 10), Segment(12, 10, 4)]
    assert "00000000000000000005-00000000000000000025.parquet is not used" in caplog.text


def test_new_origin_ends_the_map_even_for_frozen_copiers(tmp_path: Path) -> None:
    whole, pieces = story(3)
    frozen = MapStore(str(tmp_path))
    frozen.origin(KEY, whole.source_start, whole.target_start)
    frozen.append(KEY, pieces[0])
    MapStore(str(tmp_path)).origin(KEY, whole.source_start, whole.target_start)  # the target topic was deleted meanwhile
    frozen.append(KEY, pieces[1])
    frozen.append(KEY, pieces[0])
    loaded = MapStore(str(tmp_path)).load(KEY)
    assert loaded is not None and len(loaded) == 0 and loaded.source_end == whole.source_start


def test_frozen_copier_adds_nothing_to_the_next_map(tmp_path: Path) -> None:
    """It did not begin the map, so it once read whose parts it adds to; it must not look again."""
    whole, pieces = story(3)
    MapStore(str(tmp_path)).origin(KEY, whole.source_start, whole.target_start)
    frozen = MapStore(str(tmp_path))
    frozen.append(KEY, pieces[0])
    MapStore(str(tmp_path)).origin(KEY, whole.source_start, whole.target_start)
    frozen.append(KEY, pieces[0])
    loaded = MapStore(str(tmp_path)).load(KEY)
    assert loaded is not None and len(loaded) == 0


def test_without_an_origin_nothing_is_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    MapStore(str(tmp_path)).append(KEY, OffsetMap(4, 4))
    assert list(tmp_path.rglob("*")) == [] and "no origin" in caplog.text


def test_a_part_is_delta_packed_and_small(tmp_path: Path) -> None:
    one = OffsetMap(0, 0)
    chance, source = random.Random(5), 0
    for target in range(0, 150_000, 15):
        one.add(source, target, 15)
        source += 15 + chance.randrange(1, 3)
    store = MapStore(str(tmp_path))
    store.origin(KEY, 0, 0)
    store.append(KEY, one)
    (path,) = (tmp_path / KEY).glob("*.parquet")
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert "DELTA_BINARY_PACKED" in column.encodings and column.compression == "ZSTD"
    assert path.stat().st_size < 3 * len(one)
    assert store.load(KEY) == one


def test_compaction_keeps_the_map_and_leaves_few_parts(tmp_path: Path) -> None:
    whole, pieces = story(6, parts=200)
    store = MapStore(str(tmp_path))
    store.origin(KEY, whole.source_start, whole.target_start)
    for piece in pieces:
        store.append(KEY, piece)
        store.compact(KEY, many=8)
    assert store.load(KEY) == whole
    assert len(list((tmp_path / KEY).glob("*.parquet"))) <= 16


def dying(step: Callable[..., None], die_before: Iterator[bool]) -> Callable[..., None]:
    def limited(*args: object) -> None:
        if next(die_before):
            raise KeyboardInterrupt
        step(*args)

    return limited


def test_a_crash_at_any_moment_of_a_compaction_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed in range(12):
        root = tmp_path / str(allowed)
        whole, _, _ = stored(root, seed=allowed)
        die_before = iter([False] * allowed + [True])
        with monkeypatch.context() as patch:
            for name in ("_write", "_remove"):
                patch.setattr(map_store, name, dying(getattr(map_store, name), die_before))
            try:
                MapStore(str(root)).compact(KEY, many=2)
                assert allowed > 8
            except KeyboardInterrupt:
                pass
        assert MapStore(str(root)).load(KEY) == whole
        MapStore(str(root)).compact(KEY, many=2)
        assert MapStore(str(root)).load(KEY) == whole
        assert len(list((root / KEY).glob("*.parquet"))) <= 4


def test_compaction_joins_parts_and_drops_unreadable_ones(tmp_path: Path) -> None:
    _, pieces, paths = stored(tmp_path)
    paths[4].write_bytes(b"torn")
    MapStore(str(tmp_path)).compact(KEY, many=2)
    assert MapStore(str(tmp_path)).load(KEY) == prefix(pieces, 4)
    left = set((tmp_path / KEY).glob("*.parquet"))
    assert paths[4] not in left and set(paths[:4]) < left and len(left) < 8


def test_two_compactions_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, pieces, _ = stored(tmp_path)
    more = OffsetMap(whole.source_end, whole.target_end)
    more.add(whole.source_end + 2, whole.target_end, 5)
    late, writes = MapStore(str(tmp_path)), list[Any]()

    def held_back(path: Path, content: bytes) -> None:
        """The first compaction stalls before its write; meanwhile a copier appends, and compacts to the end."""
        if not writes:
            writes.append(path)
            MapStore(str(tmp_path)).append(KEY, more)
            MapStore(str(tmp_path)).compact(KEY, many=2)
        original(path, content)

    original = map_store._write
    with monkeypatch.context() as patch:
        patch.setattr(map_store, "_write", held_back)
        late.compact(KEY, many=2)
    whole.extend(more)
    assert MapStore(str(tmp_path)).load(KEY) == whole


def test_shorter_part_never_replaces_a_longer_one(tmp_path: Path) -> None:
    whole, pieces, _ = stored(tmp_path)
    store = MapStore(str(tmp_path))
    store.append(KEY, prefix(pieces, len(pieces)))
    for path in (tmp_path / KEY).glob("*.parquet"):
        if f"-{whole.source_end:020d}" not in path.name:
            path.unlink()
    store.append(KEY, pieces[0])  # a zombie, late
    assert store.load(KEY) == whole


def test_full_disk_keeps_the_older_part_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pieces, paths = stored(tmp_path)
    before = paths[2].read_bytes()
    with monkeypatch.context() as patch:
        full = OSError(28, "No space left on device")
        patch.setattr("airflow_mirror.files.os.fsync", lambda _: (_ for _ in ()).throw(full))
        with pytest.raises(OSError, match="No space left"):
            MapStore(str(tmp_path)).append(KEY, prefix(pieces[2:4], 2))
    assert paths[2].read_bytes() == before
    assert {p.name for p in (tmp_path / KEY).iterdir()} == {p.name for p in paths} | {"origin.json"}


def test_an_origin_tells_where_the_copy_began_in_plain_json(tmp_path: Path) -> None:
    MapStore(str(tmp_path)).origin(KEY, 17, 4)
    told = json.loads((tmp_path / KEY / "origin.json").read_text())
    assert (told["source_start"], told["target_start"]) == (17, 4)


def ends(one: OffsetMap | None) -> tuple[object, ...]:
    """What a copy that goes on needs to know."""
    assert one is not None
    return one.source_end, one.target_end, one.target_log_end, one.last


@pytest.mark.repeats
@given(
    st.sets(st.integers(0, 29), max_size=3), st.sampled_from([None, "torn", "of another origin"]), st.booleans(),
    st.integers(0, 999),
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_loaded_end_is_that_of_the_whole_map(
    tmp_path: Path, lost: set[int], instead: str | None, compacted: bool, seed: int
) -> None:
    """Parts may be lost, torn, replaced by others or compacted."""
    root = tmp_path / uuid.uuid4().hex
    whole, pieces = story(seed, parts=30)
    store = MapStore(str(root))
    store.origin(KEY, whole.source_start, whole.target_start)
    for number, piece in enumerate(pieces):
        store.append(KEY, piece)
        if compacted:
            store.compact(KEY, many=3 + number % 5)
    paths = sorted((root / KEY).glob("*.parquet"))
    for index in lost & set(range(len(paths))):
        if instead is None:
            paths[index].unlink()
        elif instead == "torn":
            paths[index].write_bytes(paths[index].read_bytes()[:-30])
        else:
            other = MapStore(str(root / "other"))
            other.origin(KEY, whole.source_start, whole.target_start)
            other.append(KEY, pieces[0])
            paths[index].write_bytes(next((root / "other" / KEY).glob("*.parquet")).read_bytes())
    assert ends(MapStore(str(root)).load_end(KEY)) == ends(MapStore(str(root)).load(KEY))


def test_overlapping_parts_of_a_zombie_change_nothing_about_the_end(tmp_path: Path) -> None:
    whole, pieces, _ = stored(tmp_path, seed=3)
    MapStore(str(tmp_path)).append(KEY, prefix(pieces, 5))  # what a compaction that was cut off leaves
    late = OffsetMap(pieces[4].source_start, pieces[4].target_start)
    for piece in pieces[4:7]:
        late.extend(piece)
    MapStore(str(tmp_path)).append(KEY, late)
    assert ends(MapStore(str(tmp_path)).load_end(KEY)) == ends(whole)


def test_part_that_reaches_back_is_compared_with_the_whole_map(tmp_path: Path) -> None:
    store = MapStore(str(tmp_path))
    store.origin(KEY, 0, 0)
    for starts, segments in (
        ((0, 0), ((0, 0, 5), (7, 5, 5), (14, 10, 5))),
        ((8, 6), ((8, 6, 4), (14, 10, 5), (21, 15, 3))),
    ):
        part = OffsetMap(*starts)
        for segment in segments:
            part.add(*segment)
        store.append(KEY, part)
    found = store.load_end(KEY)
    assert ends(found) == ends(store.load(KEY)) == (24, 18, 18, Segment(21, 15, 3))


@pytest.mark.repeats
def test_continuing_and_joining_hold_little_of_a_long_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions make a segment each: 10^8 records may be 10^7 segments, 240 MB, and a task has less."""
    monkeypatch.setattr(map_store, "_LARGEST_PART", 1000)
    store, whole = MapStore(str(tmp_path)), OffsetMap(0, 0)
    store.origin(KEY, 0, 0)
    for _ in range(200):
        piece = OffsetMap(whole.source_end, whole.target_end)
        for _ in range(40):
            piece.add(piece.source_end + 1, piece.target_end, 3)
        store.append(KEY, piece)
        store.compact(KEY, many=8)
        whole.extend(piece)
    rows = [pq.read_metadata(path).num_rows for path in (tmp_path / KEY).glob("*.parquet")]
    assert sum(rows) == len(whole) == 8000
    assert max(rows) <= 1000 and len(rows) < 30
    end = MapStore(str(tmp_path)).load_end(KEY)
    assert ends(end) == ends(whole) and end is not None and len(end) == 1
    assert MapStore(str(tmp_path)).load(KEY) == whole
