"""When a consumer group's positions are final."""

from __future__ import annotations

import math

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.groups_at_rest import at_rest, lag
from airflow_mirror.kafka.model import CONNECT, STREAMS, GroupInfo, GroupPosition

P0, P1, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)
ENDS = {P0: 100, P1: 40, OTHER: 7}
# In partition 0 the last two offsets are a commit marker and what is left of an aborted transaction.
READABLE_END = {P0: 98, P1: 40, OTHER: 7}


def unread(tp: TopicPartition, start: int, end: int) -> bool:
    assert start < end == ENDS[tp]
    return start < READABLE_END[tp]


def why(
    state: str, positions: dict[TopicPartition, int], still_s: float = 0.0, quiet_s: float = 6.0, application: str = ""
) -> str | None:
    at = {tp: GroupPosition(offset) for tp, offset in positions.items()}
    return at_rest(GroupInfo("g", state, "consumer", application=application), at, ENDS, still_s, quiet_s, unread)


@pytest.mark.parametrize(
    ("state", "positions", "still_s", "expected"),
    [
        ("Empty", {P0: 100, P1: 40}, 0, "empty"),
        ("Dead", {P0: 100}, 0, "empty"),
        ("Empty", {P0: 3}, 5.9, None),  # one that assigns partitions itself reads on, without ever being a member
        ("Empty", {P0: 3}, 6.0, "empty"),
        ("Stable", {P0: 100, P1: 40}, 0, "at the end"),
        ("Stable", {P0: 98, P1: 40}, 0, "at the end"),  # nothing but markers is left
        ("Stable", {P0: 97, P1: 40}, 0, None),
        ("Stable", {P0: 97, P1: 40}, 5.9, None),
        ("Stable", {P0: 97, P1: 40}, 6.0, "stood still"),
        ("Stable", {P0: 100}, 0, None),  # no position in partition 1 yet: its first commit may be under way
        ("Stable", {P0: 100}, 6.5, "stood still"),
        ("PreparingRebalance", {P0: 3, P1: 40}, 1, None),
        ("Stable", {OTHER: 7}, 0, "at the end"),  # it does not read orders at all
    ],
)
def test_at_rest(state: str, positions: dict[TopicPartition, int], still_s: float, expected: str | None) -> None:
    assert why(state, positions, still_s) == expected


def test_standing_still_is_rest_only_where_somebody_said_so() -> None:
    assert why("Stable", {P0: 3}, 600.0, math.inf) is None


@pytest.mark.parametrize("application", [STREAMS, CONNECT])
def test_streams_and_connect_are_at_rest_only_without_members(application: str) -> None:
    """They commit every 30 and 60 s: what they have read since, they would read again."""
    assert why("Stable", {P0: 100, P1: 40}, 600.0, application=application) is None
    assert why("Stable", {P0: 3}, 600.0, application=application) is None
    assert why("Empty", {P0: 3}, 6.0, application=application) == "empty"


def test_lag_counts_what_is_behind_the_end() -> None:
    assert lag({P0: GroupPosition(90), P1: GroupPosition(40)}, ENDS) == 10
