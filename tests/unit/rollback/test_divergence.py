"""What a rollback says before it touches anything."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.report import CutoverReport, GroupRecord
from airflow_mirror.cutover.rollback import divergence as counting
from airflow_mirror.cutover.rollback.divergence import divergence, undecided
from airflow_mirror.kafka.model import GroupPosition
from tests.unit.rollback.world import ORDERS, REVERSE, World

ONE = TopicPartition("orders", 1)


def moved_by(cutover: dict[int, int]) -> CutoverReport:
    """A cutover that has set a group's positions, by partition."""
    rows = [
        {"topic": "orders", "partition": p, "source_offset": at, "target_topic": "orders", "target_offset": at}
        for p, at in cutover.items()
    ]
    group = GroupRecord(group="g", settled="empty", source_state="Empty", positions=rows)
    return CutoverReport(mirror="flow", plan_hash="p", groups=[group] if cutover else [])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Five of the offsets of each log are markers; a group has read on the target."""
    monkeypatch.setattr(counting, "count_data", lambda _wire, _tp, start, end, committed: max(end - start - 5, 0))
    monkeypatch.setattr(counting, "read_positions", lambda *_: {"g": {ORDERS: GroupPosition(9)}, "idle": {}})
    return World()


def at(offsets: dict[int, int]) -> dict[str, dict[TopicPartition, GroupPosition]]:
    return {"g": {TopicPartition("orders", p): GroupPosition(offset) for p, offset in offsets.items()}}


@pytest.mark.parametrize(
    ("then", "old", "new", "is_refused"),
    [
        ({0: 7}, {0: 7}, {0: 7}, False),  # nobody has read
        ({0: 7}, {0: 7}, {0: 9}, False),  # read on the target, as it should
        ({0: 7}, {0: 8}, {0: 7}, False),  # read on the old source alone: its position is further, and refused by name
        ({0: 7}, {0: 8}, {0: 9}, True),
        ({0: 7}, {0: 7, 1: 3}, {0: 7, 1: 4}, True),  # a partition that had no position
        ({}, {}, {0: 4}, False),  # a new group of the target
        ({}, {0: 4}, {0: 4}, True),  # of both, since
        ({0: 7}, {}, {0: 9}, False),
    ],
)
def test_groups_that_committed_on_both_sides_need_a_person(then: Any, old: Any, new: Any, is_refused: bool) -> None:
    found = undecided(moved_by(then), {"g": "Empty"}, at(old), at(new))
    assert [("both sides" in line) for line in found] == [True] * is_refused
    assert undecided(moved_by(then), {"g": "Empty"}, at(old), at(new), ["g"]) == []


def test_group_with_members_on_the_target_is_refused_until_accepted() -> None:
    (line,) = undecided(moved_by({0: 7}), {"g": "Stable"}, at({0: 7}), at({0: 9}))
    assert line == "group 'g' has members on the target (Stable)"
    assert undecided(moved_by({0: 7}), {"g": "Stable"}, at({0: 7}), at({0: 9}), ["g"]) == []


def test_positions_in_other_topics_do_not_count() -> None:
    elsewhere = {"g": {TopicPartition("payments", 0): GroupPosition(5)}}
    assert undecided(moved_by({0: 7}), {"g": "Empty"}, elsewhere, at({0: 9})) == []


def test_what_was_written_since_is_counted_by_partition(world: World) -> None:
    world.new.wire.end, world.old.wire.end = 1070, 60
    found = divergence(world.report, REVERSE, world.old, world.new)  # type: ignore[arg-type]
    assert found.lines() == [
        "1 partitions were written on the target since it was opened: 1,020 offsets, 1,015 records",
        "orders-0: 1,020 offsets since 50, 1,015 records; 10 are copied back",
    ]
    assert found.to_dict()["to_copy"] == 1010 and not found.problems
    world.new.wire.end = 3_000_000
    assert "records" not in divergence(world.report, REVERSE, world.old, world.new).lines()[1]  # type: ignore[arg-type]


def test_what_retention_has_taken_or_a_transaction_hides_is_not_counted(world: World) -> None:
    """Days after the cut, and while applications write exactly once: a way back needs no record to be read for that."""
    world.new.wire.start, world.new.wire.end = 60, 90
    world.new.wire.last_stable = lambda tps: dict.fromkeys(tps, 85)  # type: ignore[method-assign]
    (one,) = divergence(world.report, REVERSE, world.old, world.new).written  # type: ignore[arg-type]
    assert (one.cut, one.new_end, one.records) == (50, 90, 85 - 60 - 5)
    world.new.wire.start = 90
    (one,) = divergence(world.report, REVERSE, world.old, world.new).written  # type: ignore[arg-type]
    assert one.records == 0


def test_old_source_that_is_ahead_is_refused(world: World) -> None:
    world.old.wire.end = 53
    found = divergence(world.report, REVERSE, world.old, world.new)  # type: ignore[arg-type]
    assert found.problems == ("orders-0 has 3 offsets on the old source that the target lacks",)
    assert "AHEAD by 3" in found.lines()[2]


class Busy:
    """Both clusters while applications write and the reverse tail copies at once: each question finds more."""

    def __init__(self, world: World) -> None:
        self.end, self.asked = 50, list[str]()
        for name, cluster in (("old", world.old), ("new", world.new)):
            cluster.wire.log_ends = partial(self.log_ends, name)  # type: ignore[method-assign]

    def log_ends(self, name: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(name)
        self.end += 3
        return dict.fromkeys(tps, self.end)


def test_old_source_is_not_ahead_while_its_tail_is_quick(world: World) -> None:
    busy = Busy(world)
    assert divergence(world.report, REVERSE, world.old, world.new).problems == ()  # type: ignore[arg-type]
    assert busy.asked == ["old", "new"]


def test_it_is_looked_again_before_a_refusal(world: World) -> None:
    """A leader that has just taken over may not know yet where its log ends."""
    answers = iter([48, 60])
    world.old.wire.end = 55
    world.new.wire.log_ends = lambda tps: dict.fromkeys(tps, next(answers))  # type: ignore[method-assign]
    found = divergence(world.report, REVERSE, world.old, world.new)  # type: ignore[arg-type]
    assert found.problems == () and found.written[0].new_end == 60


def test_topics_that_are_left_on_the_old_source_do_not_count(world: World) -> None:
    """The reverse mirror does not have them; the old source may be ahead there."""
    world.report.ends.append({"topic": "invoices", "partition": 0, "end": 3})
    found = divergence(world.report, REVERSE, world.old, world.new)  # type: ignore[arg-type]
    assert (found.written, found.problems) == ((), ())
