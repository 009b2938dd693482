"""Distributes a bulk copy to tasks: by bytes, hot partitions alone, and more lists than slots.

Three goals compete. A hot partition can't be split, so it should begin at once and delay no other: it gets a list of its
own where it outweighs a slot's share, and lists with heavy partitions come first. Estimates are inexact and cores are not
equal, so a slot that is done early should find another list: there are several per slot. But partitions that share a task
share its requests, and a task with few of them sends small batches one round trip at a time: so no list has fewer than
:data:`SHARE` partitions for the sake of more lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import CopyRange, deal

SHARE = 16
LISTS_PER_SLOT = 4


def deal_bulk(
    ranges: Sequence[CopyRange], slots: int, weight: Mapping[TopicPartition, int], *, at_once: bool = False
) -> list[list[CopyRange]]:
    """Deal ranges out to lists, the one with the heaviest partition first; a partition is never split.

    :param slots: number of tasks that run at the same time.
    :param weight: per source partition, the cost of its copy in bytes; missing counts as 0.
    :param at_once: no more lists than slots. If each task has a share of a byte rate, executors that join later must
        find no list left to start.
    """
    slots = max(slots, 1)
    by_weight = sorted(ranges, key=lambda r: (-weight.get(r.source, 0), r.source, r.target))
    hot = _hot([weight.get(r.source, 0) for r in by_weight], slots)
    lists = [[one] for one in by_weight[:hot]]
    rest = by_weight[hot:]
    wanted = 0 if at_once else min(slots * LISTS_PER_SLOT, len(rest) // SHARE)
    lists += deal(rest, max(wanted, slots - hot, 1), weight)

    def rank(part: list[CopyRange]) -> tuple[int, int]:
        weights = [weight.get(r.source, 0) for r in part]
        return -max(weights), -sum(weights)

    return sorted(lists, key=rank)


def _hot(weights: Sequence[int], slots: int) -> int:
    """Return how many of the descending ``weights`` fill a slot each, while the others share the remaining slots."""
    left, count = sum(weights), 0
    while count < min(slots - 1, len(weights)) and weights[count] > 0 and weights[count] * (slots - count) >= left:
        left -= weights[count]
        count += 1
    return count
