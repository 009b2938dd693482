"""Groups are moved on a source that stands still, and get back exactly what they had before."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import check, groups, groups_at_rest, steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.fence import CallableFence
from airflow_mirror.cutover.report import StepRecord
from airflow_mirror.cutover.request import Limits
from airflow_mirror.cutover.run import recover
from airflow_mirror.errors import (
    GroupActive,
    GroupAhead,
    GroupsStillMoving,
    MirrorError,
    MissingRight,
    NotKept,
    TryAgain,
)
from airflow_mirror.kafka.model import STREAMS, GroupInfo, GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.mm2_topics import mark
from airflow_mirror.sync import groups as sync
from airflow_mirror.sync.mm2_topics import last
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, read_checkpoint
from tests.unit.cutover.builders import Described, Logs, a_run, go_up, want

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
ENDS = {ORDERS: 100, PAYMENTS: 7}
ALIVE = GroupInfo("billing", "Stable", "consumer")
Positions = dict[TopicPartition, GroupPosition]
Only = Mapping[str, Iterable[TopicPartition]] | None


class Admin(Described):
    """One group's positions on a cluster, without members; ``then`` holds what is found at each later reading."""

    role = "cluster"

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions: Positions = {tp: GroupPosition(offset) for tp, offset in positions.items()}
        self.then: list[dict[TopicPartition, int]] = []
        self.forgotten: list[TopicPartition] = []

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo("billing", "Empty", "consumer")]

    def group_offsets(self, group: str) -> Positions:
        assert group == "billing"
        found = dict(self.positions)
        if self.then:
            self.positions = {tp: GroupPosition(offset) for tp, offset in self.then.pop(0).items()}
        return found

    def groups_offsets(self, ids: Iterable[str], only: Only = None) -> dict[str, Positions]:
        found = {group: self.group_offsets(group) for group in ids}
        return {g: {tp: p for tp, p in its.items() if only is None or tp in only[g]} for g, its in found.items()}

    def commit_group_offsets(self, group: str, wanted: Positions, _permit: Permit = unfenced) -> None:
        self.positions |= wanted

    def forget_group_offsets(self, group: str, tps: Sequence[TopicPartition], _permit: Permit = unfenced) -> None:
        self.forgotten += tps
        for tp in tps:
            del self.positions[tp]


class Log(Logs):
    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)


class World:
    def __init__(self, tmp_path: Path, source: dict[TopicPartition, int], target: dict[TopicPartition, int]) -> None:
        self.source, self.target = Admin(source), Admin(target)
        self.run = a_run(tmp_path, CallableFence(lambda: None, lambda: None), self.source)
        self.run.on.target.admin = self.target  # type: ignore[assignment]
        self.run.on.source.log, self.run.on.target.log = Log(ENDS), Log(ENDS)  # type: ignore[assignment]
        self.run.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in ENDS.items()]
        self.run.may_set = unfenced
        want(self.run, limits=replace(self.run.limits, group_quiet_s=0.0))

    def up(self) -> None:
        """Decide that its fence is up."""
        go_up(self.run)
        self.run.may_set = unfenced


def restored(run: Attempt) -> str:
    return groups.restore_groups(run.on.target, run.report, unfenced)


def at(positions: Positions) -> dict[TopicPartition, int]:
    return {tp: p.offset for tp, p in positions.items()}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "pause", lambda *_: None)


@pytest.mark.parametrize("late", [80, 95])
def test_position_that_a_tail_set_late_is_set_again(tmp_path: Path, late: int) -> None:
    """It had read it before the lease was taken: the group was elsewhere then."""
    world = World(tmp_path, {ORDERS: 90, PAYMENTS: 7}, {ORDERS: 40})
    world.source.positions[ORDERS] = GroupPosition(90, "note")
    groups.commit_groups(world.run)
    assert groups.keep_groups(world.run) == 0
    world.target.positions[ORDERS] = GroupPosition(late)
    assert groups.keep_groups(world.run) == 1
    assert world.target.positions == {ORDERS: GroupPosition(90, "note"), PAYMENTS: GroupPosition(7)}


def test_position_that_members_read_on_from_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    groups.commit_groups(world.run)
    world.target.positions[ORDERS] = GroupPosition(95)
    monkeypatch.setattr(world.target, "group_states", lambda ids: dict.fromkeys(ids, "Stable"))
    assert groups.keep_groups(world.run) == 0
    assert at(world.target.positions) == {ORDERS: 95}


class Checkpoints:
    """The topic of checkpoints, and the right to write there."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[bytes, bytes]] = []
        self.error: MirrorError | None = None
        self.checks = 0
        run = world.run
        run.lease, world.target.wire = SimpleNamespace(), None  # type: ignore[assignment,attr-defined]
        mark(run.life, run.mirror.trace_topics_of("checkpoints"))
        monkeypatch.setattr(groups, "WritePermit", lambda token: self if token() is run.lease else None)
        monkeypatch.setattr(last, "TraceLog", lambda *_: self)

    def granted(self, _wire: Any) -> Any:
        return nullcontext()

    def check(self) -> None:
        self.checks += 1

    def write(self, rows: list[tuple[bytes, bytes]], _at_ms: int, check: Any) -> None:
        check()
        if self.error is not None:
            raise self.error
        self.rows += rows


def test_last_checkpoints_are_where_groups_were_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, {ORDERS: 90, PAYMENTS: 7}, {ORDERS: 40})
    world.source.positions[ORDERS] = GroupPosition(90, "note")
    groups.commit_groups(world.run)
    assert groups.leave_checkpoints(world.run) == {}, "the mirror has none"
    checkpoints = Checkpoints(world, monkeypatch)
    assert groups.leave_checkpoints(world.run) == {"checkpoints": 2} and checkpoints.checks == 1
    assert [read_checkpoint(*row) for row in checkpoints.rows] == [
        Checkpoint("billing", ORDERS, 90, 90, "note"), Checkpoint("billing", PAYMENTS, 7, 7),
    ]  # fmt: skip


def test_checkpoints_that_can_not_be_written_undo_no_cutover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, {ORDERS: 90}, {})
    groups.commit_groups(world.run)
    Checkpoints(world, monkeypatch).error = TryAgain("no leader")
    assert groups.leave_checkpoints(world.run) == {"checkpoints": "not written: no leader"}
    assert "no leader" in caplog.text


def test_going_back_restores_old_positions_and_forgets_new_ones(tmp_path: Path) -> None:
    world = World(tmp_path, {ORDERS: 90, PAYMENTS: 7}, {ORDERS: 40})
    assert groups.commit_groups(world.run) == {"billing": "empty"}
    assert at(world.target.positions) == {ORDERS: 90, PAYMENTS: 7}
    restored(world.run)
    assert at(world.target.positions) == {ORDERS: 40}
    assert world.target.forgotten == [PAYMENTS]


def test_going_back_leaves_a_position_that_somebody_moved_since(tmp_path: Path) -> None:
    world = World(tmp_path, {ORDERS: 90, PAYMENTS: 7}, {ORDERS: 40})
    groups.commit_groups(world.run)
    world.target.positions[ORDERS] = GroupPosition(95)
    restored(world.run)
    assert at(world.target.positions) == {ORDERS: 95}


def test_position_that_moves_meanwhile_is_moved_again(tmp_path: Path) -> None:
    """The first snapshot stays, and is what a restore brings back."""
    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 40})
    reading = world.source.group_offsets
    seen = 0

    def commits_behind_the_third_reading(group: str) -> Positions:
        nonlocal seen
        seen += 1
        if at(world.target.positions) == {ORDERS: 90}:
            world.source.positions = {ORDERS: GroupPosition(93)}  # after we have read it, and committed
        return reading(group)

    world.source.group_offsets = commits_behind_the_third_reading  # type: ignore[method-assign]
    groups.commit_groups(world.run)
    assert seen > 2 and at(world.target.positions) == {ORDERS: 93}
    restored(world.run)
    assert at(world.target.positions) == {ORDERS: 40}


def test_group_that_reads_on_and_follows_is_not_taken_for_one_that_is_ahead(tmp_path: Path, clock: list[float]) -> None:
    """It has members, and stood still in between; the tail has copied its new position before its lease ran out."""
    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 90})
    groups_at_rest.read_ahead(world.run)
    groups_at_rest.settle_groups(world.run)
    world.source.positions[ORDERS] = world.target.positions[ORDERS] = GroupPosition(93)
    groups.commit_groups(world.run)
    assert at(world.target.positions) == {ORDERS: 93}
    world.run.settled = None
    world.target.positions[ORDERS] = GroupPosition(97)  # somebody else's
    with pytest.raises(GroupAhead):
        groups.commit_groups(world.run)


@pytest.mark.parametrize("times", [1, 3])
def test_position_that_a_tail_sets_right_behind_ours_is_set_again(tmp_path: Path, times: int) -> None:
    """It had read it before the lease was taken. Whoever does so each time is no tail."""
    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 40})
    commit, left = world.target.commit_group_offsets, times

    def commit_and_follow(group: str, wanted: Positions, _permit: Permit = unfenced) -> None:
        nonlocal left
        commit(group, wanted)
        if left:
            left -= 1
            world.target.positions = {ORDERS: GroupPosition(80)}

    world.target.commit_group_offsets = commit_and_follow  # type: ignore[method-assign]
    if times == 1:
        groups.commit_groups(world.run)
        assert at(world.target.positions) == {ORDERS: 90}
    else:
        with pytest.raises(NotKept):
            groups.commit_groups(world.run)
    restored(world.run)
    assert at(world.target.positions) == {ORDERS: 40 if times == 1 else 80}


def test_a_group_that_never_rests_ends_the_attempt(tmp_path: Path) -> None:
    world = World(tmp_path, {ORDERS: 50}, {})
    world.source.then = [{ORDERS: offset} for offset in range(51, 90)]
    want(world.run, limits=replace(world.run.limits, wait_groups_s=0.0))
    with pytest.raises(GroupsStillMoving):
        groups.commit_groups(world.run)


def test_a_cutover_that_fails_behind_the_groups_puts_them_back(tmp_path: Path) -> None:
    def fail(_: Attempt) -> dict[str, Any]:
        raise RuntimeError("the target does not open")

    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 40})
    moving = next(s for s in steps.STEPS if s.name == "commit_groups")
    opening = steps.Step("open_target", moving.to, steps.CUT_OVER, fail)
    world.up()
    with pytest.raises(RuntimeError, match="does not open"):
        steps.walk(world.run, (moving, opening))
    assert at(world.target.positions) == {ORDERS: 40}


@pytest.mark.parametrize("committed", [False, True])
def test_next_process_on_an_empty_disk_puts_groups_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """The first one, and its host, is lost right before or right after the groups are committed."""
    world = World(tmp_path, {ORDERS: 90, PAYMENTS: 7}, {ORDERS: 40})
    commit = sync.set_positions

    def die(*arguments: Any) -> None:
        if committed:
            commit(*arguments)
        raise SystemExit

    world.up()
    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr(sync, "set_positions", die)
        killed.setattr(steps, "back_out", lambda *_: None)
        steps.walk(world.run, [step for step in steps.STEPS if step.name == "commit_groups"])
    assert at(world.target.positions) == ({ORDERS: 90, PAYMENTS: 7} if committed else {ORDERS: 40})
    shutil.rmtree(tmp_path)
    second = World(tmp_path, {}, {})
    second.run.on.target.admin = world.target  # type: ignore[assignment]
    found = recover(second.run)
    assert found is not None and [group.group for group in found.groups] == ["billing"]
    assert at(world.target.positions) == {ORDERS: 40}


def test_kill_before_a_second_commit_brings_the_first_snapshot_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has what the first round set. Taken for somebody else's, it stayed."""
    world, rounds, commit = World(tmp_path, {ORDERS: 90}, {ORDERS: 40}), list[int](), sync.set_positions

    def die_in_the_second(*arguments: Any) -> None:
        rounds.append(1)
        world.source.positions = {ORDERS: GroupPosition(93)}
        if len(rounds) == 2:
            raise SystemExit
        commit(*arguments)

    world.up()
    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr(sync, "set_positions", die_in_the_second)
        killed.setattr(steps, "back_out", lambda *_: None)
        steps.walk(world.run, [step for step in steps.STEPS if step.name == "commit_groups"])
    assert at(world.target.positions) == {ORDERS: 90}
    second = World(tmp_path, {}, {})
    second.run.on.target.admin = world.target  # type: ignore[assignment]
    recover(second.run)
    assert at(world.target.positions) == {ORDERS: 40}


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


def test_time_to_stand_still_runs_while_the_source_is_watched(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(run: Attempt) -> dict[str, Any]:
        clock[0] += run.limits.group_quiet_s
        return {}

    monkeypatch.setattr("airflow_mirror.cutover.quiet.stand_still", watch)
    world = World(tmp_path, {ORDERS: 90}, {})
    world.run.on.source.admin = Alive({ORDERS: 90})  # type: ignore[assignment]
    want(world.run, accept_still_groups=["billing"])
    steps.stand_still(world.run)
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
