"""Which records of the maps topic make up a map: of the present copy, the newest writer's first, up to the first gap."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from airflow_mirror.copy.offsets import pieces

NAME, ID, TOKEN = "m/orders/3", "topic-id", "token"


def begin(version: int, token: str = TOKEN, topic_id: str = ID, start: int = 0) -> str:
    return pieces.Origin(start, 7, token, version).key(NAME, topic_id)


def piece(version: int, start: int, end: int, token: str = TOKEN, topic_id: str = ID) -> str:
    return pieces.piece_key(NAME, topic_id, token, version, (start, end, 1))


def counted(keys: Iterable[str], topic_id: str = ID) -> list[tuple[int, int, int]] | None:
    """Return (version, start, until) of the pieces that count, of keys in the order of their offsets."""
    found = pieces.stored({key: offset for offset, key in enumerate(keys)}, topic_id)
    return None if found is None else [(one.version, one.start, one.until) for one in found.pieces]


@pytest.mark.parametrize(
    ("later", "counts"),
    [
        ([piece(2, 10, 20), piece(2, 20, 30)], [(1, 0, 5), (1, 5, 10), (2, 10, 20), (2, 20, 30)]),
        ([piece(2, 10, 20), piece(1, 10, 40)], [(1, 0, 5), (1, 5, 10), (2, 10, 20)]),
        ([piece(2, 10, 20), piece(1, 5, 40)], [(1, 0, 5), (1, 5, 10), (2, 10, 20)]),
        ([piece(2, 10, 20), piece(1, 10, 20), piece(1, 20, 90)], [(1, 0, 5), (1, 5, 10), (2, 10, 20)]),
        ([piece(2, 7, 20)], [(1, 0, 5), (1, 5, 7), (2, 7, 20)]),
        ([piece(2, 0, 10)], [(2, 0, 10)]),
        ([piece(1, 0, 10)], [(1, 0, 10)]),
        ([piece(1, 12, 20)], [(1, 0, 5), (1, 5, 10)]),
        ([piece(3, 10, 12), piece(2, 10, 40), piece(1, 10, 50)], [(1, 0, 5), (1, 5, 10), (3, 10, 12)]),
        ([piece(9, 10, 12, token="other"), piece(9, 10, 12, topic_id="old")], [(1, 0, 5), (1, 5, 10)]),
    ],
    ids=[
        "the next writer", "thawed beside it", "thawed and joined", "thawed and ahead", "went back", "joined by the next",
        "joined by the same", "a gap", "three writers", "of other copies",
    ],
)  # fmt: skip
def test_higher_versions_count_from_where_they_begin(later: list[str], counts: list[tuple[int, int, int]]) -> None:
    keys = [begin(1), piece(1, 0, 5), piece(1, 5, 10), *later]
    assert counted(keys) == counts
    assert sorted(counted([keys[0], *reversed(keys[1:])]) or ()) == sorted(counts), "whatever came first"


def test_newest_origin_counts_and_of_a_tie_the_first() -> None:
    keys = [begin(1), piece(1, 0, 5), begin(2, "b"), piece(2, 0, 9, "b"), begin(2, "late"), piece(2, 0, 3, "late")]
    assert counted(keys) == [(2, 0, 9)]
    assert counted(keys[:2]) == [(1, 0, 5)]
    assert counted(keys[1:2]) is None and counted(keys, "another id") is None


def test_topic_without_an_id_has_a_map_all_the_same() -> None:
    """On a cluster whose inter.broker.protocol.version is below 2.8."""
    keys = [begin(1, topic_id=""), piece(1, 0, 5, topic_id="")]
    assert counted(keys, "") == [(1, 0, 5)]
    assert pieces.begun(keys) == {("orders", "")}


def test_what_counts_no_more_is_left_over() -> None:
    keys = [begin(1), piece(1, 0, 5), piece(1, 5, 10), piece(2, 0, 10), piece(1, 10, 12), piece(2, 90, 99)]
    found = pieces.stored({key: offset for offset, key in enumerate(keys)}, ID)
    assert found is not None
    assert set(found.leftover) == {piece(1, 0, 5), piece(1, 5, 10), piece(1, 10, 12), piece(2, 90, 99)}


def test_versions_are_counted_over_all_copies_of_a_name() -> None:
    """So a copy that begins anew is newer than any writer of those before."""
    assert pieces.highest_version([]) == 0
    assert pieces.highest_version([begin(3, "a", "old"), piece(11, 0, 5, "b"), begin(2)]) == 11


@pytest.mark.parametrize("key", ["", "write", "a/b/c/d/e/f/g", "a/b/c/d/e/1/g/h", "a/b/c/d/e/-1/g"])
def test_records_of_other_kinds_belong_to_no_map(key: str) -> None:
    assert pieces.name_of(key) is None


def test_a_key_names_its_map() -> None:
    assert pieces.name_of(begin(1)) == pieces.name_of(piece(1, 0, 5)) == NAME
