"""What an older tool wrote after its last commit, told by digests: what is on the target is not copied again."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.sync.overlap import Overlap, is_spread, overlap


def found(before: list[int], after: list[int], there: list[int], position: int = 100) -> Overlap:
    """Offsets have holes, as those of transactions and compaction have."""
    records = [(position + 3 * n + 1, digest) for n, digest in enumerate(after)]
    return overlap(before, records, Counter(there), position, position + 3 * len(after) + 5)


def test_a_tool_that_kept_no_partition_is_known_by_its_committed_records() -> None:
    assert is_spread([1, 2, 3], Counter([1, 3]), Counter([1, 2, 3]))
    assert not is_spread([1, 2, 3], Counter([2, 3]), Counter([2, 3, 4])), "the first was deleted, or is too far back"


def test_without_a_copy_the_position_stands() -> None:
    assert found([1, 2], [3, 4], [1, 2]) == Overlap(100)


def test_copies_behind_the_position_are_passed() -> None:
    assert found([1, 2], [3, 4, 5], [1, 2, 3, 4]) == Overlap(107, copies=2)


def test_a_target_with_everything_leaves_nothing_to_copy() -> None:
    """Also where the source's log ends with markers, behind its last record."""
    assert found([2], [3, 4], [2, 3, 4]) == Overlap(111, copies=2)


def test_a_tool_that_was_killed_twice_has_written_some_twice() -> None:
    assert found([1, 2], [3, 4, 5], [1, 2, 3, 4, 3]) == Overlap(107, copies=2)


def test_copies_behind_a_gap_are_counted() -> None:
    """The tool chose partitions by key, and one of them took no more: from the gap on, records would be there twice."""
    assert found([1], [2, 3, 4, 5], [1, 2, 4, 5]) == Overlap(104, copies=1, behind_gap=2)


def test_a_record_that_is_equal_to_an_earlier_one_can_not_be_told_from_it() -> None:
    assert found([1, 2], [2, 3], [1, 2]).equal == 101
    assert found([1], [2, 2, 3], [1, 2]).equal == 104


def test_equal_records_of_which_the_target_has_none_are_no_doubt() -> None:
    assert found([1], [2, 2, 3], [1]) == Overlap(100)


def test_an_equal_record_behind_a_gap_is_no_copy() -> None:
    assert found([1], [2, 3, 2], [1, 2]) == Overlap(104, copies=1)


@given(st.lists(st.integers(), unique=True, min_size=1), st.data())
def test_what_a_tool_of_one_writer_left_is_found_exactly(digests: list[int], data: st.DataObject) -> None:
    """It writes in order and, whenever it was killed, begins again at its last commit."""
    committed = data.draw(st.integers(0, len(digests)))
    attempts = data.draw(st.lists(st.integers(committed, len(digests)), max_size=4))
    there = digests[:committed] + [digest for end in attempts for digest in digests[committed:end]]
    left = found(digests[:committed], digests[committed:], there)
    written = max(attempts, default=committed) - committed
    assert (left.copies, left.behind_gap, left.equal) == (written, 0, None)
