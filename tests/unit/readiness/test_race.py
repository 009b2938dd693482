"""The race against retention, by simulating what a broker does with segments that nobody sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.extras.readiness.race import Log, Race, race

DAY = 86_400.0
CHECKED = 300.0


def a_log(**fields: Any) -> Log:
    """A week of retention, a record each 100 s, of which the oldest thousandth has expired but for its segment."""
    week = 7 * DAY
    expires = [(week * i / 8, 100 + 6_000 * i // 8) for i in range(9)]
    made: dict[str, Any] = {"start": 100, "end": 6_100, "position": 100, "expires": expires, "produced_per_s": 0.01}
    return Log(**{**made, "segment_s": DAY, **fields})


def verdict(**fields: Any) -> str:
    return race("orders", 0, a_log(**fields)).verdict


def test_hours_are_left_until_the_next_record_expires() -> None:
    found = race("orders", 3, a_log(position=100 + 1_500))
    assert found == Race(
        topic="orders", partition=3, lost=0, left_s=pytest.approx(7 * DAY / 4), behind=4_500, produced_per_s=0.01,
        copied_per_s=None, verdict="wins",
    )  # fmt: skip


def test_what_was_deleted_before_it_was_copied_blocks() -> None:
    found = race("orders", 0, a_log(position=40, copied_per_s=1e9))
    assert (found.lost, found.verdict, found.level) == (60, "lost", "block")


def test_copy_that_is_slower_than_expiry_surely_loses() -> None:
    """A hundredth of an offset expires a second; deletion may be behind that by a segment's time."""
    assert verdict(copied_per_s=0.001) == "loses"
    assert verdict(copied_per_s=0.001, segment_s=40 * DAY) == "may lose", "all of it may be one segment"
    assert verdict(copied_per_s=0.012) == "may lose", "at half that rate"
    assert verdict(copied_per_s=1.0) == "wins"


def test_unknown_rate_is_a_warning_only_when_a_day_is_left() -> None:
    assert verdict(position=100 + 6_000 // 14) == "near" and verdict(position=1_500) == "wins"
    assert race("orders", 0, a_log(position=100)).level == "warn"


def test_who_follows_at_the_end_wins_however_short_retention_is() -> None:
    short = [(0.0, 100), (60.0, 6_100)]
    assert verdict(position=6_100, expires=short) == "wins"
    assert race("orders", 0, a_log(position=6_100, expires=short)).left_s == pytest.approx(60.0, rel=0.5)


def test_size_deletes_as_producers_write() -> None:
    log = a_log(expires=(), room=6_600.0, segment=100.0, produced_per_s=1.0)
    found = race("orders", 0, log)
    assert found.left_s == pytest.approx(600.0) and found.verdict == "near"
    assert race("orders", 0, replace(log, copied_per_s=0.5)).verdict == "loses", "the lag grows for ever"
    assert race("orders", 0, replace(log, copied_per_s=0.5, segment=None)).verdict == "may lose", "sizes are not known"
    assert race("orders", 0, replace(log, copied_per_s=50.0)).verdict == "wins"


def test_nothing_is_deleted_without_a_limit() -> None:
    assert race("orders", 0, a_log(expires=())).left_s is None


def kafka_deletes(times: list[int], sizes: list[int], now: float, keep_s: float, room: int) -> int:
    """The log start after a broker has looked: one segment after the other, as UnifiedLog.deleteOldSegments does.

    Each record takes one byte, so that ``retention.bytes`` is a number of offsets.
    """
    start, left = 0, len(times)
    for size in sizes:
        if not (max(times[start : start + size]) < now - keep_s or left - room >= size):
            break
        start, left = start + size, left - size
    return start


@given(st.data())
def test_a_broker_deletes_no_more_than_it_may_and_no_less_than_it_must(data: Any) -> None:
    """Whatever the segments: times may fall, but a segment spans no more than segment.ms from its first record on."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    times: list[int] = []
    for size in sizes:
        first = max(times, default=0) + data.draw(st.integers(0, 50))
        times += [first, *(first + data.draw(st.integers(0, 40)) for _ in range(size - 1))]
    keep_s, room = data.draw(st.integers(1, 200)), data.draw(st.integers(1, 30))
    now = max(times) + data.draw(st.integers(0, 20))
    first_kept = [next((o for o, t in enumerate(times) if t >= now + x - keep_s), len(times)) for x in range(keep_s + 1)]
    log = Log(
        start=0, end=len(times), position=0, expires=list(enumerate(first_kept)), room=float(room), segment=4.0,
        segment_s=40.0,
    )  # fmt: skip
    for x in data.draw(st.lists(st.integers(0, keep_s), max_size=5)):
        start = kafka_deletes(times, sizes, now + x, keep_s, room)
        assert start <= max(bound(x) for bound in log.at_most())
        assert max(bound(x + CHECKED) for bound in log.at_least()) <= start
