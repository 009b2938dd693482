"""Which records of the target may go: never one that the source has, or that its retention had not taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.plan.configs import Rules
from airflow_mirror.sync.log_starts import observations
from airflow_mirror.sync.log_starts.deciding import (
    EVERY_MS,
    Standing,
    beyond_size,
    counting,
    decide,
    explained,
    is_due,
    old_enough,
    retention_of,
    segment_bytes,
    step_ms,
    target_values,
    young_from_ms,
)
from airflow_mirror.sync.log_starts.observations import FOREVER, Retention, Seen, Sight
from tests.builders import topic_plan
from tests.unit.plan.builders import a_mirror, configs

HOUR, DAY, WEEK = 3_600_000, 86_400_000, 7 * 86_400_000
NOW = 1_800_000_000_000
BY_WEEK = Retention(WEEK, FOREVER)


def a_sight(
    number: int, hours_ago: float, start: int = 0, known: int | None = None, retention: Retention = BY_WEEK
) -> Sight:
    seen = {0: Seen(start, start if known is None else known)} if start else {}
    at_ms = NOW - int(hours_ago * HOUR)
    return Sight(number=number, at_ms=at_ms, ids=("a", "b"), retention=retention, seen=seen)


def hourly(starts: list[int], retention: Retention = BY_WEEK) -> list[Sight]:
    """The last of them was taken now."""
    last = len(starts) - 1
    return [a_sight(n, last - n, start, retention=retention) for n, start in enumerate(starts)]


def standing(start: int = 900, end: int = 1000, there_start: int = 0, there_end: int = 1000) -> Standing:
    return Standing(start=start, end=end, there_start=there_start, there_end=there_end)


def goal_of(now: Standing, known: list[Sight], retention: Retention = BY_WEEK, delay_ms: int = DAY) -> int | None:
    return decide(now, 0, known, counting(known, retention, NOW, delay_ms)).goal


def test_start_follows_what_was_seen_a_delay_ago() -> None:
    known = hourly([10 * n for n in range(1, 40)])  # the one of 24 hours ago said 150
    assert goal_of(standing(), known) == 150
    assert goal_of(standing(there_start=150), known) is None
    assert goal_of(standing(), known[-24:]) is None


def test_each_sight_counts_for_two_steps_at_most() -> None:
    """A clock that jumps by a year, or a tail that did not run for one, makes nothing old."""
    known = [a_sight(1, 9000, 100), a_sight(2, 8999, 200), a_sight(3, 0.5, 300)]
    assert old_enough(known, NOW, DAY) == []
    assert [s.number for s in old_enough(known, NOW, int(3.5 * HOUR))] == []
    assert [s.number for s in old_enough(hourly([1] * 26), NOW, DAY)] == [0, 1]


def test_clock_that_was_set_back_makes_nothing_older() -> None:
    known = [a_sight(1, -5, 100), a_sight(2, 1, 200)]
    assert old_enough(known, NOW, 2 * HOUR) == []
    assert is_due([a_sight(1, -5)], NOW, DAY) and not is_due([a_sight(1, 0.9)], NOW, DAY)


def test_retention_that_was_short_by_mistake_deletes_nothing() -> None:
    """It was a minute for some hours, in which the source deleted up to 500, and was set back within the delay."""
    minute = Retention(60_000, FOREVER)
    before, wrong = [a_sight(n, 50 - n, 10) for n in range(10)], [a_sight(n, 50 - n, 500) for n in range(10, 13)]
    wrong = [replace(one, retention=minute) for one in wrong]
    after = [a_sight(n, 50 - n, 500, known=10) for n in range(13, 51)]
    assert goal_of(standing(), before + wrong + after) == 10
    assert goal_of(standing(), before + wrong + after, minute) == 10  # and is short again since a moment
    assert goal_of(standing(), before + wrong + after[:1]) is None
    long = [a_sight(n, 50 - n, 500, retention=minute) for n in range(10, 51)]
    assert goal_of(standing(), before + long, minute) == 500
    assert goal_of(standing(), before + long, BY_WEEK) == 10  # set back this minute, and not seen yet


def test_retention_that_is_longer_now_voids_what_was_seen() -> None:
    known = hourly([100] * 30)
    assert goal_of(standing(), known) == 100
    assert goal_of(standing(), known, Retention(WEEK + 1, FOREVER)) is None
    full = hourly([100] * 30, Retention(WEEK, 5000))
    assert goal_of(standing(), full, Retention(WEEK, 5001)) is None
    assert goal_of(standing(), full, Retention(WEEK - 1, 4000)) == 100


def test_source_whose_log_fell_back_moves_nothing() -> None:
    known = hourly([100] * 29 + [300])
    found = decide(standing(start=299), 0, known, known)
    assert found.goal is None and "began at 300 before, and at 299 now" in found.left
    short = decide(standing(end=999), 0, known, known)
    assert short.goal is None and "ends at 999, before the target's (1000)" in short.left


def test_partition_that_was_not_seen_stays() -> None:
    assert decide(standing(), 3, hourly([100] * 30), hourly([100] * 30)).goal is None


@pytest.mark.parametrize(
    ("first_young", "there_end", "noted"),
    [(-1, 1000, 900), (400, 1000, 400), (950, 1000, 900), (None, 1000, 0), (-1, 700, 700)],
)
def test_retention_explains_up_to_the_first_young_record(first_young: int | None, there_end: int, noted: int) -> None:
    now = standing(there_end=there_end)
    assert explained(now, first_young, 0) == Seen(900, noted)
    assert explained(now, first_young, 650) == Seen(900, max(noted, 650))  # by its size
    assert explained(now, first_young, 990) == Seen(900, min(900, there_end))
    assert explained(standing(there_start=900), first_young, 0) == Seen(900, 900)  # the target has nothing of it


def test_size_limit_explains_what_the_target_has_beyond_it() -> None:
    """By the mean size of its own records; a segment more may lie before its log start."""
    now = standing(there_start=500, there_end=1500)
    assert beyond_size(now, 3000, 10_000, 0) == 1200
    assert beyond_size(now, 3000, 10_000, 4000) == 1000
    assert beyond_size(now, 3001, 10_000, 4000) == 999  # rounded to keep more
    assert beyond_size(now, 20_000, 10_000, 0) == 0
    for unknown in (None, 4000, 0):
        assert beyond_size(now, 1, unknown, 4000) == 0
    assert beyond_size(now, FOREVER, 10**30, 0) == beyond_size(now, 1, 10_000, segment_bytes({})) == 0
    assert segment_bytes(configs(segment_bytes="77")) == 77


def test_search_by_time_is_never_one_for_the_logs_end() -> None:
    """ListOffsets takes -1 for the end and -2 for the start: either would explain everything."""
    assert young_from_ms(BY_WEEK, NOW) == NOW - WEEK
    assert young_from_ms(Retention(NOW, FOREVER), NOW) == 0
    for long in (FOREVER, NOW + 1, NOW + 2):
        assert young_from_ms(Retention(long, FOREVER), NOW) is None


def test_what_somebody_deleted_is_kept_and_said_a_step_later() -> None:
    known = [a_sight(1, 2, 100), a_sight(2, 1, 600, 100)]
    assert decide(standing(start=600), 0, known, []).kept is None  # clocks may differ
    known.append(a_sight(3, 0, 600, 120))
    assert decide(standing(start=600), 0, known, []).kept == (120, 600)
    assert decide(standing(start=600, there_start=600), 0, known, []).kept is None
    known.append(a_sight(4, 0, 700, 600))
    assert decide(standing(start=700), 0, known, []).kept is None


def test_settings_that_are_not_known_keep_everything() -> None:
    values = {"cleanup.policy": "compact,delete", "retention.ms": str(WEEK), "retention.bytes": "9"}
    nothing = Retention(FOREVER, FOREVER)
    assert retention_of(values) == Retention(WEEK, 9)
    assert retention_of(values | {"retention.bytes": "-1", "retention.ms": None}) == nothing
    assert retention_of(values | {"cleanup.policy": "compact"}) == retention_of({}) == nothing


def test_targets_own_retention_counts_where_it_will_have_one() -> None:
    """A backup: `keep_configs`, or a setting that is not carried over."""
    here, t = configs(retention_ms="1000"), topic_plan("t", {0: 0}, source_topic_id="", configs={"retention.ms": "5000"})
    own = {key: entry.value for key, entry in configs().items()} | {"retention.ms": "7000"}

    def there(own: Mapping[str, str | None] | None, **fields: Any) -> str | None:
        return target_values(t, here, own, Rules.of(a_mirror(**fields)))["retention.ms"]

    assert there(own) == there(None) == "1000"  # the source's as it is now, not as it was planned
    assert there(own, keep_configs=["retention.*"]) == "5000"
    assert there(own, exclude_configs=["retention.ms"]) == "7000"
    assert there(own | {"retention.ms": None}, exclude_configs=["retention.ms"]) is None
    assert Retention(5, 70).longest(Retention(6, 60)) == Retention(6, 70)


def test_steps_are_as_long_as_a_pass_at_least() -> None:
    assert (step_ms(DAY), step_ms(60_000)) == (HOUR, EVERY_MS)


times = st.integers(1, 30 * DAY)
retentions = st.builds(Retention, st.sampled_from([60_000, DAY, FOREVER]), st.sampled_from([1000, 5000, FOREVER]))


@st.composite
def histories(draw: st.DrawFn) -> list[Sight]:
    found, at_ms = [], NOW
    for number in range(draw(st.integers(1, 60)), 0, -1):
        at_ms -= draw(st.one_of(st.just(HOUR), st.integers(-DAY, 3 * DAY)))
        start = draw(st.integers(0, 1200))
        seen = {0: Seen(start, draw(st.integers(0, 1500)))} if start else {}
        retention = draw(st.one_of(st.just(BY_WEEK), retentions))
        found.append(Sight(number=number, at_ms=at_ms, ids=("a", "b"), retention=retention, seen=seen))
    return found[::-1]


@given(
    known=histories(), retention=st.one_of(st.just(BY_WEEK), retentions), start=st.integers(0, 1200),
    there_start=st.integers(0, 1200), there_end=st.integers(0, 1200), end=st.integers(0, 1200),
    delay_ms=st.sampled_from([60_000, HOUR, DAY]),
)  # fmt: skip
def test_no_goal_is_ever_above_any_of_its_bounds(
    known: list[Sight], retention: Retention, start: int, there_start: int, there_end: int, end: int, delay_ms: int
) -> None:
    now = Standing(start=start, end=end, there_start=there_start, there_end=there_end)
    goal = goal_of(now, known, retention, delay_ms)
    if goal is None:
        return
    assert there_start < goal <= min(start, there_end) and there_end <= end
    assert all(one.seen[0].start <= start for one in known if one.seen)
    witnesses = [
        one
        for at, one in enumerate(known)
        if one.seen and one.seen[0].explained >= goal and one.retention.covers(retention)
        and all(one.retention.covers(later.retention) for later in known[at:])
        and NOW - min(later.at_ms for later in known[at:]) >= 0
        and (len(known) - at) * 2 * step_ms(delay_ms) >= delay_ms
    ]  # fmt: skip
    assert witnesses


@given(known=histories(), later_ms=times)
def test_waiting_longer_never_unmakes_what_is_old_enough(known: list[Sight], later_ms: int) -> None:
    first, then = ({one.number for one in old_enough(known, at, DAY)} for at in (NOW, NOW + later_ms))
    assert first <= then


@given(known=histories(), number=st.integers(1, 9))
def test_a_sight_survives_its_json(known: list[Sight], number: int) -> None:
    sight = replace(known[0], number=number)
    assert observations.load(observations.key("m", "t.x", number), observations.dump(sight)) == sight


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"v": 2}', b'{"v": 1, "at": 1, "ids": [], "retention": []}', b"\xff"]
)
def test_a_sight_that_can_not_be_read_is_none(value: bytes) -> None:
    assert observations.load("starts/m/t/1", value) is None
    assert observations.load("starts/m/t", observations.dump(a_sight(1, 0, 5))) is None
