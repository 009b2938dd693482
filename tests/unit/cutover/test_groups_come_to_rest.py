"""Groups that are waited for behind a fence, and many of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import check, groups, groups_at_rest, steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.report import StepRecord
from airflow_mirror.cutover.restoring import restore_groups
from airflow_mirror.cutover.undoing import back_out
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
    rested,
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
    back_out(world.run)
    positions = {group: held[ORDERS].offset for group, held in target.held.items()}
    assert positions == {"group-0000": 40, "group-0001": 90, "group-0002": 90, "group-0003": 40}
    (row,) = (row for row in world.run.report.undone if row.step == "commit_groups")
    assert not row.ok and "'group-0001'" in str(row) and "'group-0002'" in str(row)
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
    ((settled,),) = (part.values() for part in groups_at_rest.come_to_rest(world.run))
    assert (settled.why, at(settled.positions)) == ("stood still", {ORDERS: 95})
    assert clock[0] >= 4 + world.run.limits.group_quiet_s


def test_time_to_stand_still_runs_while_the_rest_is_compared(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(attempt: Attempt) -> dict[str, Any]:
        clock[0] += attempt.limits.group_quiet_s
        return {}

    monkeypatch.setattr("airflow_mirror.cutover.steps.verify", watch)
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"])
    steps.verify_rest(world.run)
    assert rested(world.run) == {"billing": "stood still"} and clock[0] == world.run.limits.group_quiet_s


def test_group_that_stands_still_counts_only_with_a_yes(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["another"])
    with pytest.raises(GroupsStillMoving, match=r"billing \(lag 10, stands still\).*accept_still_groups names it"):
        rested(world.run)
    assert clock[0] >= world.run.limits.wait_groups_s


def test_streams_group_is_waited_for_until_nobody_is_in_it(tmp_path: Path, clock: list[float]) -> None:
    """Neither a yes nor its being at the end makes up for commits that come every 30 s."""
    world = World(tmp_path, {ORDERS: 100}, {})
    world.run.on.source.admin = source = Alive({ORDERS: 100})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"])
    source.application = STREAMS
    with pytest.raises(GroupsStillMoving, match=r"billing \(Kafka Streams, has members\)"):
        rested(world.run)
    source.leaves = 3
    assert rested(world.run) == {"billing": "empty"} and source.leaves < 0


def test_consumer_that_joins_behind_the_look_is_waited_for(tmp_path: Path, clock: list[float]) -> None:
    """It has committed nothing yet, so that the group's positions are what they were."""
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = joined = Alive({ORDERS: 90})  # type: ignore[assignment]
    joined.leaves = -1
    commit = world.target.commit_group_offsets

    def and_somebody_joins(group: str, wanted: Positions, permit: Permit = unfenced) -> None:
        commit(group, wanted, permit)
        joined.leaves = 5 if clock[0] == 0 else -1

    world.target.commit_group_offsets = and_somebody_joins  # type: ignore[method-assign]
    assert groups.commit_groups(world.run) == {"billing": "empty"}
    assert joined.leaves < 0 and clock[0] > 0


class LateGroups(ManyGroups):
    """The last of them reads on until five seconds are over."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__(90, count=4)
        self.clock = clock

    def groups_offsets(self, ids: Iterable[str], only: Only = None) -> dict[str, Positions]:
        self.held["group-0003"][ORDERS] = GroupPosition(90 + int(2 * min(self.clock[0], 5)))
        return super().groups_offsets(ids, only)

    def describe_groups(self, ids: Iterable[str]) -> dict[str, GroupInfo]:
        states = {group: "Stable" if group == "group-0003" else "Empty" for group in ids}
        return {group: GroupInfo(group, state, "consumer") for group, state in states.items()}


def test_groups_at_rest_are_committed_while_others_move(tmp_path: Path, clock: list[float]) -> None:
    world, commits = World(tmp_path, {}, {}), list[tuple[str, float]]()
    source, target = LateGroups(clock), ManyGroups(40, count=4)
    world.run.on.source.admin, world.run.on.target.admin = source, target  # type: ignore[assignment]
    commit = target.commit_group_offsets

    def noted(group: str, wanted: Positions, permit: Permit = unfenced) -> None:
        commits.append((group[-1], clock[0]))
        commit(group, wanted, permit)

    target.commit_group_offsets = noted  # type: ignore[method-assign]
    assert len(groups.commit_groups(world.run)) == 4
    assert commits == [("0", 0.0), ("1", 0.0), ("2", 0.0), ("3", 5.0)]
    assert target.held == source.held and all(record.committed for record in world.run.report.groups)
    restored(world.run)
    assert all(at(held) == {ORDERS: 40} for held in target.held.values())


@pytest.mark.parametrize("at_the_time", [0.0, 5.0], ids=["in the first part", "in the last part"])
def test_groups_get_back_what_they_had_whichever_part_fails(
    tmp_path: Path, clock: list[float], at_the_time: float
) -> None:
    """By the report that is on the target: the process has died."""
    world = World(tmp_path, {}, {})
    source, target = LateGroups(clock), ManyGroups(40, count=4)
    world.run.on.source.admin, world.run.on.target.admin = source, target  # type: ignore[assignment]
    commit = target.commit_group_offsets

    def die(group: str, wanted: Positions, permit: Permit = unfenced) -> None:
        commit(group, wanted, permit)
        if clock[0] == at_the_time:
            raise SystemExit

    target.commit_group_offsets = die  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        groups.commit_groups(world.run)
    target.commit_group_offsets = commit  # type: ignore[method-assign]
    assert any(at(held) != {ORDERS: 40} for held in target.held.values())
    kept = world.run.store.on_disk()
    assert kept is not None
    restore_groups(world.run.on.target, kept, unfenced)
    assert all(at(held) == {ORDERS: 40} for held in target.held.values())


def test_groups_that_rested_get_back_what_they_had_when_another_never_does(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {}, {})
    want(world.run, limits=replace(world.run.limits, wait_groups_s=3.0))
    target = ManyGroups(40, count=4)
    world.run.on.source.admin, world.run.on.target.admin = LateGroups(clock), target  # type: ignore[assignment]
    world.up()
    with pytest.raises(GroupsStillMoving, match="group-0003"):
        steps.walk(world.run, [step for step in steps.STEPS if step.name == "commit_groups"])
    assert [record.group[-1] for record in world.run.report.groups] == ["0", "1", "2"]
    assert all(at(held) == {ORDERS: 40} for held in target.held.values())


def test_group_that_goes_on_reading_is_named_in_the_error(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {}, {})
    world.run.on.source.admin = source = Alive({ORDERS: 0})  # type: ignore[assignment]
    source.then = [{ORDERS: 10 + i % 9} for i in range(1000)]
    with pytest.raises(GroupsStillMoving, match="billing"):
        rested(world.run)
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
    def leaks(attempt: Attempt) -> None:
        if clock[0] > 2:
            raise FenceLeaks({"orders-0": (100, 101)}, ["producer 7"])

    monkeypatch.setattr(groups_at_rest, "still_quiet", leaks)
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    with pytest.raises(FenceLeaks):
        rested(world.run)
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
    assert rested(world.run) == {"billing": "empty"}
    assert clock[0] == 20.0 + waits_s


def test_group_that_has_members_by_now_stands_still_from_the_fence_on(tmp_path: Path, clock: list[float]) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"], limits=Limits())
    clock[0] = 20.0
    world.run.seen_empty["billing"] = {ORDERS: GroupPosition(90)}, 10.0
    assert rested(world.run) == {"billing": "stood still"}
    assert clock[0] == 26.0


class Hidden(Admin):
    """It lists no group; ``described`` says whether it would."""

    def __init__(self, described: bool) -> None:
        super().__init__({ORDERS: 90})
        self.described, self.wire = described, SimpleNamespace(settings=SimpleNamespace(principal="User:mirror"))

    def groups(self) -> list[GroupInfo]:
        return []

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        return {"kafka-cluster": frozenset()}

    def unseen_groups(self, ids: Iterable[str]) -> list[str]:
        return [] if self.described else sorted(ids)


@pytest.mark.parametrize("known_by", ["the plan", "what was seen"])
def test_group_that_the_source_hides_behind_the_fence_stops_the_cutover(tmp_path: Path, known_by: str) -> None:
    """The right is taken away meanwhile, and Kafka says no error: the target would open without its position."""
    world = World(tmp_path, {ORDERS: 90}, {})
    if known_by == "the plan":
        want(world.run, plan=replace(world.run.plan, positions={"billing": {"orders": {0: 90}}}))
    else:
        groups_at_rest.read_ahead(world.run)
    world.run.on.source.admin = Hidden(described=True)  # type: ignore[assignment]
    assert rested(world.run) == {}, "it was deleted"
    world.run.on.source.admin = Hidden(described=False)  # type: ignore[assignment]
    with pytest.raises(MissingRight, match="list group 'billing'.*User:mirror lacks Describe on group 'billing'"):
        groups.commit_groups(world.run)
    want(world.run, leave_out_groups=["billing"])
    if known_by == "the plan":
        groups.require_free_groups(world.run)
    assert groups.commit_groups(world.run) == {}
