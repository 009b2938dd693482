"""A source that returns beside other fences, and brokers that are not all back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.clock import SystemClock
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.decision import LIFTED, LIFTING, OPENED, UP, FenceState, fence_state, stand_behind_open
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.failover import returned
from airflow_mirror.cutover.failover.returned import fence_returned, watch
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.errors import (
    AuthenticationFailed,
    ClusterUnreachable,
    FencedByAnother,
    FenceStands,
    InputError,
)
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.direction import direction
from tests.builders import rule
from tests.unit.failover.returns import QUICK, Returns, Source


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Returns:
    return Returns(monkeypatch)


class Waited(SystemClock):
    """A clock that says how long it was asked to wait, and does something meanwhile."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self.waited, self.meanwhile = list[float](), meanwhile

    def sleep(self, seconds: float, /) -> None:  # type: ignore[override]
        self.waited.append(seconds)
        for do in self.meanwhile:
            do()


class Meanwhile(AclFence):
    """A fence behind whose back another mirror's is named, and perhaps raised, before its own name is there."""

    def __init__(self, world: Returns, *, raises: bool) -> None:
        super().__init__(world.source)  # type: ignore[arg-type]
        self.raises, self.other = raises, name_of("other", "x", "1")

    def claim(self, name: str, permit: Permit) -> None:
        if self.raises:
            super().raise_(Intent(topics=("a", "b")), self.other, unfenced)
        super().claim(self.other, unfenced)
        super().claim(name, permit)


@pytest.mark.parametrize("raises", [False, True])
def test_a_fence_of_another_mirror_that_came_in_the_same_second_is_left_alone(world: Returns, raises: bool) -> None:
    """Whoever lifted ours would lift its rules, which are the same; the next try begins anew once it is gone."""
    fence = Meanwhile(world, raises=raises)
    with pytest.raises(FencedByAnother, match="other:x:1"):
        fence_returned(world.both(), "m", fence, limits=QUICK)
    there = fence_state(world.ledger().values(), "m")
    assert there is not None and (there.phase, Intent.of(there.intent, ["a", "b"]).pending) == (OPENED, True)
    assert fence.standing("m", "") == {} and fence.standing("other", "") == {fence.other: False}
    assert raises == (rule("a", "WRITE", "DENY") in world.source.acls)
    fence.lift(Intent(topics=("a", "b")), fence.other, unfenced)
    assert world.fence().offsets == 3 and world.is_fenced()


def test_fences_of_other_topics_that_our_ledger_does_not_know_are_looked_at_twice(world: Returns) -> None:
    """A name is there before its rules: they may come while ours are being described."""
    both, other = world.both(), name_of("other", "x", "1")
    AclFence(world.source).claim(other, unfenced)  # type: ignore[arg-type]
    both.source.clock = clock = Waited(lambda: world.source.acls.add(rule("a", "WRITE", "DENY")))
    with pytest.raises(FencedByAnother, match="other:x:1"):
        fence_returned(both, "m", AclFence(world.source), limits=QUICK)  # type: ignore[arg-type]
    assert clock.waited == [12.0]
    world.source.acls.discard(rule("a", "WRITE", "DENY"))
    both.source.clock = Waited()
    assert fence_returned(both, "m", AclFence(world.source), limits=QUICK).offsets == 3  # type: ignore[arg-type]


def test_a_cutovers_fence_that_stands_is_not_taken_over(world: Returns) -> None:
    up = FenceState(
        run="tuesday", attempt=1, id="o", plan="p", revision="p", owner="o", max_fence_s=60.0, phase=UP
    )  # fmt: skip
    world.ledger().decide(lambda _: {"fence/m": {"v": 1, **vars(up)}})
    turned = direction(world.ledger().values(), "m")
    assert turned is not None
    with pytest.raises(FenceStands, match="tuesday"):
        stand_behind_open(world.ledger(), "m", replace(up, run="failover-x", phase=OPENED), turned)
    with pytest.raises(FenceStands):
        world.fence()
    assert "create DENY TOPIC" not in world.effects.log


def test_without_a_failover_nobody_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Returns(monkeypatch)
    world.ledger().decide(lambda _: {"direction/m": None})
    with pytest.raises(InputError, match="was not failed over"):
        watch(Source.config, world.target, "m", pause=pytest.fail)  # type: ignore[arg-type]


class Told:
    """A log whose lines are kept."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.said.append(text % values)

    warning = info


def answering(world: Returns, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Have the source refuse its first requests, one after the other."""
    left = list(errors)

    class Admin:
        def __init__(self, *_: Any, timeout_s: float = 15.0) -> None:
            self.first = timeout_s < 15

        def __enter__(self) -> Any:
            if self.first and left:
                raise left.pop(0)
            return world.source

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(returned, "ClusterAdmin", Admin)
    monkeypatch.setattr(returned, "Limits", lambda: QUICK)


@pytest.mark.parametrize("phase", [UP, LIFTING])
def test_a_cutovers_fence_that_stood_when_the_source_was_lost_is_waited_for(
    world: Returns, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """A failover was forced over it. A guard, or who lifts it, opens the source: somebody has to stand by still."""
    up = FenceState(
        run="tuesday", attempt=1, id="o", plan="p", revision="p", owner="o", max_fence_s=60.0, phase=phase
    )  # fmt: skip
    note_copy(world.ledger(), "m", up)
    answering(world, monkeypatch, ClusterUnreachable("source", "nowhere:1", "no answer"))
    log, pauses = Told(), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            world.ledger().decide(lambda _: {"fence/m": {"v": 1, **vars(replace(up, phase=LIFTED))}})

    found = watch(Source.config, world.target, "m", pause=pause, log=log)  # type: ignore[arg-type]
    assert found.offsets == 3 and world.is_fenced() and len(pauses) == 4
    assert log.said[0].startswith(f"the fence of cutover 'tuesday' {up.text}: when the source has returned, lift it")
    told = [line for line in log.said if "not fenced yet" in line and "tuesday" in line]
    assert len(told) == 1 and told[0].endswith("once the source answers; then this one goes up.")


def test_a_broker_that_is_back_before_its_users_are_known_ends_no_watch(
    world: Returns, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(world, monkeypatch, *[AuthenticationFailed("source", "nowhere:1", "no directory")] * 2)
    log, pauses = Told(), list[float]()
    found = watch(Source.config, world.target, "m", pause=pauses.append, log=log)  # type: ignore[arg-type]
    assert found.offsets == 3 and world.is_fenced() and len(pauses) == 2
    assert sum("not fenced yet" in line and "refused to authenticate" in line for line in log.said) == 1


def test_source_is_asked_every_second_until_it_answers(world: Returns, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go away again in between, and what it says meanwhile is logged once."""
    answers = iter([False, False, True, False, True])
    pauses: list[float] = []
    log = Told()

    class Admin:
        def __init__(self, config: ClientConfig, timeout_s: float = 15.0) -> None:
            assert config == Source.config
            self.first = timeout_s < 15

        def __enter__(self) -> Any:
            if self.first and not next(answers):
                raise ClusterUnreachable("source", "nowhere:1", "no answer")
            return world.source

        def __exit__(self, *_: object) -> None:
            if not self.first and len(pauses) == 2:
                raise ClusterUnreachable("source", "nowhere:1", "no answer")

    monkeypatch.setattr(returned, "ClusterAdmin", Admin)
    monkeypatch.setattr(returned, "Limits", lambda: QUICK)
    found = watch(Source.config, world.target, "m", pause=pauses.append, log=log)  # type: ignore[arg-type]
    assert found.offsets == 3 and world.is_fenced() and pauses == [1.0] * 4
    assert sum("not fenced yet" in line for line in log.said) == 1
