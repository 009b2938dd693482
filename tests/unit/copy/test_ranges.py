"""How partitions are dealt out to tasks."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.dealing import LISTS_PER_SLOT, SHARE, deal_bulk
from airflow_mirror.copy.ranges import CopyRange, deal


def ranges(count: int) -> list[CopyRange]:
    return [
        CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0, end_offset=10) for p in range(count)
    ]


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


# --- the bulk copy's dealing -----------------------------------------------------------------------------------------

Weights = st.lists(st.integers(min_value=0, max_value=10**9), min_size=1, max_size=200)


def weighed(weights: Sequence[int]) -> dict[TopicPartition, int]:
    return {TopicPartition("t", p): w for p, w in enumerate(weights)}


def finished(dealt: list[list[CopyRange]], slots: int, weight: dict[TopicPartition, int]) -> list[int]:
    """When each list is done, if a slot that is free takes the next one, as Spark does."""
    free = [0] * slots
    done = []
    for part in dealt:
        at = heapq.heappop(free) + sum(weight[r.source] for r in part)
        heapq.heappush(free, at)
        done.append(at)
    return done


@given(Weights, st.integers(min_value=1, max_value=9))
def test_a_bulk_copy_deals_every_partition_exactly_once(weights: list[int], slots: int) -> None:
    dealt = deal_bulk(ranges(len(weights)), slots, weighed(weights))
    assert sorted(r.partition for part in dealt for r in part) == list(range(len(weights)))
    assert all(dealt)


@given(Weights, st.integers(min_value=1, max_value=9))
def test_with_shared_rates_no_list_waits_for_a_late_slot(weights: list[int], slots: int) -> None:
    """A slot that joins later would bring a share of the rate more than was given."""
    dealt = deal_bulk(ranges(len(weights)), slots, weighed(weights), at_once=True)
    assert sorted(r.partition for part in dealt for r in part) == list(range(len(weights)))
    assert all(dealt) and len(dealt) <= slots


@given(Weights, st.integers(min_value=1, max_value=9))
def test_dealing_stays_near_the_best_possible_time(weights: list[int], slots: int) -> None:
    """Two packings, each within 4/3 of the best, are within 16/9 of it together."""
    weight = weighed(weights)
    dealt = deal_bulk(ranges(len(weights)), slots, weight)
    at_best = max(max(weights), sum(weights) / slots)
    # Packed into lists and then into slots, each within 4/3 of the best; with all in view it stays far below the product.
    assert max(finished(dealt, slots, weight)) <= at_best * 16 / 9 + 1


@given(st.integers(min_value=2, max_value=8), st.integers(min_value=1, max_value=300))
def test_dominant_partition_is_dealt_alone_and_holds_nobody_up(slots: int, others: int) -> None:
    """It has four fifths of the bytes, comes first, and no slot ends later than its own."""
    rng = random.Random(others)
    small = [rng.randint(1, 10_000) for _ in range(others)]
    weights = [*small, 4 * sum(small)]
    weight = weighed(weights)
    dealt = deal_bulk(ranges(len(weights)), slots, weight)
    assert [r.partition for r in dealt[0]] == [others]  # alone, and first
    # The whole is done when it is, and the others before that.
    assert max(finished(dealt, slots, weight)) == weights[-1]


def test_slots_get_more_lists_only_of_sixteen_or_more_partitions() -> None:
    """A slot that is done finds another list."""
    lengths = {count: [len(part) for part in deal_bulk(ranges(count), 2, {})] for count in (4, 32, 64, 1000)}
    assert lengths == {4: [2, 2], 32: [16, 16], 64: [16] * 4, 1000: [125] * 2 * LISTS_PER_SLOT}
    assert SHARE == 16


def test_hot_and_warm_partitions_are_dealt_by_what_is_left() -> None:
    dealt = deal_bulk(ranges(40), 4, weighed([500, 400, 60, *[1] * 37]))
    assert [[r.partition for r in part] for part in dealt[:2]] == [[0], [1]]
    assert 2 in [r.partition for r in dealt[2]]
