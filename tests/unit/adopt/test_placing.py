"""The rule: where a group goes on in a log that repeats itself, against a search through all places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.extras.adopt.alignment import Run, Span
from airflow_mirror.extras.adopt.placing import Placed, between, length, place, without


def runs_of(pieces: list[tuple[int, int]], gap: int = 0) -> list[Run]:
    """Return runs that follow each other on the target, given their source's start and end."""
    found, at = [], 0
    for start, end in pieces:
        found.append(Run(start, at, end - start))
        at += end - start + gap
    return found


def held(runs: list[Run]) -> dict[int, int]:
    return {run.target + i: run.source + i for run in runs for i in range(run.count)}


def searched(runs: list[Run], record: int) -> int | None:
    """Return the last place from which on the target has everything from ``record`` on, in order."""
    log = sorted(held(runs).items())
    every = sorted({source for _, source in log if source >= record})
    for first in range(len(log) - 1, -1, -1):
        seen: list[int] = []
        for _, source in log[first:]:
            if source >= record and source not in seen:
                seen.append(source)
        if seen == every:
            return log[first][0]
    return None


def places(placed: Placed) -> dict[int, int]:
    return {source: target for target, source in held(list(placed.runs)).items()}


def test_without_a_crash_each_record_has_one_place() -> None:
    placed = place(runs_of([(0, 100)]))
    assert placed.runs == [Run(0, 0, 100)] and not placed.repeated and not placed.missing


def test_what_was_sent_again_is_read_from_its_last_copy() -> None:
    placed = place(runs_of([(0, 100), (60, 150)]))
    assert placed.runs == [Run(0, 0, 60), Run(60, 100, 90)]
    assert placed.repeated == 40


def test_last_copy_does_not_count_where_the_log_ends_in_the_middle_of_repeating() -> None:
    # From the second copy of 10 on, 50 to 99 are not there any more.
    placed = place(runs_of([(0, 100), (0, 50)]))
    assert placed.runs == [Run(0, 0, 100)] and placed.repeated == 50


def test_a_second_crash_while_repeating_leaves_the_third_copy_only() -> None:
    placed = place(runs_of([(0, 100), (40, 70), (40, 120)]))
    assert placed.runs == [Run(0, 0, 40), Run(40, 130, 80)]


def test_a_second_crash_while_repeating_that_went_on_behind_it() -> None:
    # The second run ended at 70, and the third begins at 60: 40 to 59 are read from the second one.
    placed = place(runs_of([(0, 100), (40, 70), (60, 120)]))
    assert placed.runs == [Run(0, 0, 40), Run(40, 100, 20), Run(60, 130, 60)]


def test_skipped_records_are_missing_and_named() -> None:
    placed = place(runs_of([(0, 10), (13, 20)]))
    assert placed.missing == [Span(10, 13)] and placed.runs == [Run(0, 0, 10), Run(13, 10, 7)]


def test_records_that_can_only_be_read_out_of_order_are_named() -> None:
    placed = place(runs_of([(5, 10), (0, 3)]))
    assert placed.disordered == [Span(0, 3)] and placed.runs == [Run(5, 0, 5)]


PIECES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=7)


@given(PIECES)
def test_place_is_the_last_one_from_which_nothing_is_lost(pieces: list[tuple[int, int]]) -> None:
    runs = runs_of(pieces, gap=2)
    found = places(placed := place(runs))
    for record in set(held(runs).values()):
        assert found.get(record) == searched(runs, record)
    disordered = {i for start, end in placed.disordered for i in range(start, end)}
    assert disordered == set(held(runs).values()) - set(found)


@given(PIECES)
def test_places_rise_with_their_records(pieces: list[tuple[int, int]]) -> None:
    chosen = place(runs_of(pieces)).runs
    assert all(a.source_end <= b.source and a.target_end <= b.target for a, b in zip(chosen, chosen[1:], strict=False))


SPANS = st.sets(st.integers(0, 30)).map(sorted).map(lambda some: [Span(i, i + 1) for i in some])


@given(SPANS, SPANS)
def test_spans_are_subtracted_record_by_record(left: list[Span], right: list[Span]) -> None:
    expected = {a.start for a in left} - {b.start for b in right}
    assert {i for start, end in without(left, right) for i in range(start, end)} == expected


def test_lengths_and_gaps() -> None:
    assert length([Span(0, 3), Span(5, 6)]) == 4 and between([Span(0, 3), Span(5, 6)]) == [Span(3, 5)]
