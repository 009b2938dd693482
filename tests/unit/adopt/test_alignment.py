"""Which source record each record of a target log is a copy of: logs as MirrorMaker 2 leaves them, and worse ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_mirror.extras.adopt.alignment import Digests, Run, Span, align
from airflow_mirror.extras.adopt.placing import place


def log(values: Sequence[int]) -> Digests:
    return np.array(values, dtype=np.uint64)


def unique(count: int) -> Digests:
    return log([i * 7_919 + 13 for i in range(count)])


def named(runs: Sequence[Run]) -> dict[int, int]:
    return {run.target + i: run.source + i for run in runs for i in range(run.count)}


def test_equal_logs_are_one_run() -> None:
    source = unique(100_000)
    found = align(source, source)
    assert found.runs == [Run(0, 0, 100_000)] and not found.unmatched and not found.ambiguous


def test_nothing_and_nothing() -> None:
    assert align(log([]), log([])).runs == [] and align(unique(3), log([])).runs == []
    assert align(log([]), unique(3)).unmatched == [Span(0, 3)]


def test_a_crash_is_a_run_that_begins_before_the_end_of_the_last_one() -> None:
    source = unique(1000)
    target = np.concatenate([source[:700], source[450:]])
    assert align(source, target).runs == [Run(0, 0, 700), Run(450, 700, 550)]


def test_records_of_others_are_named_and_what_follows_goes_on() -> None:
    source = unique(50)
    target = np.concatenate([log([1, 2]), source[:20], log([3]), source[20:]])
    found = align(source, target)
    assert found.unmatched == [Span(0, 2), Span(22, 23)]
    assert found.runs == [Run(0, 2, 20), Run(20, 23, 30)]


def test_a_log_of_identical_records_is_ambiguous_as_a_whole() -> None:
    found = align(log([5] * 100), log([5] * 60))
    assert found.runs == [Run(0, 0, 60)] and found.ambiguous == [Span(0, 60)]


def test_identical_records_between_unique_ones_are_not_ambiguous() -> None:
    source = log([1, 9, 9, 9, 2, 3])
    assert align(source, source).ambiguous == []


def test_identical_records_where_it_crashed_are_ambiguous_and_the_later_copies_count() -> None:
    # Was the fourth 9 sent again, or all three, or two? Read from the last three, nothing is missing.
    source = log([1, 9, 9, 9, 2, 3])
    found = align(source, log([1, 9, 9, 9, 9, 2, 3]))
    assert found.runs == [Run(0, 0, 2), Run(1, 2, 5)]
    assert found.ambiguous == [Span(1, 5)]


def test_a_run_that_seems_to_go_on_by_chance_gives_up_what_a_longer_one_explains() -> None:
    source = log([8, 1, 8, 2, 3])
    found = align(source, log([8, 1, 8, 1, 8, 2, 3]))  # crashed after two records
    assert found.runs == [Run(0, 0, 2), Run(0, 2, 5)]


# Each crash: how far it had come beyond its start, and how far back it begins again.
CRASHES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=8)


def mirrored(crashes: list[tuple[int, int]], count: int) -> list[int]:
    """Return the source indexes that MirrorMaker 2 leaves on the target."""
    found: list[int] = []
    at = 0
    for sent, back in crashes:
        found += range(at, min(at + sent, count))
        at = max(0, min(at + sent, count) - back)
    return found


@given(CRASHES, st.sets(st.integers(0, 120)), st.sets(st.integers(0, 200)))
def test_unique_records_are_found_whatever_was_sent_again_dropped_or_is_foreign(
    crashes: list[tuple[int, int]], dropped: set[int], foreign: set[int]
) -> None:
    source = unique(120)
    held: list[int | None] = [i for i in mirrored(crashes, 120) if i not in dropped]
    for place_of_it in sorted(foreign):
        if place_of_it <= len(held):
            held.insert(place_of_it, None)
    target = log([3 + 4 * n if i is None else int(source[i]) for n, i in enumerate(held)])
    clear = {n for n, i in enumerate(held) if i is None and int(target[n]) not in set(source.tolist())}
    found = align(source, target)
    assert {n: i for n, i in enumerate(held) if i is not None}.items() <= named(found.runs).items()
    assert clear == {i for start, end in found.unmatched for i in range(start, end)}
    assert not found.ambiguous


def is_subsequence(some: Sequence[int], of: Sequence[int]) -> bool:
    rest = iter(of)
    return all(one in rest for one in some)


@example([1, 1, 1, 1], [(2, 1), (3, 0)])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), CRASHES)
def test_of_repeated_records_none_is_lost_or_it_is_said(source: list[int], crashes: list[tuple[int, int]]) -> None:
    # Whatever the explanation: who goes on at its place, and then at what follows the map, gets every record.
    target = [source[i] for i in mirrored(crashes, len(source))]
    placed = place(align(log(source), log(target)).runs)
    if placed.missing or placed.disordered:
        return
    end = placed.covered[-1].end
    assert placed.covered[0].start == 0 or source[: placed.covered[0].start]
    for run in placed.runs:
        for i in range(run.count):
            rest = target[run.target + i :] + source[end:]
            assert is_subsequence(source[run.source + i :], rest)
