"""When a topic is compacted again on the target."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.sync.log_starts.compacting import is_level, policy
from airflow_mirror.sync.log_starts.deciding import Standing
from tests.builders import topic_plan

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = "compact,delete"
T = topic_plan("t", {0: 0, 1: 0}, source_topic_id="x", compacted=True)


def standing(end: int, there_end: int) -> Standing:
    return Standing(start=0, end=end, there_start=0, there_end=there_end)


@pytest.mark.parametrize(
    ("level", "source", "target", "wanted"),
    [
        (True, "compact", "delete", BOTH),
        (True, "compact, delete", "delete", BOTH),
        (False, "compact", "delete", None),
        (False, "compact", "delete,compact", None),  # fell behind later
        (True, "compact", BOTH, None),
        (True, "delete", BOTH, "delete"),  # the source keeps all values now
        (True, "delete", "delete", None),
        (True, "", BOTH, "delete"),
        (True, "compact", "compact", None),  # not of the hold
    ],
)
def test_policy_follows_the_source_once_the_backlog_has_arrived(
    level: bool, source: str, target: str, wanted: str | None
) -> None:
    assert policy(T, level, source, target) == wanted


def test_mapped_and_other_topics_are_never_compacted() -> None:
    for fields in ({"mode": "mapped", "compacted": True}, {"compacted": False}):
        assert policy(topic_plan("t", {0: 0}, source_topic_id="x", **fields), True, "compact", "delete") is None


def test_level_means_all_that_the_source_had_a_pass_ago() -> None:
    before = {P0: 100, P1: 7}
    assert is_level(2, {P0: standing(150, 100), P1: standing(9, 8)}, before)
    assert not is_level(2, {P0: standing(150, 99), P1: standing(9, 8)}, before)
    assert not is_level(2, {P0: standing(150, 150)}, before)  # one has no leader
    assert not is_level(3, {P0: standing(150, 150), P1: standing(9, 9)}, before)
    assert not is_level(2, {P0: standing(150, 150), P1: standing(9, 9)}, {P0: 100})
