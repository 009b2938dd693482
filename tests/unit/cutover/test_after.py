"""What is said of a cutover minutes after the opening, and what is an error."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.cutover import quiet
from airflow_mirror.cutover.after import After, look_after, told_gone
from airflow_mirror.cutover.decision import CLOSED
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.report import RUNNING, CutoverReport
from airflow_mirror.errors import InputError, SourceNotSilent
from airflow_mirror.kafka.model import GroupPosition
from tests.builders import rule
from tests.unit.rollback.world import ORDERS, World

DENY = rule("orders", "WRITE", "DENY")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The cutover of one topic at offset 50, opened at second 2; its group was set to 7. At 90 and behind are markers."""
    monkeypatch.setattr(quiet, "written_by", lambda _log, _tp, start, end: ["a producer"] * (min(end, 90) > start))
    made = World()
    made.old.shut = False
    made.new.wire.end = 60
    return made


def look(world: World, report: CutoverReport | None = None) -> After:
    return look_after(world.on, report or world.report, 602.0)


def decided(world: World, **fields: Any) -> None:
    """Decide something else about the fence."""
    world.new.ledger.decide(lambda values: {"fence/flow": {**values["fence/flow"], **fields}})


def test_group_that_reads_on_and_a_silent_source_are_well(world: World) -> None:
    world.new.members.add("g")
    world.new.positions["g"] = {ORDERS: GroupPosition(55, "")}
    found = look(world)
    found.raise_if_wrong()
    assert found.lines() == [
        "600 s after the opening: the old source is silent; its fence is up", "1 of 1 group read on",
    ]  # fmt: skip
    assert (found.groups[0].committed, found.groups[0].lag) == (True, 5)


@pytest.mark.parametrize(
    ("member", "offset", "said"), [(True, 7, "Stable, has not committed yet, lag 53"), (False, 55, "Empty, has")]
)
def test_group_that_does_not_read_on_is_named(world: World, member: bool, offset: int, said: str) -> None:
    """One that was switched and hangs, and one that has read and is gone."""
    world.new.members |= {"g"} if member else set()
    world.new.positions["g"] = {ORDERS: GroupPosition(offset, "")}
    found = look(world)
    found.raise_if_wrong()
    assert found.lines()[1] == "0 of 1 group read on" and said in found.lines()[2]


def test_write_to_a_fenced_source_is_an_error_with_its_place(world: World) -> None:
    world.old.wire.end = 53
    found = look(world)
    assert "the old source was written to: orders-0 by 3; its fence is up" in found.lines()[0]
    with pytest.raises(SourceNotSilent, match=r"took writes since the cutover \(orders-0 by 3\), although it is fenced"):
        found.raise_if_wrong()


def test_marker_of_a_transaction_that_met_the_fence_is_no_write(world: World) -> None:
    """It had registered the partition, and written nothing: its end comes minutes later."""
    world.report.ends[0]["end"], world.old.wire.end = 90, 91
    found = look(world)
    found.raise_if_wrong()
    assert not found.moved and "the old source is silent" in found.lines()[0]
    world.old.wire.start = 91
    with pytest.raises(SourceNotSilent):
        look(world).raise_if_wrong()
    world.old.wire.start, world.old.wire.end = 0, 89
    with pytest.raises(SourceNotSilent):
        look(world).raise_if_wrong()


def test_reverse_mirror_may_write_to_the_old_source(world: World) -> None:
    decided(world, intent={"copied_by": "flow-reverse"})
    world.old.wire.end = 53
    found = look(world)
    found.raise_if_wrong()
    assert "mirror 'flow-reverse' writes to the old source" in found.lines()[0]


def test_fence_that_somebody_removed_is_an_error_before_any_write(world: World) -> None:
    world.old.acls.discard(DENY)
    found = look(world)
    with pytest.raises(SourceNotSilent, match="may take writes again, because its fence is gone"):
        found.raise_if_wrong()


@pytest.mark.parametrize(
    ("fields", "removed", "said"),
    [
        ({}, False, []),
        ({}, True, ["the fence of cutover monday"]),
        ({"phase": CLOSED}, True, []),
        ({"kind": "callable"}, True, []),
        ({"intent": {"pending": True}}, True, []),  # it waits for other mirrors' fences
    ],
    ids=["up", "gone", "closed", "callable", "to-come"],
)
def test_fence_that_is_gone_is_told_to_whoever_looks_at_the_mirror(
    world: World, fields: dict[str, Any], removed: bool, said: list[str]
) -> None:
    decided(world, **fields)
    if removed:
        world.old.acls.discard(DENY)
    assert told_gone(world.on, "flow", print) == said


def test_fence_that_is_closed_while_it_is_looked_for_is_not_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed_meanwhile(*_: object) -> bool:
        decided(world, phase=CLOSED)
        return False

    monkeypatch.setattr(AclFence, "is_up", closed_meanwhile)
    assert told_gone(world.on, "flow", print) == []


def test_fence_that_can_not_be_looked_for_is_no_alarm(world: World) -> None:
    said = list[str]()
    decided(world, plan="lost")
    assert told_gone(world.on, "flow", lambda text, *of: said.append(text % of)) == []
    assert "the fence of mirror 'flow' stands at its source was not looked for: neither this host" in said[0]


def test_source_that_is_open_on_purpose_may_be_written_to(world: World) -> None:
    decided(world, phase=CLOSED)
    world.old.wire.end = 51
    found = look(world)
    found.raise_if_wrong()
    assert found.fence == "open" and "orders-0 by 1" in found.lines()[0]


def test_source_that_is_shut_by_a_callable_may_not(world: World) -> None:
    decided(world, kind="callable")
    look(world).raise_if_wrong()
    assert look(world).lines()[0].endswith("; its fence is a function's, which was not asked")
    world.old.wire.end = 51
    with pytest.raises(SourceNotSilent, match="orders-0 by 1"):
        look(world).raise_if_wrong()


def test_cutover_that_has_not_finished_has_no_aftermath(world: World) -> None:
    world.report.outcome = RUNNING
    with pytest.raises(InputError, match="no finished cutover"):
        look(world)
    with pytest.raises(InputError, match="no finished cutover"):
        look_after(world.on, None, 1.0)
