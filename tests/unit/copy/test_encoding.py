"""A piece of an offset map as a record's value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.copy.offsets import encoding
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.ledger.kinds import MOST_BYTES

OFFSETS = st.integers(0, 2**40)


@st.composite
def maps(draw: st.DrawFn) -> OffsetMap:
    one = OffsetMap(draw(OFFSETS), draw(OFFSETS))
    for gap, other, count in draw(st.lists(st.tuples(OFFSETS, OFFSETS, st.integers(1, 2**40)), max_size=20)):
        one.add(one.source_end + gap, one.target_end + other, count)
    one.advance(one.source_end + draw(st.integers(0, 9)), one.target_end + draw(st.integers(0, 9)))
    return one


@given(maps())
def test_piece_is_what_it_was_when_it_is_read(piece: OffsetMap) -> None:
    assert encoding.decode(encoding.encode(piece)) == piece


@given(maps(), st.integers(1, 7))
def test_split_map_is_the_same_when_it_is_joined(whole: OffsetMap, largest: int) -> None:
    several = list(encoding.split(whole, largest))
    joined = OffsetMap(whole.source_start, whole.target_start)
    for one in several:
        assert len(one) <= largest and one.source_start == joined.source_end
        joined.extend(one)
    assert joined == whole


def test_value_is_json_of_gaps_and_counts() -> None:
    piece = OffsetMap(100, 7)
    piece.add(100, 7, 10)
    piece.add(115, 19, 6)
    piece.advance(200, 26)
    assert json.loads(encoding.encode(piece)) == {
        "v": 1, "source": [100, 200], "target": [7, 26], "gaps": [[0, 5], [0, 2]], "counts": [10, 6],
    }  # fmt: skip


def test_largest_piece_is_taken_by_any_broker() -> None:
    piece, big = OffsetMap(0, 0), 2**63 // encoding.LARGEST // 3
    for _ in range(encoding.LARGEST):
        piece.add(piece.source_end + big, piece.target_end + big, big)
    assert len(encoding.encode(piece)) < MOST_BYTES


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"v": None}, {"counts": [1]}, {"counts": [0, 1]}, {"counts": [1, "2"]}, {"counts": [2**70, 1]},
        {"gaps": [[0, 1]]}, {"gaps": [[0, -5], [0, 2]]}, {"source": [100]}, {"source": [100, 90]}, {"target": None},
    ],
    ids=str,
)  # fmt: skip
def test_value_that_is_no_piece_is_refused(change: dict[str, object]) -> None:
    good = {"v": 1, "source": [100, 200], "target": [7, 26], "gaps": [[0, 5], [0, 2]], "counts": [10, 6]}
    encoding.decode(json.dumps(good).encode())
    with pytest.raises(ValueError, match=r"."):
        encoding.decode(json.dumps(good | change).encode())


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_json_object_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        encoding.decode(value)
