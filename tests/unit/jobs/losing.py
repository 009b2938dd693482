"""A tail whose tasks may be lost, and the streams in which they run: no time passes but by what its driver waits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.driver import following
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.supervision import Supervisor
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.wire.cluster import WireCluster
from tests.waiting import Elapsing

TOKEN = LeaseToken(transactional_id="id", producer_id=1, epoch=2, mark_ms=3, wait_s=0.0)


def ranges(*partitions: int) -> list[CopyRange]:
    return [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=5) for p in partitions]


def copied(*partitions: int) -> list[PartitionResult]:
    return [
        PartitionResult(topic="t", target_topic="t", partition=p, target_partition=p, position=9, done=False, records=4)
        for p in partitions
    ]


class Stream:
    """A stream whose tasks do as a test says.

    :ivar under: the lease of its tasks.
    """

    must_restart = is_partly_over = False

    def __init__(self, world: World) -> None:
        self._world, self.under, self.at = world, world.held.begin(), world.stopping.now
        self.is_running = True
        world.tail.reported.clear()

    def take(self, results: list[PartitionResult]) -> None:
        try:
            self._world.tail.take(results)
        except TryAgain:
            self.is_running = False

    def failure(self) -> str:
        return "no turn follows"

    def end_turn(self) -> None:
        pass

    def stop(self, _: float) -> bool:
        self._world.on_stop(self)
        return self._world.tail.reported.is_set()


class World:
    """A tail whose streams copy under a lease of the target's coordinator.

    :ivar streams: in their order. :ivar on_start: called with each new one, ``on_stop`` when it is stopped.
    :ivar on_look: called where the driver looks at what is watched beside the copy.
    """

    def __init__(self, target: WireCluster) -> None:
        self.stopping, self.streams = Elapsing(), list[Stream]()
        self.held = HeldLease(target, "m", clock=self.stopping.clock)
        job: Any = SimpleNamespace(options=CopyOptions(mirror="m"), plan=None)
        self.tail = Tail(job, 1, self.stopping)
        self.tail.ranges = ranges(0, 1)
        self.there: Any = SimpleNamespace(wishes=Wishes(), require_decided=lambda _: None)
        self.status = StatusFile(None)
        self.on_start: Callable[[Stream], None] = lambda _: None
        self.on_look: Callable[[], None] = lambda: None
        self.on_stop: Callable[[Stream], None] = lambda one: one.take(copied(0, 1))

    def run(self) -> None:
        table: Any = SimpleNamespace(rows=list, has_stopped=lambda: False, follow=lambda _: None)
        progress: Any = SimpleNamespace(table=table, end_turn=lambda: None, has_untaken=lambda: False)
        watches: Any = SimpleNamespace(look=self.on_look, tell=lambda: None)
        crew: Any = SimpleNamespace(may_start_again=lambda _: False)
        try:
            supervisor = Supervisor(self.tail, self.there, progress, watches, lambda: None, None, self.stopping.clock)
            following._copy_on(crew, self._start, supervisor, self.tail, self.there, self.held, watches, self.status)
        finally:
            following._end(self.held, self.tail, self.status, is_last=True)

    def _start(self) -> Any:
        self.streams.append(Stream(self))
        self.on_start(self.streams[-1])
        return self.streams[-1]


def nth(world: World, **steps: Callable[[Stream], object]) -> Callable[[Stream], None]:
    """Do ``first`` with the first stream, ``second`` with the second one; a third one ends the tail."""
    named = ["first", "second"]

    def do(stream: Stream) -> None:
        number = len(world.streams) - 1
        if number < len(named):
            steps.get(named[number], lambda _: None)(stream)
        else:
            world.stopping.set()

    return do
