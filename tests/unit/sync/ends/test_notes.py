"""What stays known of the source's ends, and how little of it is written again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.notes import End, SourceEnds

A, B, C = (TopicPartition(name, p) for name, p in (("orders", 0), ("orders", 1), ("a/b", 7)))
NOBODY = SourceEnds(at_ms=0)

offsets = st.integers(0, 2**60)
looks = st.builds(
    SourceEnds,
    at_ms=st.integers(1, 2**42),
    rates=st.lists(st.floats(0, 1e9), max_size=30).map(tuple),
    peaks=st.lists(st.floats(0, 1e9), max_size=30).map(tuple),
    missed_ms=st.none() | st.integers(1, 2**42),
    partitions=st.dictionaries(
        st.builds(TopicPartition, st.text("ab.-_7", min_size=1, max_size=4), st.integers(0, 9999)),
        st.builds(End, offsets, offsets, st.integers(0, 2**42)),
        max_size=8,
    ),
)


@given(looks)
def test_what_is_written_reads_back_the_same(seen: SourceEnds) -> None:
    assert notes.load("m", seen.dump("m")) == seen


def test_a_partition_without_answer_keeps_its_time() -> None:
    seen = NOBODY.after({A: (5, 7), B: (3, 3)}, [A, B], 10_000).after({B: (9, 9)}, [A, B], 20_000)
    assert seen.partitions == {A: End(5, 7, 10_000), B: End(9, 9, 20_000)} and seen.at_ms == 20_000
    assert notes.load("m", seen.dump("m")) == seen


def test_a_stable_offset_read_later_lifts_the_end() -> None:
    assert NOBODY.after({A: (8, 7)}, [A], 1).partitions[A] == End(8, 8, 1)


def test_topics_that_are_not_asked_any_more_are_forgotten() -> None:
    assert NOBODY.after({A: (5, 5), C: (1, 1)}, [A, C], 1).after({A: (6, 6)}, [A], 2).partitions == {A: End(6, 6, 2)}


def test_a_look_that_finds_nothing_new_writes_its_time_alone() -> None:
    first = NOBODY.after({A: (5, 5), C: (1, 1)}, [A, C], 10_000)
    again = first.after({A: (5, 5), C: (1, 1)}, [A, C], 20_000)
    before, after = first.dump("m"), again.dump("m")
    assert [key for key in after if after[key] != before.get(key)] == ["ends/m/look"] == list(after)[-1:]
    moved = again.after({A: (6, 6), C: (1, 1)}, [A, C], 30_000).dump("m")
    assert len([key for key in moved if moved[key] != after.get(key)]) == 2


def test_values_of_many_topics_are_few() -> None:
    many = {TopicPartition(f"t{n}", 0): (n, n) for n in range(3000)}
    assert len(NOBODY.after(many, many, 1).dump("m")) == notes.BUCKETS + 1


def test_rates_are_those_between_looks() -> None:
    """Not between a look and nothing, and not within a second, of which a clock makes anything."""
    seen = NOBODY.after({A: (100, 100)}, [A], 10_000, peak=7.0)
    assert seen.rates == seen.peaks == ()
    seen = seen.after({A: (150, 150), B: (900, 900)}, [A, B], 20_000, peak=40.0)
    assert (seen.rates, seen.peaks) == ((5.0,), (40.0,))
    assert seen.after({A: (999, 999)}, [A], 20_500).rates == (5.0,)
    for n in range(100):
        seen = seen.after({A: (150 + n, 150 + n)}, [A, B], 30_000 + n * 10_000)
    assert len(seen.rates) == len(seen.peaks) == 30


def test_what_a_newer_version_wrote_is_nothing() -> None:
    seen = NOBODY.after({A: (5, 5)}, [A], 1).dump("m")
    assert notes.load("m", {}) is None
    assert notes.load("m", seen | {"ends/m/look": b'{"v":2}'}) is None
    assert notes.load("m", seen | {"ends/m/look": b"?"}) is None
    bucket = next(iter(seen))
    assert notes.load("m", seen | {bucket: b'{"v":2}'}) == SourceEnds(at_ms=1)
