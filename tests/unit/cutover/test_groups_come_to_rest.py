"""Groups that are waited for behind a fence, and many of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import check, groups, groups_at_rest, steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.report import StepRecord
from airflow_mirror.cutover.request import Limits
from airflow_mirror.errors import (
    FenceLeaks,
    GroupActive,
    GroupsStillMoving,
    MissingRight,
)
from airflow_mirror.kafka.model import STREAMS, GroupInfo, GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from tests.unit.cutover.builders import Described, want
from tests.unit.cutover.groups_world import (
    ENDS,
    ORDERS,
    PAYMENTS,
    Admin,
    Only,
    Positions,
    World,
    at,
    restored,
)

ALIVE = GroupInfo("billing", "Stable", "consumer")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "pause", lambda *_: None)


class ManyGroups(Described):
    """Many groups of one position each, and how often the cluster is asked for positions."""

    role = "cluster"

    def __init__(self, offset: int | None, count: int = 1000) -> None:
        found = {} if offset is None else {ORDERS: GroupPosition(offset)}
        self.held: dict[str, Positions] = {f"group-{i:04}": dict(found) for i in range(count)}
        self.readings, self.active = 0, set[str]()

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Empty", "consumer") for group in self.held]

    def groups_offsets(self, ids: Iterable[str], only: Only = None) -> dict[str, Positions]:
        self.readings += 1
        return {group: dict(self.held[group]) for group in ids}

    def commit_group_offsets(self, group: str, wanted: Positions, _permit: Permit = unfenced) -> None:
        if group in self.active:
            raise GroupActive(group, self.role, "not empty")
        self.held[group] |= wanted

    def forget_group_offsets(self, group: str, tps: Iterable[TopicPartition], _permit: Permit = unfenced) -> None:
        for tp in tps:
            del self.held[group][tp]


def test_group_that_cannot_be_restored_does_not_hold_up_others(tmp_path: Path) -> None:
    world = World(tmp_path, {}, {})
    target = ManyGroups(40, count=4)
    world.run.on.source.admin, world.run.on.target.admin = ManyGroups(90, count=4), target  # type: ignore[assignment]
    groups.commit_groups(world.run)
    world.run.report.steps = [StepRecord(name="commit_groups", status="done", started=0.0)]
    target.active = {"group-0001", "group-0002"}  # a consumer was started on the target
    world.up()
    steps.back_out(world.run)
    positions = {group: held[ORDERS].offset for group, held in target.held.items()}
    assert positions == {"group-0000": 40, "group-0001": 90, "group-0002": 90, "group-0003": 40}
    (row,) = (row for row in world.run.report.undone if row["step"] == "commit_groups")
    assert not row["ok"] and "'group-0001'" in row["error"] and "'group-0002'" in row["error"]
    assert [g.group for g in world.run.report.groups if g.committed] == ["group-0001", "group-0002"]


def test_positions_that_may_not_be_deleted_stay_and_are_named(tmp_path: Path) -> None:
    world = World(tmp_path, {ORDERS: 90, PAYMENTS: 7}, {ORDERS: 40})
    groups.commit_groups(world.run)

    def refuse(*_: object) -> None:
        raise MissingRight("delete", "GROUP_AUTHORIZATION_FAILED", "User:mirror")

    world.target.forget_group_offsets = refuse  # type: ignore[method-assign]
    assert "positions of billing stay, for lack of DELETE on the group" in restored(world.run)
    assert at(world.target.positions) == {ORDERS: 40, PAYMENTS: 7}


class Alive(Admin):
    """Its group has members, of an application; ``leaves`` after so many looks."""

    application, leaves = "", math.inf

    def describe_groups(self, ids: Iterable[str]) -> dict[str, GroupInfo]:
        self.leaves -= 1
        state, application = ("Stable", self.application) if self.leaves >= 0 else ("Empty", "")
        return {group: GroupInfo(group, state, "consumer", application=application) for group in ids}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that only waiting moves on."""
    now = [0.0]

    def pause(_run: Attempt, _seconds: float | None = None) -> None:
        now[0] += 0.5

    monkeypatch.setattr(Attempt, "now", lambda _: now[0])
    monkeypatch.setattr(Attempt, "pause", pause)
    monkeypatch.setattr(groups_at_rest, "count_data", lambda *_, **__: 1)
    return now


def test_live_lagging_group_must_stand_still_for_its_time(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    want(world.run, limits=Limits())
    world.run.on.source.admin = source = Alive({ORDERS: 90})  # type: ignore[assignment]
    source.then = [{ORDERS: 91}] * 8 + [{ORDERS: 95}]
    want(world.run, accept_still_groups=["billing"])
    (settled,) = groups_at_rest.settle(world.run).values()
    assert (settled.why, at(settled.positions)) == ("stood still", {ORDERS: 95})
    assert clock[0] >= 4 + world.run.limits.group_quiet_s


def test_time_to_stand_still_runs_while_the_rest_is_compared(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(run: Attempt) -> dict[str, Any]:
        clock[0] += run.limits.group_quiet_s
        return {}

    monkeypatch.setattr("airflow_mirror.cutover.steps.verify", watch)
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"])
    steps.verify_rest(world.run)
    assert (
        groups_at_rest.settle_groups(world.run) == {"billing": "stood still"}
        and clock[0] == world.run.limits.group_quiet_s
    )


def test_group_that_stands_still_counts_only_with_a_yes(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["another"])
    with pytest.raises(GroupsStillMoving, match=r"billing \(lag 10, stands still\).*accept_still_groups names it"):
        groups_at_rest.settle_groups(world.run)
    assert clock[0] >= world.run.limits.wait_groups_s


def test_streams_group_is_waited_for_until_nobody_is_in_it(tmp_path: Path, clock: list[float]) -> None:
    """Neither a yes nor its being at the end makes up for commits that come every 30 s."""
    world = World(tmp_path, {ORDERS: 100}, {})
    world.run.on.source.admin = source = Alive({ORDERS: 100})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"])
    source.application = STREAMS
    with pytest.raises(GroupsStillMoving, match=r"billing \(Kafka Streams, has members\)"):
        groups_at_rest.settle_groups(world.run)
    source.leaves = 3
    assert groups_at_rest.settle_groups(world.run) == {"billing": "empty"} and source.leaves < 0


def test_consumer_that_joins_behind_the_look_is_waited_for(tmp_path: Path, clock: list[float]) -> None:
    """It has committed nothing yet, so that the group's positions are what they were."""
    world = World(tmp_path, {ORDERS: 90}, {})
    groups_at_rest.settle_groups(world.run)
    world.run.on.source.admin = joined = Alive({ORDERS: 90})  # type: ignore[assignment]
    joined.leaves = 5
    assert groups.commit_groups(world.run) == {"billing": "empty"}
    assert joined.leaves < 0 and clock[0] > 0


def test_group_that_goes_on_reading_is_named_in_the_error(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {}, {})
    world.run.on.source.admin = source = Alive({ORDERS: 0})  # type: ignore[assignment]
    source.then = [{ORDERS: 10 + i % 9} for i in range(1000)]
    with pytest.raises(GroupsStillMoving, match="billing"):
        groups_at_rest.settle_groups(world.run)
    assert clock[0] >= world.run.limits.wait_groups_s


@pytest.mark.parametrize(("position", "rest", "why"), [(100, 0, "at the end"), (98, 0, "at the end"), (98, 1, None)])
def test_a_group_behind_nothing_but_markers_is_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, rest: int, why: str | None
) -> None:
    monkeypatch.setattr(groups_at_rest, "count_data", lambda *_, **__: rest)
    world = World(tmp_path, {}, {})
    assert (
        groups_at_rest.at_rest(ALIVE, {ORDERS: GroupPosition(position)}, ENDS, 0, 6, groups_at_rest.unread_in(world.run))
        == why
    )
    far = {TopicPartition("orders", 0): 50_000}
    world.run.report.ends = [{"topic": "orders", "partition": 0, "end": 50_000}]
    assert (
        groups_at_rest.at_rest(ALIVE, {ORDERS: GroupPosition(3)}, far, 0, 6, groups_at_rest.unread_in(world.run)) is None
    )


def test_a_thousand_groups_are_read_together_there_and_back(tmp_path: Path) -> None:
    """One after the other they take minutes, in which nobody can write anywhere."""
    world = World(tmp_path, {}, {})
    source, target = ManyGroups(90), ManyGroups(None)
    world.run.on.source.admin, world.run.on.target.admin = source, target  # type: ignore[assignment]
    assert len(groups.commit_groups(world.run)) == 1000
    # The source: where they stand, at rest, moved since. The target: what they had, what was kept.
    assert (source.readings, target.readings) == (3, 2)
    assert all(at(held) == {ORDERS: 90} for held in target.held.values())
    check._groups_behind(world.run)
    assert target.readings == 3
    restored(world.run)
    assert target.readings == 4 and not any(target.held.values())


def test_a_leak_is_named_before_the_groups_that_it_keeps_moving(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaks(run: Attempt) -> None:
        if clock[0] > 2:
            raise FenceLeaks({"orders-0": (100, 101)}, ["producer 7"])

    monkeypatch.setattr(groups_at_rest, "still_quiet", leaks)
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    with pytest.raises(FenceLeaks):
        groups_at_rest.settle_groups(world.run)
    assert clock[0] < 4


@pytest.mark.parametrize(
    ("seen", "waits_s"), [({}, 6.0), ({ORDERS: 90}, 0.0), ({ORDERS: 89}, 6.0)], ids=["not seen", "as it is", "moved"]
)
def test_group_nobody_is_in_has_stood_still_since_before_the_fence(
    tmp_path: Path, clock: list[float], seen: dict[TopicPartition, int], waits_s: float
) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    want(world.run, limits=Limits())
    clock[0] = 20.0
    if seen:
        world.run.seen_empty["billing"] = {tp: GroupPosition(offset) for tp, offset in seen.items()}, 10.0
    groups_at_rest.read_ahead(world.run)
    assert groups_at_rest.settle_groups(world.run) == {"billing": "empty"}
    assert clock[0] == 20.0 + waits_s


def test_group_that_has_members_by_now_stands_still_from_the_fence_on(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"], limits=Limits())
    clock[0] = 20.0
    world.run.seen_empty["billing"] = {ORDERS: GroupPosition(90)}, 10.0
    assert groups_at_rest.settle_groups(world.run) == {"billing": "stood still"}
    assert clock[0] == 26.0
