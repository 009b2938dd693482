"""The interval in which the loss lies, whatever the source did after the last look."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.losses import losses
from airflow_mirror.sync.ends.notes import End, SourceEnds

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def seen(partitions: dict[TopicPartition, End], at_ms: int = 10_000, rate: float = 0.0) -> SourceEnds:
    return SourceEnds(at_ms=at_ms, rates=(rate / 2, rate), partitions=partitions)


@st.composite
def disasters(draw: st.DrawFn) -> tuple[SourceEnds, dict[TopicPartition, int], int, int]:
    """What was noted, what was copied, when the source died, and how many records are lost.

    Each partition is a list: True is a record. The source took more after the look, no faster than it ever did.
    """
    rate, since_s = draw(st.integers(0, 40)), draw(st.integers(0, 5))
    left = rate * since_s
    ends, copied, lost = {}, {}, 0
    for tp in (A, B):
        log = draw(st.lists(st.booleans(), max_size=30))
        end = len(log)
        stable = draw(st.integers(0, end))
        more = draw(st.integers(0, left))
        left -= more
        ends[tp] = End(stable, end, 10_000)
        copied[tp] = draw(st.integers(0, end + more))
        log += [True] * more
        lost += sum(log[copied[tp] :])
    return seen(ends, rate=rate), copied, 10_000 + since_s * 1000, lost


@given(disasters())
def test_the_true_loss_is_never_above_the_estimate(case: tuple[SourceEnds, dict[TopicPartition, int], int, int]) -> None:
    noted, copied, died_ms, lost = case
    found = losses(noted, copied, [A, B], [], died_ms)
    assert found.at_least == 0 <= lost <= (found.at_most or 0)  # nobody knows which offsets hold records


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 50))
def test_the_true_loss_is_never_below_what_is_certain(stable: int, copied: int, end: int, more: int) -> None:
    """In a partition where every offset holds a record, and whatever was copied after the look."""
    end = max(stable, end)
    copied = min(copied, end + more)
    found = losses(seen({A: End(stable, end, 1)}), {A: copied}, [A], [A], 10_000)
    assert found.at_least <= end + more - copied
    assert found.at_least == max(0, stable - copied)


def test_offsets_count_as_records_only_where_all_are() -> None:
    noted = seen({A: End(90, 90, 10_000), B: End(50, 60, 10_000)})
    found = losses(noted, {A: 80, B: 45}, [A, B], [A], 12_000)
    assert (found.at_least, found.at_most) == (10, 25)
    assert [one.source for one in found.cut] == [B]
    lines = list(found.lines())
    assert lines[0].startswith("lost: at least 10 records, at most about 25")
    assert lines[1:] == []
    assert found.by_partition(1) == [
        "lost in orders-0: 10 records, from offset 80", "and 1 more",
        "cut in orders-1, perhaps: a transaction that was open from offset 50",
    ]  # fmt: skip
    assert found.by_partition(2)[1] == "lost in orders-1: 5 offsets, markers and holes among them, from offset 45"


def test_a_copy_without_transactions_counts_to_the_end() -> None:
    """It copies what is open as well: nothing is cut that a reader of the source would not have seen."""
    noted = seen({A: End(50, 60, 10_000)})
    found = losses(noted, {A: 55}, [A], [A], 10_000, committed=False)
    assert (found.at_least, found.at_most, found.cut) == (5, 5, [])


def test_what_nobody_saw_is_named_and_not_counted() -> None:
    found = losses(None, {A: 5}, [A, B], [], 10_000)
    assert (found.at_least, found.at_most, found.unknown) == (0, None, (A, B))
    assert "not known" in next(found.lines())
    half = losses(seen({A: End(9, 9, 10_000)}), {B: 3}, [A, B], [], 10_000)
    assert half.unknown == (A, B) and half.to_dict()["unknown"] == {"count": 2, "first": ["orders-0", "orders-1"]}


def test_a_partition_unseen_for_longer_may_have_taken_more() -> None:
    noted = seen({A: End(9, 9, 4_000), B: End(9, 9, 10_000)}, rate=10)
    found = losses(noted, {A: 9, B: 9}, [A, B], [A, B], 12_000)
    assert (found.age_s, found.at_most) == (2.0, 90)


def test_what_the_target_has_beyond_the_last_look_is_not_lost() -> None:
    """Of what the source may have taken since then."""
    noted = replace(seen({A: End(90, 90, 10_000)}, rate=10), missed_ms=12_000)
    found = losses(noted, {A: 95}, [A], [A], 99_000)
    assert (found.missed_s, found.at_most, found.until_now) == (2.0, 25, 895)


@pytest.mark.parametrize(
    ("missed_ms", "at_most"), [(10_500, 60), (11_000, 80), (15_000, 150), (19_000, 190), (40_000, 400)]
)
def test_a_burst_counts_by_the_second_and_by_ten(missed_ms: int, at_most: int) -> None:
    """The busiest second for a second longer than that, but not more than the busiest ten, for ten longer: cut in two."""
    noted = SourceEnds(
        at_ms=10_000, rates=(3.0, 10.0), peaks=(40.0, 20.0), missed_ms=missed_ms, partitions={A: End(9, 9, 10_000)}
    )  # fmt: skip
    assert losses(noted, {A: 9}, [A], [A], 60_000).at_most == at_most


def test_a_clock_that_is_behind_makes_no_negative_age() -> None:
    found = losses(seen({A: End(9, 9, 10_000)}, rate=10), {A: 9}, [A], [A], 1_000)
    assert (found.age_s, found.at_most) == (0.0, 0)
