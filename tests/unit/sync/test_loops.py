"""Tails stop a ring of mirrors whose plans were made at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.errors import LedgerLost, NeedsHuman, TryAgain
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import mark_cut_over
from airflow_mirror.sync import loops
from airflow_mirror.sync.loops import LoopWatch
from tests.unit.plan.test_upstream import NOON, World


def watch(world: World, plan: Plan) -> LoopWatch:
    ledger = world.ledgers[plan.target_cluster_id]
    return LoopWatch(plan, world.ledgers[plan.source_cluster_id].values, ledger, world.targets(plan))


def ring(size: int) -> tuple[World, list[LoopWatch]]:
    """Mirrors that have begun before any of them could see another one."""
    clusters = "abcdef"[:size]
    world = World(clusters)
    plans = [world.plan(here, there) for here, there in zip(clusters, clusters[1:] + clusters[0], strict=True)]
    return world, [watch(world, plan) for plan in plans]


def stops(one: LoopWatch) -> bool:
    try:
        one.look()
    except NeedsHuman:
        return True
    return False


@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_a_ring_is_stopped_in_as_many_looks_as_it_has_tails(size: int, chance: Any) -> None:
    """In whatever order they look. The first looks of all only say who reads from whom."""
    _, tails = ring(size)
    for _ in range(size):
        if any([stops(one) for one in chance.sample(tails, size)]):
            return
    pytest.fail("nobody stopped")


def test_a_ring_of_three_is_stopped_within_a_minute() -> None:
    """The slowest order: each one looks before its source says anything new."""
    _, tails = ring(3)
    looks = next(n for n in range(1, 9) if any([stops(one) for one in reversed(tails)]))
    assert looks * loops.EVERY_S < 60


def test_a_chain_tells_its_end_what_became_of_its_beginning() -> None:
    """A cluster joins upstream, and leaves when its topic is handed over to applications."""
    world = World("abcd")
    tails = [watch(world, world.plan(here, there)) for here, there in ("bc", "cd")]
    for one in tails:
        one.look()
    first = world.start("a", "b")
    for one in tails:
        one.look()
    assert world.owner("d").upstream == ("a", "b", "c")
    mark_cut_over(world.ledgers["b"], first, {"orders": "orders on b"}, NOON)
    for one in tails:
        one.look()
    assert world.owner("d").upstream == ("b", "c")
    decided = len(world.ledgers["d"].records)
    tails[-1].look()
    assert len(world.ledgers["d"].records) == decided, "what has not changed is not said again"


def test_topics_that_joined_are_looked_at_too() -> None:
    world = World("ab")
    plan = world.plan("a", "b")
    before = replace(plan, topics=())
    tail = LoopWatch(before, world.ledgers["a"].values, world.ledgers["b"], world.targets(plan))
    tail.look()
    assert not world.ledgers["b"].records
    tail.follow(plan)
    tail.look()
    assert world.owner("b").upstream == ("a",)


@pytest.mark.parametrize("error", [TryAgain("no broker answers"), LedgerLost("topic was deleted")])
@pytest.mark.parametrize("side", ["source", "target"])
def test_copying_does_not_wait_for_a_ledger(side: str, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    world = World("ab")
    plan = world.plan("a", "b")
    one, broken = watch(world, plan), world.ledgers["a" if side == "source" else "b"]
    works, broken.read = broken.read, lambda _: (_ for _ in ()).throw(error)  # type: ignore[method-assign]
    one.look()
    assert str(error) in caplog.text
    broken.read = works  # type: ignore[method-assign]
    one.look()
    assert world.owner("b").upstream == ("a",), "said once it can be"


def test_a_tail_looks_now_and_then() -> None:
    world = World("ab")
    plan, times, asked = world.plan("a", "b"), [0.0, 0.5, loops.EVERY_S - 0.1, loops.EVERY_S, loops.EVERY_S + 0.5], []

    def read() -> dict[str, Any]:
        asked.append(now)
        return {}

    one = LoopWatch(plan, read, world.ledgers["b"], world.targets(plan), lambda: now)
    for now in times:  # noqa: B007
        one.look_in_turn()
    assert asked == [0.0, loops.EVERY_S]
