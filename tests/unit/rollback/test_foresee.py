"""Whether there will be a way back is said before the cutover, by what arming it would ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.rollback.foresee import foresee
from airflow_mirror.errors import MissingRight, NothingMatches
from airflow_mirror.plan.direction import turn
from airflow_mirror.plan.findings import Finding
from tests.builders import rule
from tests.unit.rollback.arming import one
from tests.unit.rollback.world import PLAN, REVERSE, World


class Before(World):
    """The clusters before the fence. :ivar hidden: why transactions may be unseen on the source."""

    hidden = ""

    def __init__(self) -> None:
        super().__init__()
        self.old.shut = False
        self.old.acls = {rule("orders", "WRITE", "ALLOW", "User:shop")}
        self.old.transactions_hidden = lambda: self.hidden  # type: ignore[attr-defined]

    def foresee(self, plan: Any = PLAN, fence: Any = None) -> Finding:
        before = self.changes.left
        found = foresee(plan, self.on, fence or AclFence(self.old), self.build)  # type: ignore[arg-type]
        assert self.changes.left == before, "nothing was changed"
        return found


@pytest.fixture
def world() -> Before:
    return Before()


def test_way_back_that_can_be_armed_is_said_before_the_cutover(world: Before) -> None:
    found = world.foresee()
    assert found.level == "pass" and "can be copied back" in found.evidence


def _mapped(world: Before) -> Finding:
    return world.foresee(replace(PLAN, topics=(replace(PLAN.topics[0], mode="mapped"),)))


def _callable(world: Before) -> Finding:
    return world.foresee(fence=CallableFence(lambda: None, lambda: None))


def _hidden(world: Before) -> Finding:
    world.hidden = "no DESCRIBE"
    return world.foresee()


def _wide(world: Before) -> Finding:
    world.old.acls.add(rule("*", "WRITE", "ALLOW"))
    return world.foresee()


def _blocked(world: Before) -> Finding:
    world.reverse = replace(REVERSE, findings=(Finding("block", "brokers", "the target", "is too old", "Upgrade."),))
    return world.foresee()


def _without(world: Before) -> Finding:
    world.reverse = NothingMatches(["orders"], [], [])
    return world.foresee()


def _rolled_back(world: Before) -> Finding:
    """An earlier cutover of the mirror was; it was retired on the target then, and migrates once more."""
    world.old.ledger.decide(lambda _: turn("flow-reverse", one(2, "old")))
    return world.foresee()


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        (_mapped, "offsets differ"),
        (_callable, "by a callable"),
        (_hidden, "may still end on the source: no DESCRIBE"),
        (_wide, "covers more"),
        (_blocked, "is too old"),
        (_without, "orders"),
        (
            _rolled_back,
            "since, by a rollback; if that is over, 'airflow-mirror retire --target OLD --mirror flow-reverse",
        ),
    ],
)
def test_what_speaks_against_it_is_said_before_the_cutover(world: Before, case: Any, cause: str) -> None:
    found = case(world)
    assert found.level == "warn" and found.evidence.startswith("no way back after opening: ") and cause in found.evidence


def test_loop_that_the_cutover_itself_ends_speaks_not_against_it(world: Before) -> None:
    world.reverse = replace(REVERSE, findings=(Finding("block", "loops", "orders", "would return", "Stop."),))
    assert world.foresee().level == "pass"


def test_what_may_not_be_asked_is_not_taken_for_a_yes(world: Before, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: Any) -> Any:
        raise MissingRight("describe ACLs", "CLUSTER_AUTHORIZATION_FAILED", "User:mirror")

    monkeypatch.setattr(world.old, "describe_acls", refused)
    found = world.foresee()
    assert found.level == "warn" and "not known: " in found.evidence
