"""The offset map against the plainest possible model: two lists of offsets, searched from the front."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.copy.offsets.map import OffsetMap, Segment, Where

# What the two logs go through: so many records, or so many holes on the source or on the target.
EVENTS = st.lists(st.tuples(st.sampled_from(["records", "source hole", "target hole"]), st.integers(1, 7)), max_size=25)
STARTS = st.tuples(st.integers(0, 40), st.integers(0, 40))


def play(starts: tuple[int, int], events: list[tuple[str, int]]) -> tuple[OffsetMap, list[tuple[int, int]]]:
    """Return the map of two logs, and the (source, target) offset of every record."""
    source, target = starts
    one, records = OffsetMap(source, target), []
    for kind, count in events:
        if kind == "records":
            one.add(source, target, count)
            records += [(source + i, target + i) for i in range(count)]
            source, target = source + count, target + count
        elif kind == "source hole":
            source += count
            one.advance(source)
        else:
            target += count
            one.advance(source, target)
    return one, records


def at_or_after(offset: int, ascending: list[int]) -> int | None:
    return next((each for each in ascending if each >= offset), None)


@given(STARTS, EVENTS)
def test_source_offset_maps_to_target_record_at_or_after_it(starts: tuple[int, int], events: list[Any]) -> None:
    """It is the first such record; without one it is the end of the target."""
    one, records = play(starts, events)
    of_target = {target: source for source, target in records}
    for offset in range(one.source_start, one.source_end + 1):
        found = one.to_target(offset)
        wanted = at_or_after(offset, [source for source, _ in records])
        assert of_target.get(found.offset) == wanted
        if wanted is None:
            assert found.offset == one.target_end
        assert (found.where is Where.RECORD) == (wanted == offset)


@given(STARTS, EVENTS)
def test_target_offset_maps_to_source_record_at_or_after_it(starts: tuple[int, int], events: list[Any]) -> None:
    """It is the first such record; without one it is the end of the source."""
    one, records = play(starts, events)
    of_source = dict(records)
    for offset in range(one.target_start, one.target_log_end + 1):
        found = one.to_source(offset)
        wanted = at_or_after(offset, [target for _, target in records])
        assert of_source.get(found.offset) == wanted
        if wanted is None:
            assert (found.offset, found.where) == (one.source_end, Where.END)
        assert (found.where is Where.RECORD) == (wanted == offset)


@given(STARTS, EVENTS)
def test_what_lies_behind_the_records_below_a_target_position(starts: tuple[int, int], events: list[Any]) -> None:
    """A target log that begins there has all of the source's records from that offset on."""
    one, records = play(starts, events)
    for offset in range(one.target_start, one.target_end):
        below = [source for source, target in records if target < offset]
        assert one.behind(offset) == (below[-1] + 1 if below else one.source_start)
    assert one.behind(one.target_end) == one.source_end


@given(STARTS, EVENTS)
def test_there_and_back_never_skips_a_record_and_repeats_none(starts: tuple[int, int], events: list[Any]) -> None:
    one, records = play(starts, events)
    sources = [source for source, _ in records]
    for offset in range(one.source_start, one.source_end + 1):
        back = one.to_source(one.to_target(offset).offset).offset
        assert at_or_after(back, sources) == at_or_after(offset, sources)


@given(STARTS, EVENTS, st.integers(0, 60))
def test_segments_are_minimal_and_can_be_cut_anywhere(
    starts: tuple[int, int], events: list[Any], source_from: int
) -> None:
    one, records = play(starts, events)
    told = [(s.source + i, s.target + i) for s in one.segments(source_from) for i in range(s.count)]
    assert told == [pair for pair in records if pair[0] >= source_from]
    whole = list(one.segments())
    assert len(whole) == len(one) and sum(s.count for s in whole) == len(records)
    for a, b in zip(whole, whole[1:], strict=False):
        assert (a.source + a.count, a.target + a.count) != (b.source, b.target)


@given(STARTS, EVENTS, st.lists(st.integers(0, 25), max_size=4), st.integers(0, 3))
def test_pieces_that_overlap_make_the_same_map_again(
    starts: tuple[int, int], events: list[Any], cuts: list[int], overlap: int
) -> None:
    whole, _ = play(starts, events)
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    joined = OffsetMap(*starts)
    for first, last in zip(edges, edges[1:], strict=False):
        before, _ = play(starts, events[: max(0, first - overlap)])
        piece, _ = play(
            (before.source_end, max(before.target_end, before.target_log_end)), events[max(0, first - overlap) : last]
        )
        joined.extend(piece)
    assert joined == whole


def irregular() -> OffsetMap:
    """Source: records 100-109 and 115-120, holes between and up to 200. Target: from 7, with markers at 17 and 18."""
    one = OffsetMap(100, 7)
    one.add(100, 7, 10)
    one.add(115, 19, 6)
    one.advance(200)
    return one


@pytest.mark.parametrize(
    ("offset", "target", "where"),
    [
        (0, 7, Where.BEFORE),
        (99, 7, Where.BEFORE),
        (100, 7, Where.RECORD),
        (109, 16, Where.RECORD),
        (110, 19, Where.HOLE),
        (114, 19, Where.HOLE),
        (115, 19, Where.RECORD),
        (120, 24, Where.RECORD),
        (121, 25, Where.HOLE),
        (199, 25, Where.HOLE),
        (200, 25, Where.END),
        (201, 25, Where.BEYOND),
    ],
)
def test_edges_of_the_way_there(offset: int, target: int, where: Where) -> None:
    assert irregular().to_target(offset) == (target, where)


@pytest.mark.parametrize(
    ("offset", "source", "where"),
    [
        (0, 100, Where.BEFORE),
        (6, 100, Where.BEFORE),
        (7, 100, Where.RECORD),
        (16, 109, Where.RECORD),
        (17, 115, Where.HOLE),
        (18, 115, Where.HOLE),
        (19, 115, Where.RECORD),
        (24, 120, Where.RECORD),
        (25, 200, Where.END),
        (26, 200, Where.BEYOND),
    ],
)
def test_edges_of_the_way_back(offset: int, source: int, where: Where) -> None:
    assert irregular().to_source(offset) == (source, where)


def test_reader_behind_the_last_target_marker_is_at_the_end() -> None:
    one = irregular()
    one.advance(200, target_log_end=26)
    assert one.to_source(26) == (200, Where.END)
    assert one.to_source(27) == (200, Where.BEYOND)


def test_dense_log_from_offset_0_is_one_segment() -> None:
    """Every offset is mapped to itself."""
    one = OffsetMap(0, 0)
    for start in range(0, 3000, 3):
        one.add(start, start, 3)
    assert list(one.segments()) == [Segment(0, 0, 3000)]
    assert one.to_target(0) == (0, Where.RECORD) and one.to_source(0) == (0, Where.RECORD)
    assert one.to_target(3000) == (3000, Where.END)


def test_a_map_without_records_knows_its_start_and_its_end() -> None:
    one = OffsetMap(5, 3)
    assert one.to_target(4) == (3, Where.BEFORE)
    assert one.to_target(5) == (3, Where.END) and one.to_source(3) == (5, Where.END)
    one.advance(9)
    assert one.to_target(7) == (3, Where.HOLE) and one.to_target(9) == (3, Where.END)
    assert one.to_source(3) == (9, Where.END) and len(one) == 0


def test_offset_below_an_initial_hole_maps_to_the_first_record() -> None:
    one = OffsetMap(5, 3)
    one.add(9, 4, 1)
    assert one.to_target(0) == (4, Where.BEFORE) and one.to_source(0) == (9, Where.BEFORE)


@pytest.mark.parametrize(("source", "target", "count"), [(199, 25, 1), (200, 24, 1), (200, 25, 0), (200, 25, -3)])
def test_a_map_never_goes_backwards(source: int, target: int, count: int) -> None:
    one = irregular()
    with pytest.raises(ValueError, match="can't follow"):
        one.add(source, target, count)
    assert one == irregular()


RUNS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20)  # a hole, then records


@given(RUNS, st.integers(0, 3), st.integers(0, 3))
def test_runs_of_a_batch_are_added_as_one_by_one(drawn: list[tuple[int, int]], hole: int, marker: int) -> None:
    runs, at = [], 7 + hole
    for gap, count in drawn:
        runs.append((at, count))
        at += count + gap
    together, apart = OffsetMap(5, 1), OffsetMap(5, 1)
    for each in (together, apart):
        each.add(5, 1, 2)
    together.add_spans(array("q", chain(*runs)), 3 + marker)
    target = 3 + marker
    for first, count in runs:
        apart.add(first, target, count)
        target += count
    assert together == apart
    assert together.last == apart.last


@pytest.mark.parametrize(
    ("runs", "target"),
    [
        ([(10, 2), (12, 1)], 5),  # no hole between them
        ([(10, 3), (12, 1)], 5),
        ([(12, 1), (10, 1)], 5),
        ([(10, 1), (12, 0)], 5),
        ([(4, 1), (8, 1)], 5),  # below the source's end
        ([(10, 1), (12, 1)], 2),  # below the target's
        ([(10, 1), (12, 1)], 2**63 - 2),
    ],
)
def test_runs_that_are_none_are_refused_and_nothing_is_added(runs: list[tuple[int, int]], target: int) -> None:
    book = OffsetMap(5, 1)
    book.add(5, 1, 2)
    with pytest.raises(ValueError, match="can't follow"):
        book.add_spans(array("q", chain(*runs)), target)
    assert len(book) == 1
    assert book.source_end == 7


def test_map_refuses_an_end_going_back_and_a_negative_start() -> None:
    with pytest.raises(ValueError, match="can't go back to 199"):
        irregular().advance(199)
    with pytest.raises(ValueError, match="can't start"):
        OffsetMap(-1, 0)


def test_piece_that_does_not_continue_the_map_is_refused() -> None:
    """A piece behind a gap, or one that contradicts the map, changes nothing."""
    one = irregular()
    for other in (OffsetMap(201, 25), OffsetMap(99, 25), OffsetMap(200, 24)):
        with pytest.raises(ValueError, match="does not continue"):
            one.extend(other)
    contradiction = OffsetMap(115, 20)
    contradiction.add(115, 20, 6)
    contradiction.advance(300)
    with pytest.raises(ValueError, match="contradicts"):
        one.extend(contradiction)
    assert one == irregular()


def test_ten_thousand_segments_take_24_bytes_each() -> None:
    one = OffsetMap(0, 0)
    for i in range(10_000):
        one.add(i * 3, i * 2, 2)
    assert sum(len(side) * side.itemsize for side in one.columns) == 24 * 10_000


@pytest.mark.parametrize(
    ("columns", "cause"),
    [
        (([0, 9], [0, 9], [2]), "different lengths"),
        (([0, 1], [0, 9], [2, 1]), "overlap"),
        (([0, 9], [5, 4], [2, 1]), "overlap, go backwards"),
        (([0, 9], [0, 9], [2, 0]), "overlap, go backwards"),
        (([0, 9], [-1, 9], [2, 1]), "stand below the start"),
    ],
)
def test_columns_that_are_no_map_are_refused(columns: tuple[list[int], ...], cause: str) -> None:
    """As a torn or foreign file may hold them."""
    source, target, count = (array("q", side) for side in columns)
    with pytest.raises(ValueError, match=cause):
        OffsetMap.of_columns((0, 0), (99, 99), (source, target, count))
