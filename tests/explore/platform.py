"""What actors of a cutover are handed: the real `Platform` and its sides, on clusters in memory and virtual time.

Heartbeat of life are not written, but told by the state of their actor: as often as the real ones, by who neither stands
still nor has ended. A guard is an actor of a process of its own, as the real one is.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_mirror.cutover import guard
from airflow_mirror.cutover.guard import Guard
from airflow_mirror.cutover.heartbeat import SIGN_EVERY_S
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.records import SIGN
from tests.explore.turns import Actor
from tests.memory.admin import MemoryAdmin
from tests.memory.ledger import MemoryLedger, MemoryState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from airflow_mirror.cutover.report import CutoverReport
    from tests.explore.scheduler import Scheduler
    from tests.explore.world import World
    from tests.memory.cluster import MemoryCluster

T = TypeVar("T")
_IDLE_S = 4.0  # between two looks of a guard without a fence
_LAST = 10**6  # number of a last sign


class ActorSide(Side):
    """One cluster, as one thread of an actor's process reaches it.

    :param polls: it asks the ledger again and again; to be told nothing new is no event then.
    """

    def __init__(self, world: World, cluster: MemoryCluster, *, polls: bool = False) -> None:
        super().__init__(MemoryAdmin(cluster, world.s.ask), world.s.clock)  # type: ignore[arg-type]
        self.world, self.cluster, self._polls = world, cluster, polls

    @cached_property
    def ledger(self) -> Any:
        """See Side."""
        if self._polls:
            return _Polled(self.world.s, self.cluster)
        return MemoryLedger(self.cluster, self.world.s.ask, self.clock)

    def state(self, *prefixes: str, patience_s: float = 60.0) -> Any:
        """See Side."""
        if prefixes and prefixes[0].startswith("job/"):
            return SignsState(self.world, self.cluster, *prefixes)
        return MemoryState(self.cluster, *prefixes, ask=self.world.s.ask)


class _Polled(MemoryLedger):
    def __init__(self, s: Scheduler, cluster: MemoryCluster) -> None:
        super().__init__(cluster, s.ask, s.clock)
        self._s = s

    def read(self, start: int) -> Any:
        """See :class:`.deciding.Log`."""
        me = self._s.me
        if me is not None and me.state != "dead" and not me.cut and start >= len(self._cluster.decisions) - 1:
            return [(at, one, one.at_ms) for at, one in enumerate(self._cluster.decisions[start:], start)]
        return super().read(start)


class SignsState:
    """What jobs say about themselves, and are told; see the module."""

    def __init__(self, world: World, cluster: MemoryCluster, *prefixes: str) -> None:
        self._world, self._cluster, self._prefixes = world, cluster, prefixes
        self._there = MemoryState(cluster, *prefixes, ask=world.s.ask)

    def read(self) -> Mapping[str, bytes]:
        """See :class:`airflow_mirror.ledger.state.State`."""
        s = self._world.s
        if s.me is not None and s.me.cut == self._cluster.role:
            self._there.read()  # raises
        found = {k: v for k, v in self._cluster.state.items() if k.startswith(self._prefixes)}
        for (role, key), actor in self._world.gives_signs.items():
            if role == self._cluster.role and key.startswith(self._prefixes):
                found[key] = _sign(actor, s.now)
        return found

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        """See State. Whether somebody could write signs is not tried."""
        self._there.write({key: value for key, value in values.items() if not key.endswith("/look")}, permit)


def _sign(actor: Actor, now: float) -> bytes:
    """Return an actor's last sign."""
    last = min(actor.silent_since, now) if not actor.cut else actor.still_since
    ended = actor.state == "done" and not actor.cut
    number = _LAST if ended else int((last - actor.began) / SIGN_EVERY_S) + 1
    return Sign(number=number, state="SUCCEEDED" if ended else "RUNNING").encode()


class ActorPlatform(Platform):
    """See the module."""

    source: ActorSide
    target: ActorSide

    def turned(self) -> ActorPlatform:
        """See Platform."""
        return type(self)(self.target, self.source)

    @property
    def world(self) -> World:
        """Of the scenario."""
        return self.target.world

    @property
    def s(self) -> Scheduler:
        """Who decides whose turn it is."""
        return self.world.s

    def new_id(self) -> str:
        """See Platform: the actor's name and a number, for stories."""
        return self.world.new_id()

    def event(self) -> Any:
        """See Platform."""
        return self.s.event()

    @contextmanager
    def signs_of_life(self, report: CutoverReport) -> Iterator[None]:
        """See Platform."""
        report.process = self.world.named(self.target.cluster.role, report.mirror)
        yield

    @contextmanager
    def guarded(self, mirror: str, log: Path | None, alarm: str, fence: str) -> Iterator[Callable[[], object]]:
        """See Platform; it calls nobody."""
        owner = self.s.me
        assert owner is not None
        one = self.world.guard(f"G{owner.name}", self.source.cluster, self.target.cluster, mirror, owner, fence)

        def ready() -> None:
            if one.actor.is_over:
                raise TryAgain("the process that guards the fence has ended")

        try:
            yield ready
        finally:
            one.left_alone = True

    def beside(self, work: Callable[[], T], meanwhile: Callable[[], object], every_s: float) -> T:
        """See Platform; the work takes no time here."""
        meanwhile()
        return work()


class GuardProcess:
    """The process of a guard: `guard.main` on views.

    :ivar left_alone: its owner's end of the pipe is closed.
    """

    actor: Actor

    def __init__(self, on: ActorPlatform, mirror: str, owner: Actor | None, fence: str) -> None:
        self._on, self._owner, self.left_alone = on, owner, owner is None
        self.guard = Guard(mirror, on, beside_owner=owner is not None, fence=fence)

    @property
    def is_alone(self) -> bool:
        """Whether nobody holds the pipe any more."""
        return self.left_alone or (self._owner is not None and self._owner.is_over)

    @property
    def rests(self) -> bool:
        """Whether it only waits for what somebody else does."""
        return not self.guard.is_needed or self._is_behind_opening()

    def _is_behind_opening(self) -> bool:
        return self.guard._fence is None and self.guard._asked

    def run(self) -> str:
        """Guard."""
        since: float | None = None
        while True:
            self.guard.look()
            if self.is_alone and not self.guard.is_needed:
                return "nothing left to guard"
            since = since or (self._on.clock.monotonic() if self.is_alone else None)
            if since is not None and self._on.clock.monotonic() - since > guard._ALONE_S:
                return "given up"
            self._on.clock.sleep(guard.LOOK_EVERY_S if self.guard.is_needed else _IDLE_S)


def keys(mirror: str, job: str) -> str:
    """Return under which key a job's signs are."""
    return f"{SIGN.below(mirror)}{job}/sign"
