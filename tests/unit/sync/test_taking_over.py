"""Where a mirror begins that takes over from an older tool's group; what lies behind the positions is in test_overlap."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.model import GroupPosition, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.taking_over import taken_over
from tests.unit.plan.builders import a_mirror


class Side:
    """A cluster in memory: its topics, where their logs end, and the tool's group."""

    def __init__(self, topics: dict[str, int], end: int = 0) -> None:
        self.infos = {name: TopicInfo(name, f"id-of-{name}", count, 1) for name, count in topics.items()}
        self.end, self.state = end, "Empty"
        self.positions: dict[TopicPartition, GroupPosition] = {}
        self.read: Callable[[], object] = lambda: None

    def topic_names(self) -> list[str]:
        return sorted(self.infos)

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {name: self.infos[name] for name in names if name in self.infos}

    def offsets(self, tps: Collection[TopicPartition], when: object = "latest") -> dict[TopicPartition, int]:
        known = {"earliest": 5, "latest_committed": self.end - 1, "latest": self.end}
        # By time: nothing in partition 0 is as new as that.
        return {tp: known[when] if isinstance(when, str) else (-1, 17)[tp.partition > 0] for tp in tps}

    def group_offsets(self, _group: str) -> dict[TopicPartition, GroupPosition]:
        found = dict(self.positions)
        self.read()
        return found

    def group_states(self, groups: list[str]) -> dict[str, str]:
        return dict.fromkeys(groups, self.state)


def mirror(**fields: Any) -> Mirror:
    return a_mirror(**{"topics": ["orders"], "start_group": "mm", "start_overlap": "none", **fields})


def begun(source: Side, target: Side, known: Any = None, **fields: Any) -> dict[str, dict[int, int]]:
    sides: tuple[Any, Any] = (source, target)
    return {topic: dict(its) for topic, its in taken_over(mirror(**fields), *sides, known or {}).starts.items()}


@pytest.fixture
def source() -> Side:
    made = Side({"orders": 3, "other": 1}, end=90)
    made.positions = {
        TopicPartition("orders", 1): GroupPosition(40), TopicPartition("orders", 2): GroupPosition(-1),
        TopicPartition("orders", 3): GroupPosition(8), TopicPartition("other", 0): GroupPosition(7),
    }  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({"start": "earliest"}, {0: 5, 2: 5}),
        ({"start": "latest", "isolation": "read_committed"}, {0: 89, 2: 89}),
        ({"start": "latest", "isolation": "read_uncommitted"}, {0: 90, 2: 90}),
        ({"start": "2026-01-01T00:00:00+00:00"}, {0: 90, 2: 17}),
    ],
)
def test_the_copy_begins_at_the_groups_positions_and_elsewhere_where_start_says(
    source: Side, fields: dict[str, Any], others: dict[int, int]
) -> None:
    assert begun(source, Side({"orders": 3}, end=40), **fields) == {"id-of-orders": {1: 40, **others}}


def test_what_was_remembered_before_a_kill_stays(source: Side) -> None:
    """The tool's group may have been moved since, and may even have members again."""
    source.state = "Stable"
    known = {"id-of-orders": {0: 5, 1: 33, 2: 5}}
    assert begun(source, Side({"orders": 3}, end=40), known) == known
    known = {"id-of-orders": {0: 6}}
    source.state = "Empty"
    assert begun(source, Side({"orders": 3}, end=40), known) == {"id-of-orders": {0: 6, 1: 40}}


def test_topics_of_brokers_without_ids_are_told_apart_by_name(source: Side) -> None:
    source.infos = {name: replace(info, topic_id="") for name, info in source.infos.items()}
    of = {"topics": ["orders", "other"], "start": "earliest"}
    assert begun(source, Side({}), **of) == {"orders": {0: 5, 1: 40, 2: 5}, "other": {0: 7}}
    assert begun(source, Side({}), {"other": {0: 6}}, **of) == {"orders": {0: 5, 1: 40, 2: 5}, "other": {0: 6}}


def test_a_tool_that_still_runs_is_not_taken_over(source: Side) -> None:
    source.state = "Stable"
    with pytest.raises(InputError, match="mm"):
        begun(source, Side({}))


def test_a_group_without_positions_is_refused_only_where_a_tool_can_have_written(source: Side) -> None:
    source.positions.clear()
    assert begun(source, Side({"orders": 3})) == {}
    with pytest.raises(InputError, match=r"start_group='mm': it has no position.*target's orders hold records"):
        begun(source, Side({"orders": 3}, end=1))


def test_tool_that_commits_and_ends_while_it_is_looked_at_still_ran(source: Side) -> None:
    """Taken over at the positions that were read before, it would be copied twice from there."""
    source.state = "Stable"

    def ends() -> None:
        source.state = "Empty"
        source.positions[TopicPartition("orders", 1)] = GroupPosition(60)

    source.read = ends
    with pytest.raises(InputError, match="the group is Stable on the source"):
        begun(source, Side({"orders": 3}, end=40))
    source.read = lambda: None
    assert begun(source, Side({"orders": 3}, end=40))["id-of-orders"][1] == 60
