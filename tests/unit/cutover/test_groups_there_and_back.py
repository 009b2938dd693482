"""Groups are moved on a source that stands still, and get back exactly what they had before."""

from __future__ import annotations

import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.cutover import groups, groups_at_rest, steps
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.report import BACKED_OUT, CUT_OVER, RUNNING, UNDO_FAILED, CutoverReport
from airflow_mirror.cutover.undoing import recover
from airflow_mirror.errors import (
    GroupActive,
    GroupAhead,
    GroupsStillMoving,
    MirrorError,
    NotKept,
    NotUndone,
    TryAgain,
)
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.records import TOPIC
from airflow_mirror.plan.direction import FAILOVER, Direction, turn
from airflow_mirror.plan.mm2_topics import mark
from airflow_mirror.plan.owned import Owned
from airflow_mirror.sync import groups as sync
from airflow_mirror.sync.mm2_topics import last
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, read_checkpoint
from tests.unit.cutover.builders import want
from tests.unit.cutover.groups_world import (
    ORDERS,
    PAYMENTS,
    Admin,
    Positions,
    World,
    at,
    restored,
)


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
        mark(run.ledger, run.mirror.trace_topics_of("checkpoints"))
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
    reading = world.target.group_offsets

    def reads_on(group: str) -> Positions:
        world.source.positions[ORDERS] = world.target.positions[ORDERS] = GroupPosition(93)
        return reading(group)

    world.target.group_offsets = reads_on  # type: ignore[method-assign]
    groups.commit_groups(world.run)
    assert at(world.target.positions) == {ORDERS: 93}
    world.target.group_offsets = reading  # type: ignore[method-assign]
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
    opening = steps.Step("open_target", moving.to, CUT_OVER, fail)
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


A_FAILOVER = Direction(generation=1, primary="t", by=FAILOVER, attempt="1", plan="p", at="noon")


@pytest.mark.parametrize(
    "meanwhile",
    ["nothing", "read on", "a failover", "a failover of more topics", "passed on", "given up", "a newer version"],
)
def test_group_that_was_refused_goes_back_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Only if it stands where this attempt has put it, and neither a failover nor another mirror's cutover has opened
    the topic to its readers.
    """
    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 40})
    world.up()
    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr(steps, "back_out", lambda *_: None)
        commit = next(step for step in steps.STEPS if step.name == "commit_groups")
        steps.walk(world.run, [commit, replace(commit, do=lambda _: sys.exit())])
    assert at(world.target.positions) == {ORDERS: 90}

    def next_try() -> CutoverReport | None:
        run = World(tmp_path, {}, {}).run
        run.on.target.admin = world.target  # type: ignore[assignment]
        return recover(run)

    def refuse(*_: Any) -> None:
        raise GroupActive("billing", "target", "stable")

    with monkeypatch.context() as joined:
        joined.setattr(world.target, "commit_group_offsets", refuse)
        for _ in range(2):
            with pytest.raises(NotUndone, match="commit_groups: GroupActive"):
                next_try()
    if meanwhile == "read on":
        world.target.positions[ORDERS] = GroupPosition(95)
    if meanwhile.startswith("a failover"):
        first = "orders" if meanwhile == "a failover" else "payments"  # it opens them one decision after another
        its = Owned(
            topic_id="", mirror=world.run.mirror.name, source_id=world.run.plan.source_cluster_id,
            opened_by=A_FAILOVER.opened_by, opened_at="noon",
        )  # fmt: skip
        turned = {**turn(world.run.mirror.name, A_FAILOVER), TOPIC.key(first): its.value()}
        world.run.ledger.decide(lambda _: turned)
    if meanwhile == "passed on":
        its = Owned(topic_id="", mirror="split-off", source_id="s", opened_by="h", opened_at="noon")
        world.run.ledger.decide(lambda _: {TOPIC.key("orders"): its.value()})
    if meanwhile == "given up":
        world.run.ledger.decide(lambda _: {TOPIC.key("orders"): None})
    if meanwhile == "a newer version":
        world.run.ledger.decide(lambda _: {TOPIC.key("orders"): {"v": 99}})
        with pytest.raises(NotUndone, match="commit_groups: LedgerNewer: .*topic 'orders'"):
            next_try()
        return
    found = next_try()
    assert found is not None and found.outcome == BACKED_OUT
    assert [group.committed for group in found.groups] == [meanwhile not in ("nothing", "read on")]
    assert at(world.target.positions) == {ORDERS: {"nothing": 40, "read on": 95}.get(meanwhile, 90)}
    says = found.undone[-1].what.endswith("; left where they are in orders: not the mirror's any more")
    assert says == (meanwhile in ("passed on", "given up"))


@pytest.mark.parametrize("says", [True, False], ids=["reported", "died before its report"])
def test_owner_that_thaws_hides_no_group_that_could_not_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    """The run's next try took it for dead, and undid it but for a group with members. It wrote "backed out" over that."""
    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 40})
    world.up()
    restores = world.target.commit_group_offsets

    def next_try(dies: bool = False) -> CutoverReport | None:
        run = World(tmp_path, {}, {}).run
        run.on.target.admin = world.target  # type: ignore[assignment]
        if dies:
            monkeypatch.setattr(run.store, "save", lambda _: sys.exit())
        return recover(run)

    def refuse(*_: Any) -> None:
        raise GroupActive("billing", "target", "stable")

    def frozen(_: Attempt) -> dict[str, Any]:
        monkeypatch.setattr(world.target, "commit_group_offsets", refuse)
        with pytest.raises(NotUndone if says else SystemExit):
            next_try(dies=not says)
        monkeypatch.setattr(world.target, "commit_group_offsets", restores)  # its consumer has left
        raise TryAgain("the owner thaws")

    commit = next(step for step in steps.STEPS if step.name == "commit_groups")
    with pytest.raises(TryAgain, match="thaws"):
        steps.walk(world.run, [commit, replace(commit, do=frozen)])
    assert at(world.target.positions) == {ORDERS: 90}
    kept = world.run.store.load()
    assert kept is not None and kept.outcome == (UNDO_FAILED if says else RUNNING)
    found = next_try()
    assert found is not None and found.outcome == BACKED_OUT
    assert at(world.target.positions) == {ORDERS: 40}


class Several(Admin):
    """Positions of several groups; ``joined`` have members, who alone may commit."""

    def __init__(self, positions: dict[str, int]) -> None:
        super().__init__({})
        self.its: dict[str, Positions] = {group: {ORDERS: GroupPosition(offset)} for group, offset in positions.items()}
        self.joined: set[str] = set()

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Empty", "consumer") for group in self.its]

    def group_offsets(self, group: str) -> Positions:
        return dict(self.its[group])

    def commit_group_offsets(self, group: str, wanted: Positions, permit: Permit = unfenced) -> None:
        permit()
        if group in self.joined:
            raise GroupActive(group, "target", "stable")
        self.its[group] |= wanted

    def offsets(self) -> dict[str, int]:
        return {group: its[ORDERS].offset for group, its in self.its.items()}


@pytest.mark.parametrize("dies", [False, True])
def test_group_that_went_back_and_follows_again_is_not_taken_back_by_a_later_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The tail, started again, had let it follow to where the cutover had set it. Set back then, it is foreign to the
    follower, and stands still.

    A process that died behind the commit has noted of no group that it was set.
    """
    world, target = World(tmp_path, {}, {}), Several({"back": 40, "joined": 30})
    world.run.on.source.admin = Several({"back": 90, "joined": 80})  # type: ignore[assignment]
    world.run.on.target.admin = target  # type: ignore[assignment]
    world.up()
    commit = next(step for step in steps.STEPS if step.name == "commit_groups")
    set_positions = sync.set_positions

    def die(*arguments: Any) -> None:
        set_positions(*arguments)
        sys.exit()

    with monkeypatch.context() as killed, pytest.raises(SystemExit):
        killed.setattr(steps, "back_out", lambda *_: None)
        if dies:
            killed.setattr(sync, "set_positions", die)
        steps.walk(world.run, [commit, replace(commit, do=lambda _: sys.exit())])
    assert target.offsets() == {"back": 90, "joined": 80}

    def next_try() -> CutoverReport | None:
        run = World(tmp_path, {}, {}).run
        run.on.target.admin = target  # type: ignore[assignment]
        return recover(run)

    target.joined = {"joined"}
    with pytest.raises(NotUndone, match="commit_groups: GroupActive"):
        next_try()
    assert target.offsets() == {"back": 40, "joined": 80}
    target.its["back"] = {ORDERS: GroupPosition(90)}  # by the tail
    with pytest.raises(NotUndone, match="commit_groups: GroupActive"):
        next_try()
    target.joined.clear()
    found = next_try()
    assert found is not None and found.outcome == BACKED_OUT and found.undone[-1].what == "1 group(s) restored"
    assert target.offsets() == {"back": 90, "joined": 30}


def test_groups_of_a_mirror_that_was_started_over_since_its_failover_go_back(tmp_path: Path) -> None:
    """The direction is still that failover's, and the topics that it has opened are no more."""

    def fail(_: Attempt) -> dict[str, Any]:
        raise RuntimeError("the target does not open")

    world = World(tmp_path, {ORDERS: 90}, {ORDERS: 40})
    world.run.ledger.decide(lambda _: turn(world.run.mirror.name, A_FAILOVER))
    world.run.turned = A_FAILOVER
    world.up()
    commit = next(step for step in steps.STEPS if step.name == "commit_groups")
    with pytest.raises(RuntimeError, match="does not open"):
        steps.walk(world.run, [commit, replace(commit, do=fail)])
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
