"""What a failover leaves for readers of checkpoints and for strangers' rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover import run
from airflow_mirror.errors import (
    TryAgain,
)
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.plan.mm2_topics import mark
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.notes import Note
from airflow_mirror.sync.mm2_topics import last
from airflow_mirror.sync.mm2_topics.formats import read_checkpoint
from tests.builders import rule
from tests.unit.failover.run_world import (
    anew,
)
from tests.unit.failover.world import A0, A1, B0, WRITERS, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    one = World(monkeypatch)
    one.target.at = {"g": {A0: GroupPosition(55, "note"), B0: GroupPosition(30)}, "h": {A1: GroupPosition(3)}}
    return one


class Checkpoints:
    """A mirror whose tail has written checkpoints, and a target that may not take them."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        (self.topic,) = world.plan.mirror.trace_topics_of("checkpoints")
        mark(world.ledger(), [self.topic])
        world.effects.log.clear()
        self.world, self.rows, self.refused = world, list[tuple[bytes, bytes]](), False
        monkeypatch.setattr(last, "TraceLog", lambda *_: self)

    def read(self) -> dict[bytes, bytes]:
        return dict(self.rows)

    def write(self, rows: list[tuple[bytes, bytes]], _at_ms: int, check: Callable[[], object]) -> None:
        check()
        if self.refused:
            raise TryAgain("no leader")
        if rows:
            self.world.effects.do("checkpoints", lambda: self.rows.extend(rows))

    def places(self) -> dict[TopicPartition, int]:
        found = [read_checkpoint(*row) for row in self.rows]
        return {one.tp: one.downstream for one in found if one is not None}


def test_checkpoints_are_left_where_groups_stand_from_wherever_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    for dies_at in range(20):
        for after in (False, True):
            world = World(monkeypatch)
            checkpoints = Checkpoints(world, monkeypatch)
            world.target.at = {"g": {A0: GroupPosition(55), B0: GroupPosition(30), A1: GroupPosition(9)}}
            note = Note(1, {A0: ((55, ""),), B0: ((30, ""),), A1: ((8, ""),)})
            world.state.write({notes.key("m", "g"): notes.dump(note)})
            died = world.dies(dies_at, after=after)
            if world.outcome()["open"]:
                world.target.stable = {A0: 60, A1: 60, B0: 60}  # applications write
            report = world.fail_over()
            # A0 was taken back to the log's end; A1 somebody else has set.
            assert checkpoints.places() == {A0: 50, B0: 30}
            assert report.steps["checkpoints"]["lines"] in (["g at a-0: 50", "g at b-0: 30"], [])
            assert world.outcome()["open"] == {"a", "b"}
            if not died:
                return
    pytest.fail("it has more effects than that")


def test_checkpoints_that_can_not_be_written_undo_no_failover(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(world, monkeypatch)
    checkpoints.refused = True
    (line,) = world.fail_over().steps["checkpoints"]["lines"]
    assert line.startswith("not all of the last ones are written") and "no leader" in line
    assert world.outcome()["open"] == {"a", "b"}


def test_checkpoints_are_not_left_by_who_thaws_behind_another_direction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tail's stand there by then, and Java clients go by the newest."""
    checkpoints = Checkpoints(world, monkeypatch)
    world.target.at = {"g": {B0: GroupPosition(30)}}
    world.state.write({notes.key("m", "g"): notes.dump(Note(1, {B0: ((30, ""),)}))})
    monkeypatch.setattr(run, "recently", lambda ours, _clock: ours)  # it was frozen for longer than that

    def frozen() -> dict[bytes, bytes]:
        world.ledger().decide(anew)
        return {}

    monkeypatch.setattr(checkpoints, "read", frozen)
    with pytest.raises(TryAgain, match="mirror 'm': another direction was decided meanwhile"):
        world.fail_over()
    assert checkpoints.rows == []


@pytest.mark.parametrize("strangers", [[], ["b2"]], ids=["alone", "beside others"])
def test_rules_are_granted_for_the_mirrors_own_topics_and_groups_alone(world: World, strangers: list[str]) -> None:
    """Who may write to the ledger could note any rule, and have it granted on the day of a disaster."""
    app = partial(rule, operation="ALL", principal="User:app")
    meant = [
        *WRITERS, app("*"), app("b", pattern="PREFIXED"), app("a", pattern="PREFIXED"), app("*", kind="TRANSACTIONAL_ID"),
        app("readers", kind="GROUP"),
    ]  # fmt: skip
    not_meant = [
        app("b2"), app("airflow-mirror.decisions"), app("airflow-mirror", pattern="PREFIXED"),
        app("c", pattern="PREFIXED"),
        app("kafka-cluster", kind="CLUSTER"), app("x", kind="DELEGATION_TOKEN"), app("a", pattern="MATCH"),
        app("airflow-mirror:m:lease", kind="TRANSACTIONAL_ID"), app("airflow-mirror:m:progress", kind="GROUP"),
        rule("a", "ALL", "DENY", "User:mirror"), rule("a", "ANY", "ALLOW", "User:app"),
        rule("a", "ALL", "LET", "User:app"),
        rule("x", "WRITE", "ALLOW", "User:idle", kind="TRANSACTIONAL_ID"),
        rule("*", "WRITE", "DENY", kind="TRANSACTIONAL_ID"),
    ]  # fmt: skip
    world.state.write(seen_acls.changed("m", {}, [*meant, *not_meant]))  # type: ignore[arg-type]
    world.target.strangers = strangers
    lines = world.fail_over().steps["grants"]["lines"]
    too_wide = {
        app("*"),
        app("a", pattern="PREFIXED"),
        *([app("b", pattern="PREFIXED")] if strangers else []),
    }  # the ledger
    assert set(world.target.acls) == {*meant, app("a"), app("b")} - too_wide
    left = [line for line in lines if line.startswith("left out: ")]
    assert len(left) == len(not_meant) and all(any(str(one) in line for line in left) for one in not_meant)
