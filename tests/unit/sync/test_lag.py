"""When a mirror counts as caught up, and when a partition counts as stuck."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.errors import InputError, NeedsHuman, TryAgain
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.lag import (
    CatchUp,
    Course,
    PartitionLag,
    measure,
    require_planned_topics,
    require_whole,
    summary,
)
from tests.builders import plan_of, topic_plan
from tests.memory.admin import MemoryAdmin
from tests.memory.applications import Producer
from tests.memory.cluster import MemoryCluster
from tests.memory.rules import Rules

ZERO = TP("t", 0)


def lags(*positions: Any, end: int = 100) -> list[PartitionLag]:
    return [PartitionLag(TP("t", n), position, end) for n, position in enumerate(positions)]


def test_catch_up_needs_consecutive_good_looks() -> None:
    judge = CatchUp(max_lag_records=5, samples=2, stuck_after_s=60)
    looks = [lags(100, 96), lags(100, 94), lags(100, 95), lags(100, 100)]
    assert [judge.look(look, n) for n, look in enumerate(looks)] == [False, False, False, True]


def test_partition_that_does_not_move_is_named_with_position() -> None:
    judge = CatchUp(max_lag_records=0, samples=1, stuck_after_s=60)
    assert not judge.look(lags(100, 40, 7), 0)
    assert not judge.look(lags(100, 41, 7), 59)
    with pytest.raises(NeedsHuman, match=r"1 partition\(s\) did not move for 60 s: t-2: at 7 of 100\."):
        judge.look(lags(100, 41, 7), 61)


def test_an_idle_partition_within_the_allowed_lag_is_not_stuck() -> None:
    judge = CatchUp(max_lag_records=5, samples=3, stuck_after_s=1)
    assert [judge.look(lags(97), n * 10) for n in range(3)] == [False, False, True]


def test_partition_that_just_fell_behind_is_not_stuck() -> None:
    """However long it was idle before."""
    judge = CatchUp(max_lag_records=0, samples=10**6, stuck_after_s=60)
    judge.look(lags(100), 0)
    assert not judge.look(lags(100), 1000)
    assert not judge.look(lags(100, end=200), 1001)
    with pytest.raises(NeedsHuman):
        judge.look(lags(100, end=200), 1061)


def test_target_that_has_more_than_its_source_has_not_caught_up() -> None:
    """Somebody wrote there: so many records of the source may be missing, and none would be told."""
    judge = CatchUp(max_lag_records=0, samples=3, stuck_after_s=60)
    assert not judge.look(lags(103), 0)
    with pytest.raises(NeedsHuman, match=r"of 1 partition\(s\): t-0: at 103, the source ends at 100\."):
        judge.look(lags(103), 1)
    judge = CatchUp(max_lag_records=0, samples=3, stuck_after_s=60)
    looks = [lags(103), lags(100), lags(103), [PartitionLag(ZERO, 103, 100, 104)]]
    assert [judge.look(one, n) for n, one in enumerate(looks)][-1], "a new leader did not know yet where its log ends"


def test_no_partition_at_all_is_caught_up() -> None:
    assert CatchUp(max_lag_records=0, samples=1, stuck_after_s=60).look([], 0)
    assert summary([]) == {"partitions": 0, "lag_records": 0, "max_lag_records": 0, "worst": None}


def test_the_summary_names_the_worst_partition() -> None:
    assert summary(lags(100, 40, 90)) == {
        "partitions": 3, "lag_records": 70, "max_lag_records": 60, "worst": "t-1",
    }  # fmt: skip


def test_who_has_caught_up_with_what_is_committed_is_told_what_is_not() -> None:
    """Only of transactions that are open for longer than a look: exactly-once writers always have one."""
    judge = CatchUp(max_lag_records=0, samples=2, stuck_after_s=60)
    looks = [[PartitionLag(ZERO, stable, stable, 130)] for stable in (100, 120, 120, 130)]
    told = [(judge.look(one, n), [str(held) for held in judge.held]) for n, one in enumerate(looks)]
    first, standing = (
        f"t-0: {n} offsets behind an open transaction since offset {at}" for n, at in ((30, 100), (10, 120))
    )
    assert told == [(False, [first]), (True, []), (True, [standing]), (True, [])]


class Side:
    """A cluster as far as lag needs one; notes which ends were asked for."""

    def __init__(self, counts: dict[str, int], offsets: dict[TP, int]) -> None:
        self._counts, self._offsets, self.asked = counts, offsets, list[str]()

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, "id", self._counts[n], 1) for n in names if n in self._counts}

    def offsets(self, partitions: Any, spec: str) -> dict[TP, int]:
        self.asked.append(spec)
        return {tp: self._offsets[tp] for tp in partitions}


def plan(mode: str = "identical", isolation: str = "read_committed", starts: dict[int, int] | None = None) -> Any:
    topic = SimpleNamespace(source_topic="t", target_topic="a.t", mode=mode, starts=starts or {})
    return SimpleNamespace(topics=[topic], mirror=SimpleNamespace(isolation=isolation))


def test_new_source_partition_counts_before_the_target_has_it() -> None:
    source = Side({"t": 3}, {TP("t", 0): 9, TP("t", 1): 9, TP("t", 2): 4})
    target = Side({"a.t": 2}, {TP("a.t", 0): 9, TP("a.t", 1): 7})
    assert [lag.records for lag in measure(plan(), source, target)] == [0, 2, 4]
    assert source.asked == ["latest", "latest_committed"], "read the other way round, new records would look held back"


def test_lag_does_not_count_offsets_below_the_start() -> None:
    source, target = Side({"t": 1}, {TP("t", 0): 1_000_010}), Side({"a.t": 1}, {TP("a.t", 0): 0})
    assert measure(plan(starts={0: 1_000_000}), source, target)[0].records == 10


def test_uncommitted_records_count_when_they_are_copied() -> None:
    source, target = Side({"t": 1}, {TP("t", 0): 5}), Side({"a.t": 1}, {TP("a.t", 0): 5})
    measure(plan(isolation="read_uncommitted"), source, target)
    assert source.asked == ["latest"]


def test_mapped_offsets_are_refused_instead_of_guessed() -> None:
    with pytest.raises(InputError, match="mapped offsets needs their offset maps: t"):
        measure(plan(mode="mapped"), Side({}, {}), Side({}, {}))


def test_lag_of_a_mixed_plan_follows_each_topics_mode() -> None:
    both = plan(mode="mapped")
    both.topics.append(SimpleNamespace(source_topic="u", target_topic="u", mode="identical", starts={}))
    source = Side({"t": 1, "u": 1}, {TP("t", 0): 109, TP("u", 0): 9})
    target = Side({"a.t": 1, "u": 1}, {TP("u", 0): 7})
    found = measure(both, source, target, lambda: {TP("t", 0): 105})
    assert [(str(lag.source), lag.records) for lag in found] == [("t-0", 4), ("u-0", 2)]


def test_mapped_partitions_stand_where_their_map_ends() -> None:
    """The target's log may be longer, and is not asked for its end."""
    source = Side({"t": 3}, {TP("t", 0): 109, TP("t", 1): 9, TP("t", 2): 4})
    target = Side({"a.t": 3}, {})  # asked for no end at all
    found = measure(plan(mode="mapped", starts={0: 100}), source, target, lambda: {TP("t", 0): 105, TP("t", 1): 9})
    assert [(lag.position, lag.records) for lag in found] == [(105, 4), (9, 0), (0, 4)]


def test_nobody_has_caught_up_with_topics_that_the_source_has_no_more() -> None:
    """One that was created again ends before what the target holds, and one that was deleted has no partition at all."""
    source, target = (MemoryCluster(role, rules=Rules(open_by_default=True)) for role in ("source", "target"))
    planned = []
    for name in ("kept", "again", "gone"):
        source.create(name), target.create(name)
        planned.append(topic_plan(name, {0: 0}, source_topic_id=source.topics[name].topic_id))
        for cluster in (source, target):
            Producer(cluster).write(TP(name, 0), b"x")
    plan = plan_of(Mirror(name="m", source="s", target="t"), *planned)
    sides = MemoryAdmin(source), MemoryAdmin(target)
    require_planned_topics(plan, sides[0])  # type: ignore[arg-type]
    source.create("again")
    del source.topics["gone"]
    assert [lag.records for lag in measure(plan, *sides)] == [0, 0]  # type: ignore[arg-type]
    with pytest.raises(TryAgain, match="m.*other topics than its plan: again was created again, gone was deleted"):
        require_planned_topics(plan, sides[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("looks", [1, 119, 120, 500, 20_000])
def test_course_of_any_length_keeps_few_samples_with_the_first_and_the_newest(looks: int) -> None:
    course = Course()
    for n in range(looks):
        course.add(1000.0 + 2 * n, lags(n, end=looks))
    rows = course.rows
    assert len(rows) <= 120 and rows[0]["at"] == 1000.0
    assert rows[-1] == {"at": 1000.0 + 2 * (looks - 1), "lag": 1, "copied": looks - 1}
    gaps = [after["at"] - before["at"] for before, after in pairwise(rows[:-1])]
    assert len(rows) >= min(looks, 55) and max(gaps, default=0) <= 3 * min(gaps, default=0), "at about equal distances"


def test_a_sample_without_a_topic_is_none() -> None:
    """A broker that has just started lists nothing; the next one that is asked for the topics lists all."""
    plan = plan_of(Mirror(name="m", source="s", target="t"), *(topic_plan(t, {0: 0}, source_topic_id=t) for t in "tu"))
    require_whole(plan, [PartitionLag(ZERO, 9, 9), PartitionLag(TP("u", 0), 0, 9)])
    with pytest.raises(TryAgain, match="a broker of the source does not list u"):
        require_whole(plan, lags(100, 100))
