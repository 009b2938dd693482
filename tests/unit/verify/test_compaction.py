"""Comparison of logs that log cleaners have thinned, each side for itself."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.verify.compaction import Gaps
from airflow_mirror.verify.compare import compare
from airflow_mirror.verify.result import Difference
from airflow_mirror.wire.records import Record
from tests.unit.verify.test_compare import log

BOTH = ("source", "target")


def a_log(*rows: tuple[int, str, str | None]) -> list[Record]:
    return [Record(at, 1000 + at, key.encode(), value and value.encode(), []) for at, key, value in rows]


def judged(source: list[Record], target: list[Record], end: int = 1000, by_batch: bool = True) -> Difference | None:
    """What a comparison up to ``end`` says that reads on as `verify.partition` does."""
    sizes = (3,) * 400
    found = compare(log(source, *sizes), log(target, *sizes), (0, end), by_batch=by_batch, cleaned_on=BOTH)
    if found.difference is not None or not found.gaps:
        return found.difference
    for record in [*source, *target]:
        if record.offset >= end:
            found.gaps.seen(record)
    if (lost := found.gaps.lost(False)) is not None:
        return lost
    for side, records in (("source", source), ("target", target)):
        for record in records:
            if record.offset < end and found.gaps.lacks(side):
                left = found.gaps.left_behind(side, record, False)
                if left is not None:
                    return left
    return None


def cleaned(history: list[Record], rng: random.Random, old: int) -> list[Record]:
    """What a cleaner leaves that came as far as some offset: tombstones before ``old`` go as well."""
    dirty = rng.randint(0, len(history))
    last = {record.key: record.offset for record in history[:dirty]}
    return [
        r
        for r in history
        if r.offset >= dirty or (last[r.key] == r.offset and not (r.value is None and r.offset < min(old, dirty)))
    ]


def state(records: list[Record]) -> dict[bytes | None, bytes | None]:
    """What a reader ends up with."""
    latest = {r.key: r.value for r in records}
    return {key: value for key, value in latest.items() if value is not None}


HISTORY = a_log((0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", "1"), (4, "b", None), (5, "a", "3"), (6, "d", "1"))


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", None])), max_size=40), st.randoms())
def test_logs_that_only_cleaners_have_thinned_are_equal(rows: list[tuple[str, str | None]], rng: random.Random) -> None:
    history = a_log(*((at, key, value) for at, (key, value) in enumerate(rows)))
    source, target = (cleaned(history, rng, rng.randint(0, 40)) for _ in range(2))
    for end in (1000, rng.randint(0, 40)):
        assert judged(source, target, end, rng.random() < 0.5) is None


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", None])), min_size=1, max_size=30), st.randoms()
)
def test_last_value_of_a_key_that_is_gone_is_a_difference(rows: list[tuple[str, str | None]], rng: random.Random) -> None:
    """Whatever else the cleaners did: readers of the two sides would end up with another state."""
    history = a_log(*((at, key, value) for at, (key, value) in enumerate(rows)))
    source, target = (cleaned(history, rng, 0) for _ in range(2))
    (side := rng.choice([source, target])).remove(gone := rng.choice(side))
    if state(source) != state(target):
        assert judged(source, target) is not None
    elif any(r.key == gone.key and r.offset > gone.offset for r in side):
        assert judged(source, target) is None


@pytest.mark.parametrize("lost", [3, 5, 6])
def test_lost_last_value_names_its_offset_and_side(lost: int) -> None:
    less = [r for r in HISTORY if r.offset != lost]
    missing, extra = judged(HISTORY, less), judged(less, HISTORY)
    assert missing and (missing.offset, missing.kind) == (lost, "missing") and missing.source
    assert extra and (extra.offset, extra.kind) == (lost, "extra") and extra.target


def test_lost_tombstone_whose_key_still_has_a_value_is_a_difference() -> None:
    without = [r for r in HISTORY if r.offset != 4]
    found = judged(HISTORY, without)
    assert found and found.offset == 4 and "still has its key at offset 1" in str(found)
    assert judged(HISTORY, [r for r in without if r.offset != 1]) is None


def test_later_record_in_a_batch_that_both_sides_have_settles_it() -> None:
    """The batch is not passed over as a whole while a record of its keys is waited for."""
    # The batch behind the gap is read record by record anyway: the one after it counts.
    source = a_log((0, "x", "1"), (1, "a", "1"), (2, "b", "1"), (3, "c", "1"), (4, "a", "2"), (5, "d", "1"))
    target = [r for r in source if r.offset != 1]
    found = compare(log(source, 2, 2, 2), log(target, 1, 2, 2), (0, 6), by_batch=True, cleaned_on=BOTH)
    assert found.difference is None and found.gaps is not None and found.gaps.count == 1 and not found.gaps


def test_later_record_behind_the_compared_range_settles_it() -> None:
    target = [r for r in HISTORY if r.offset != 2]
    assert judged(HISTORY, target, end=5) is None
    lost = compare(log(HISTORY), log(target), (0, 5), cleaned_on=BOTH).gaps
    assert lost is not None and lost.lost(False) is not None and lost.count == 1


def test_what_only_a_cleaner_may_have_taken_is_lost_on_the_other_side() -> None:
    """Until its backlog has arrived, the target is not compacted: a record that it lacks is no cleaner's work."""
    thin = [r for r in HISTORY if r.offset != 2]
    assert compare(log(thin), log(HISTORY), (0, 9), cleaned_on=("source",)).difference is None
    lost = compare(log(HISTORY), log(thin), (0, 9), cleaned_on=("source",)).difference
    assert lost and (lost.offset, lost.kind) == (2, "missing")


def test_topic_that_is_not_compacted_takes_no_gap() -> None:
    found = compare(log(HISTORY), log([r for r in HISTORY if r.offset != 0]), (0, 9)).difference
    assert found and (found.offset, found.kind) == (0, "missing")


def test_record_without_a_key_is_no_cleaners_work() -> None:
    record = Record(0, 1, None, b"x", [])
    assert not Gaps(BOTH).lone(record, 0)
    found = compare(log([record, *HISTORY[1:]]), log(HISTORY[1:]), (0, 9), cleaned_on=BOTH)
    assert found.difference and found.difference.kind == "missing"


def test_changed_value_is_a_difference_in_a_compacted_topic_too() -> None:
    changed = [r._replace(value=b"other") if r.offset == 5 else r for r in HISTORY]
    found = judged(HISTORY, changed)
    assert found and (found.offset, found.kind) == (5, "value")


def test_mapped_offsets_of_a_lost_value_are_both_named() -> None:
    through = OffsetMap(0, 100)
    through.add(0, 100, 7)
    there = [r._replace(offset=r.offset + 100) for r in HISTORY if r.offset != 5]
    gaps = compare(
        log(HISTORY), log(there), (0, 7), through=through, cleaned_on=BOTH
    ).gaps  # fmt: skip
    lost = gaps and gaps.lost(True)
    assert lost and (lost.offset, lost.target_offset) == (5, 105)
