"""The demo's judgement without brokers: what counts as equal, re-read, lost, and which exit status follows."""

from __future__ import annotations

import io
import random

import pytest
from rich.console import Console

from demo.clients import Partition
from demo.records import hostile
from demo.referee import Row, compare_rows
from demo.table import print_verdict
from demo.traffic import number_of, value_of
from demo.verdict import Difference, GroupResult, TopicResult, TrafficResult, Verdict, count_traffic

P = Partition("orders", 4)


def row(offset: int, value: bytes | None = b"v", at_ms: int = 1_600_000_000_000) -> Row:
    return (offset, (1, at_ms), b"k", value, None)


def compare(source: list[list[Row]], target: list[list[Row]]) -> tuple[Difference | None, int]:
    equal: list[Row] = []
    return compare_rows(P, iter(source), iter(target), equal.extend), len(equal)


def test_chunks_of_different_sizes_are_equal_when_their_records_are() -> None:
    rows = [row(o) for o in (3, 4, 9, 10, 31)]
    assert compare([rows[:4], rows[4:]], [rows[:1], rows[1:3], rows[3:]]) == (None, 5)


@pytest.mark.parametrize(
    ("target", "offset", "what"),
    [
        ([row(3), row(9), row(31)], 4, "the target has none"),
        ([row(3), row(4), row(5), row(9), row(31)], 5, "the source has none"),
        ([row(3), row(4), row(9)], 31, "the target has none"),
        ([row(3), row(4), row(9), row(31), row(32)], 32, "the source has none"),
        ([row(3), row(4, b"w"), row(9), row(31)], 4, "value b'v' became b'w'"),
        ([row(3), row(4, None), row(9), row(31)], 4, "value b'v' became None"),
        ([row(3), row(4), row(9, at_ms=1_600_000_000_001), row(31)], 9, "timestamp"),
    ],
)
def test_first_difference_is_named_by_offset_and_field(target: list[Row], offset: int, what: str) -> None:
    source = [row(3), row(4), row(9), row(31)]
    for size in (1, 2, 4):
        chunks = [[rows[i : i + size] for i in range(0, len(rows), size)] for rows in (source, target)]
        found, _ = compare(*chunks)
        assert found is not None
        assert (found.partition, found.offset) == (P, offset)
        assert what in found.what


def test_same_seed_makes_the_same_records() -> None:
    once, again = (list(hostile(random.Random("3"), 400, 1_500_000_000_000, 86_400_000)) for _ in range(2))
    assert once == again
    assert all(r.timestamp_ms > 0 for r in once)


def test_sequence_number_survives_its_value() -> None:
    assert [number_of(value_of(n)) for n in (0, 7, 999_999_999_999)] == [0, 7, 999_999_999_999]


def test_records_read_twice_or_never_are_counted_by_number() -> None:
    result = count_traffic([0, 1, 2, 5], [3, 4], refused=2, read=[0, 1, 1, 3, 5, 4], silent_s=2.5)
    assert (result.reread, result.lost) == ([1], [2])
    assert [p.split(":")[0] for p in result.problems] == ["live group", "live group"]


def test_record_that_was_read_but_never_acknowledged_is_no_fault() -> None:
    assert count_traffic([0, 2], [3], refused=0, read=[0, 1, 2, 3], silent_s=0.0).problems == []


def test_traffic_that_never_reached_the_target_proves_nothing() -> None:
    assert "without both nothing is shown" in count_traffic([1], [], 0, [1], 0.0).problems[0]


def verdict(**changes: object) -> Verdict:
    good: dict[str, object] = {
        "topics": [TopicResult("orders", partitions=5, records=10)],
        "groups": [GroupResult("billing", {P: 7}, {P: 7})],
        "traffic": TrafficResult(acknowledged_source=3, acknowledged_target=2),
    }
    return Verdict(**{**good, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "Equal"),
        ({"topics": [TopicResult("orders", 5, 9, differences=[Difference(P, 31, "gone")])]}, "orders-4 offset 31: gone"),
        ({"topics": [TopicResult("orders", 5, 9, offsets=[Difference(P, 32, "ends")])]}, "orders-4 offset 32: ends"),
        ({"topics": [TopicResult("orders", 5)]}, "no record was compared"),
        (
            {"groups": [GroupResult("billing", {P: 7}, {P: 8})]},
            "'billing' on orders-4: stood at offset 7, now at offset 8",
        ),
        ({"groups": [GroupResult("billing", {P: 7}, {})]}, "now at no offset"),
        ({"groups": [GroupResult("billing", {}, {P: 1})]}, "stood at no offset, now at offset 1"),
        ({"traffic": TrafficResult(3, 2, reread=[17])}, "read twice, the first is number 17"),
        ({"traffic": TrafficResult(3, 2, lost=[18])}, "never read, the first is number 18"),
        ({"traffic": TrafficResult(3, 2, unexpected=["live producer: broken"])}, "live producer: broken"),
    ],
)
def test_exit_status_follows_from_what_was_found(changes: dict[str, object], said: str) -> None:
    out = io.StringIO()
    status = print_verdict(verdict(**changes), Console(file=out, width=200))
    assert status == (1 if changes else 0)
    assert said in out.getvalue()
