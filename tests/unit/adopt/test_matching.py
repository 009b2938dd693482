"""Match two logs with markers, holes, aborted records and repetitions, and translate every offset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Where
from airflow_mirror.extras.adopt.alignment import Span
from airflow_mirror.extras.adopt.matching import Match, match
from airflow_mirror.extras.adopt.reading import Log, Offsets
from airflow_mirror.verify.result import LogBounds

TPS = TopicPartition("orders", 0), TopicPartition("A.orders", 0)


def log(records: Sequence[tuple[int, int]], end: int | None = None, start: int = 0, aborted: Sequence[int] = ()) -> Log:
    """Return a log of (offset, content). :param aborted: offsets."""
    offsets = Offsets()
    for offset, _ in records:
        offsets.append(offset)
    gone = [Span(i, i + 1) for i, (offset, _) in enumerate(records) if offset in aborted]
    end = records[-1][0] + 1 if end is None and records else end or start
    digests = np.array([c for _, c in records], dtype=np.uint64)
    return Log(bounds=LogBounds(start, end, end), digests=digests, offsets=offsets, aborted=gone, undecided=[])


def dense(contents: Sequence[int], start: int = 0) -> Log:
    return log([(start + i, c) for i, c in enumerate(contents)], start=start)


def found(source: Log, target: Log, committed: bool = True) -> Match:
    return match(TPS, source, target, committed=committed)


def test_a_mirror_goes_on_after_the_last_copy_wherever_the_log_ends() -> None:
    one = found(dense(range(100, 200)), dense([*range(100, 150), *range(100, 120)]))
    assert one.next_offset == 50 and one.counts["repeated"] == 20
    assert one.ranges["repeated"] == [(50, 70)]
    assert one.through is not None and one.through.target_log_end == 70
    assert one.through.to_target(20) == (20, Where.RECORD)


def test_aborted_records_are_counted_and_a_committed_map_leaves_them_out() -> None:
    source = log([(i, i) for i in range(10)], aborted=[4, 5])
    target = dense(range(10))
    one = found(source, target)
    assert one.counts["aborted"] == 2 and one.ranges["aborted"] == [(4, 5), (5, 6)]
    assert one.through is not None and one.through.to_target(4) == (6, Where.HOLE)
    everything = found(source, target, committed=False).through
    assert everything is not None and everything.to_target(4) == (4, Where.RECORD)


def test_what_was_aborted_is_not_missing_from_a_target_that_reads_committed() -> None:
    one = found(log([(i, i) for i in range(10)], aborted=[4, 5]), dense([0, 1, 2, 3, 6, 7, 8, 9]))
    assert one.counts["missing"] == 0 and one.counts["aborted"] == 0
    assert one.through is not None and one.through.to_target(5) == (4, Where.HOLE)


def test_log_whose_copies_are_all_gone_tells_nothing_of_what_was_copied() -> None:
    source = dense(range(100))
    one = found(source, log([], start=500))
    assert one.is_lost and one.through is None and (one.target_start, one.target_end) == (500, 500)
    assert not found(source, log([], end=1)).is_lost, "a marker of a transaction that was aborted"
    assert not found(log([], start=100), log([], start=500)).is_lost
    assert not found(source, dense(range(90, 95), start=500)).is_lost


def test_a_record_that_the_target_lacks_is_named() -> None:
    one = found(dense(range(10)), dense([0, 1, 2, 4, 5]))
    assert one.counts["missing"] == 1 and "orders-0: 1 records missing, at source offsets [3, 4)" in one.named("missing")


def test_records_from_before_the_sources_first_one_are_older_not_unknown() -> None:
    source = dense(range(50, 100), start=50)
    one = found(source, dense([*range(40, 60), *range(45, 80)]))  # a crash at 60, and again from 45 on
    assert one.counts["older"] == 15 and one.counts["unknown"] == 0 and one.counts["repeated"] == 10
    assert one.through is not None and one.through.source_start == 50
    assert one.through.to_target(50) == (25, Where.RECORD)


def test_copies_of_a_source_that_retention_has_emptied_are_older() -> None:
    one = found(log([], start=100), dense(range(40, 100)))
    assert one.counts["older"] == 60 and one.counts["unknown"] == 0 and one.through is None and not one.is_lost
    assert found(log([], end=3), dense(range(40))).counts["unknown"] == 40, "it never had any: its log starts at 0"


def test_records_of_another_producer_are_unknown() -> None:
    one = found(dense(range(10)), dense([0, 1, 99, 2, 3]))
    assert one.counts["unknown"] == 1 and one.ranges["unknown"] == [(2, 3)]


def test_a_target_without_copies_has_no_map() -> None:
    one = found(dense(range(10)), dense([77, 78]))
    assert one.through is None and one.next_offset is None and one.counts["unknown"] == 2


def test_a_target_that_began_later_says_what_it_left_out() -> None:
    one = found(dense(range(10)), dense(range(6, 9)))
    assert one.counts["left out at the start"] == 6
    assert one.through is not None and one.through.source_start == 6 and one.through.to_target(3).where is Where.BEFORE


@st.composite
def mirrored(draw: st.DrawFn) -> tuple[Log, Log, list[tuple[int, int]], set[int]]:
    """A source with holes and aborted records, a target with repetitions and markers: (target offset, source offset)."""
    gaps = draw(st.lists(st.integers(0, 3), min_size=1, max_size=60))
    start = draw(st.integers(0, 5))
    offsets, at = [], start
    for gap in gaps:
        offsets.append(at + gap)
        at += gap + 1
    aborted = set(draw(st.sets(st.sampled_from(offsets), max_size=10)))
    reads_committed = draw(st.booleans())
    sent, at = [], 0
    for count, back in draw(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=6)):
        sent += offsets[at : at + count]
        at = max(0, min(at + count, len(offsets)) - back)
    sent = [one for one in sent if not (reads_committed and one in aborted)]
    held, there = [], 0
    for one in sent:
        there += draw(st.integers(0, 8)) // 7  # a marker of the target's now and then
        held.append((there, one))
        there += 1
    source = log([(o, o * 31 + 7) for o in offsets], end=offsets[-1] + 1, start=start, aborted=sorted(aborted))
    target = log([(t, o * 31 + 7) for t, o in held], end=there)
    return source, target, held, aborted


@given(mirrored())
def test_every_offset_is_translated_as_a_search_would(logs: tuple[Log, Log, list[tuple[int, int]], set[int]]) -> None:
    source, target, held, aborted = logs
    one = found(source, target)
    if one.through is None:
        assert not held
        return
    through, copied = one.through, {s for _, s in held}
    end = max(copied) + 1
    assert one.next_offset == end and not one.counts["unknown"] and not one.counts["missing"]
    last = {s: max(t for t, other in held if other == s) for s in copied}
    for group in range(through.source_start, end + 1):
        later = sorted(s for s in copied - aborted if s >= group)
        if not later:
            assert through.to_target(group).offset in (through.target_end, through.target_log_end)
            continue
        there = through.to_target(group).offset
        # It stands at a copy of its next record, and all others are there, in order, from it on.
        assert (there, later[0]) in held and there <= last[later[0]]
        met: list[int] = []
        for t, s in held:
            if t >= there and s in later and s not in met:
                met.append(s)
        assert met == later
