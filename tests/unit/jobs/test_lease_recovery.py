"""A tail whose writer lease another job took: it is back soon, unless somebody has decided otherwise, or means it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LedgerMissing, MirrorCutOver, NeedsHuman, TailReplaced, TryAgain, WritingEnded
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.lease_recovery import PAUSES_S, LeaseRecovery
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.waiting import Elapsing

PLAN: Any = SimpleNamespace(mirror=SimpleNamespace(name="m"))


class Stopping(Elapsing):
    """What a tail waits for. :ivar pauses: of the waits. :ivar meanwhile: happens in each."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = list[float]()
        self.meanwhile: Callable[[], object] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        super().wait(timeout)
        self.meanwhile()
        return self.is_set()


class World:
    """A tail that holds its lease; no time passes but in its pauses."""

    def __init__(self, target: WireCluster) -> None:
        self.target, self.stopping, self.status = target, Stopping(), StatusFile(None)
        self.held = HeldLease(target, "m", clock=self.stopping.clock)
        self.pauses = self.stopping.pauses
        self.decided: Callable[[Any], None] = lambda plan: None
        there: Any = SimpleNamespace(require_decided=lambda plan: self.decided(plan))
        self.back = LeaseRecovery(there, self.held, self.status, self.stopping)

    def go(self) -> None:
        self.back.go("the lease is lost.", PLAN)

    @property
    def is_held(self) -> bool:
        try:
            lease.confirm(self.target, self.held.token)
        except TryAgain:
            return False
        return True


Forget = Callable[[], None]


@pytest.fixture
def target() -> Iterator[DrivenCluster]:
    with DrivenCluster("target") as cluster:
        yield cluster


@pytest.fixture
def world(target: DrivenCluster) -> Iterator[World]:
    with WireCluster(target.config) as wire:
        yield World(wire)


@pytest.fixture
def forget(target: DrivenCluster) -> Forget:
    """The coordinator forgets the lease."""
    return lambda: target.transactions.forget(lease_id("m"))


def test_the_lease_is_taken_back_and_shown_when_safe(world: World) -> None:
    """What follows the data writes as soon as it sees a lease that is held: not while the other job's tasks still may."""
    lost = world.held.token
    lease.take(world.target, "m")
    seen = []
    world.stopping.meanwhile = lambda: seen.append(world.held.token is lost)
    world.go()
    assert world.is_held and world.pauses == [PAUSES_S[0], lease.HANDOVER_S] and seen == [True, True]
    (said,) = world.status.brief()["follows"]["lease"]["said"]
    assert "the writer lease is back" in said and "(1 of 5 times)" in said


def test_released_by_the_other_job_it_needs_no_wait(world: World) -> None:
    lease.release(world.target, lease.take(world.target, "m"))
    world.go()
    assert world.is_held and world.pauses == [PAUSES_S[0], 0.0]


@pytest.mark.parametrize(
    ("decided", "ends_with"),
    [
        (TailReplaced("m", "host-b"), TailReplaced),
        (MirrorCutOver("m", ["t"], "noon"), MirrorCutOver),
        (LedgerMissing(), NeedsHuman),
    ],
)  # fmt: skip
def test_a_tail_that_is_not_the_one_ends(world: World, decided: Exception, ends_with: type[Exception]) -> None:
    other = lease.take(world.target, "m")

    def refuse(_: Any) -> None:
        raise decided

    world.decided = refuse
    with pytest.raises(ends_with):
        world.go()
    lease.confirm(world.target, other)


def test_nobody_is_told_of_a_way_back_where_another_tail_was_decided(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """By --takeover, say: the tail ended with an ERROR that sent people to look for a job that they had started."""
    lease.take(world.target, "m")

    def refuse(_: Any) -> None:
        raise TailReplaced("m", "host-b")

    world.decided = refuse
    with pytest.raises(TailReplaced):
        world.go()
    assert world.pauses == [] and caplog.records == []


def test_what_is_decided_before_the_lease_is_taken_back_is_seen(world: World) -> None:
    """It stood still between its look and the taking. What follows the data never sees a lease that is held."""
    lost = world.held.token
    lease.take(world.target, "m")

    def opened(_: Any) -> None:
        if world.pauses[-1:] == [lease.HANDOVER_S]:
            raise MirrorCutOver("m", ["t"], "noon")

    world.decided = opened
    with pytest.raises(MirrorCutOver):
        world.go()
    assert world.held.token is lost


def test_a_lease_that_ends_all_writing_stays_taken(world: World) -> None:
    """By a cutover, also one that takes it while the tail is on its way back."""
    lease.take(world.target, "m")
    taken = []
    world.stopping.meanwhile = lambda: taken.append(lease.take(world.target, "m", to_end=True))
    with pytest.raises(NeedsHuman, match="all writing was ended"):
        world.go()
    lease.confirm(world.target, taken[0])


def test_nobody_is_sent_to_look_for_another_job_where_a_cutover_has_ended_all(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    lease.take(world.target, "m", to_end=True)
    with pytest.raises(WritingEnded, match="all writing was ended, by a cutover") as caught:
        world.go()
    assert world.pauses == [] and "another job" not in caplog.text and "other job" not in str(caught.value)


def test_a_forgotten_lease_is_taken_again_at_once_and_not_for_another_jobs(world: World, forget: Forget) -> None:
    """However often: no other job has it. Who had it until it was forgotten may still write."""
    for _ in range(len(PAUSES_S) + 1):
        forget()
        world.go()
        assert world.is_held and world.pauses[-1] == lease.HANDOVER_S
    assert len(world.pauses) == len(PAUSES_S) + 1
    (said,) = world.status.brief()["follows"]["lease"]["said"]
    assert "the writer lease is back: no other job had it" in said and "times" not in said


def test_a_forgotten_lease_is_asked_for_in_pauses_while_nobody_answers(world: World, forget: Forget) -> None:
    failures = iter([TryAgain("no leader"), TryAgain("no leader")])

    def decided(_: Any) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure

    world.decided = decided
    forget()
    world.go()
    assert world.is_held and world.pauses == [PAUSES_S[0], PAUSES_S[0], lease.HANDOVER_S]


def test_two_jobs_do_not_fight_for_ever(world: World) -> None:
    """Each time another one takes it the pause doubles, up to the last one. After ten minutes of peace they are short."""
    for pause_s in PAUSES_S[:3]:
        lease.take(world.target, "m")
        world.go()
        assert pause_s in world.pauses[-2:]
        world.stopping.now += 590
    world.stopping.now += 20
    lease.take(world.target, "m")
    world.go()
    assert world.pauses[-2:] == [PAUSES_S[0], lease.HANDOVER_S]
    for _ in PAUSES_S[1:]:
        lease.take(world.target, "m")
        world.go()
    other = lease.take(world.target, "m")
    with pytest.raises(NeedsHuman, match=r"'m': others take its .* tried 5 times to take it back\. Find the other job"):
        world.go()
    lease.confirm(world.target, other)


def test_a_target_that_does_not_answer_is_asked_later(world: World) -> None:
    lease.take(world.target, "m")
    failures = iter([TryAgain("no leader")] * 4)  # asked before each pause and behind it

    def decided(_: Any) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure

    world.decided = decided
    world.go()
    assert world.is_held and world.pauses[:3] == list(PAUSES_S[:3])


def test_a_tail_that_is_stopped_meanwhile_takes_nothing(world: World) -> None:
    other = lease.take(world.target, "m")
    world.stopping.meanwhile = world.stopping.set
    world.go()
    lease.confirm(world.target, other)
    assert world.pauses == [PAUSES_S[0]]
