"""How partitions are dealt out to tasks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.copy.ranges import CopyRange, deal
from airflow_mirror.partition import TopicPartition


def ranges(count: int) -> list[CopyRange]:
    return [CopyRange("t", "t", p, 0, 10) for p in range(count)]


@given(
    st.lists(st.integers(min_value=0, max_value=10**9), min_size=1, max_size=60), st.integers(min_value=1, max_value=9)
)
def test_every_partition_is_dealt_exactly_once(weights: list[int], tasks: int) -> None:
    weight = {TopicPartition("t", p): w for p, w in enumerate(weights)}
    dealt = deal(ranges(len(weights)), tasks, weight)
    assert sorted(r.partition for part in dealt for r in part) == list(range(len(weights)))
    assert len(dealt) <= tasks


def test_a_hot_partition_gets_a_task_of_its_own() -> None:
    weight = {TopicPartition("t", p): 1 for p in range(9)} | {TopicPartition("t", 4): 1_000_000}
    dealt = deal(ranges(9), 3, weight)
    assert [4] in [[r.partition for r in part] for part in dealt]


def test_empty_partitions_are_spread_too() -> None:
    assert [len(part) for part in deal(ranges(100), 4, {})] == [25] * 4


def test_loads_are_about_equal() -> None:
    rng = random.Random(3)
    weight = {TopicPartition("t", p): rng.randint(1, 1000) for p in range(200)}
    loads = [sum(weight[r.source] for r in part) for part in deal(ranges(200), 8, weight)]
    assert max(loads) <= 1.05 * min(loads)
