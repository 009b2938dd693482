"""When a turn of a tail ends, and which partitions join it instead."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import AuthenticationFailed, MirrorError
from airflow_mirror.jobs.driver.balance import Balance, is_lopsided
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.supervision import Supervisor
from airflow_mirror.jobs.driver.turns import Change, Tail
from airflow_mirror.jobs.progress.table import Row, Run
from airflow_mirror.jobs.request import TURN_S
from airflow_mirror.jobs.runner.wishes import Wish, Wishes
from airflow_mirror.wire.errors import TlsRefused

MB = 1 << 20
RANGES = [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0) for p in range(4)]
JOINS = CopyRange(source_topic="new", target_topic="new", partition=0, start_offset=0)


def rows(tasks: Sequence[Sequence[int]], *mb: int) -> list[Row]:
    """Rows of partitions, by task, which have copied so many megabytes."""
    runs = {p: run for number, task in enumerate(tasks) for run in [Run(number=number)] for p in task}
    counters = [{**dict.fromkeys(COUNTERS, 0), "bytes": n * MB} for n in mb]
    return [Row(range=RANGES[p], end=None, run=runs[p], counters=counters[p]) for p in range(len(mb))]


@pytest.mark.parametrize(
    ("tasks", "mb", "lopsided"),
    [
        ([[0, 1], [2, 3]], (500, 500, 0, 0), True),
        ([[0, 1], [2, 3]], (500, 0, 500, 0), False),
        ([[0, 1], [2, 3]], (1000, 0, 0, 0), False),  # no deal splits a partition
        ([[0, 1], [2, 3]], (20, 20, 0, 0), False),  # nobody waits for so little
        ([[0, 1, 2, 3]], (500, 500, 500, 500), True),  # a slot has come free
    ],
    ids=["one has all", "even", "one partition", "little", "one task"],
)
def test_tasks_are_lopsided_where_a_new_deal_does_much_better(
    tasks: list[list[int]], mb: tuple[int, ...], lopsided: bool
) -> None:
    balance = Balance()
    balance.look(rows(tasks, 70, 70, 70, 70))
    seen = rows(tasks, *(n + 70 for n in mb))
    assert is_lopsided(seen, balance.look(seen), 2) is lopsided


class Unwaited(threading.Event):
    """An event for which nobody waits: time passes in the looks alone."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class Found(Tail):
    """A tail that discovers these changes, one after the other."""

    changes: Sequence[Change | None] = ()
    refused: MirrorError | None = None

    def discover(self) -> Change | None:
        if self.refused is not None:
            raise self.refused
        first, self.changes = next(iter(self.changes), None), self.changes[1:]
        return first


@dataclass
class World:
    """A tail whose streams and tasks are a test's, and a clock that goes on with each look.

    :ivar ends: at which look a turn was asked to end. :ivar handed: what was handed out, and before which deal.
    :ivar after: the table's rows from the first look on.
    """

    tail: Found
    lasts: int = 4
    step_s: float = 1.0
    now: float = 0.0
    looks: int = 0
    ends: list[int] = field(default_factory=list)
    handed: list[tuple[list[CopyRange], int]] = field(default_factory=list)
    stopped: bool = False
    untaken: bool = False
    partly_over: bool = False
    listens: bool = True
    table: list[Row] = field(default_factory=list)
    after: list[Row] | None = None
    settings: str = "a password"
    wishes: Wishes = field(default_factory=Wishes)

    def look(self) -> None:
        self.looks += 1
        self.now += self.step_s
        self.table = self.table if self.after is None else self.after
        if self.looks == self.lasts:
            self.tail.stopping.set()

    def hand_out(self, ranges: list[CopyRange], _: CopyOptions, before: int) -> bool:
        self.handed.append((ranges, before))
        return self.listens

    def watch(self, turn_s: float | None = None) -> None:
        table: Any = SimpleNamespace(
            rows=lambda: self.table, has_stopped=lambda: self.stopped, follow=lambda ranges: None
        )
        progress: Any = SimpleNamespace(
            table=table, end_turn=lambda: self.ends.append(self.looks), has_untaken=lambda: self.untaken,
            hand_out=self.hand_out,
        )  # fmt: skip
        watches: Any = SimpleNamespace(look=self.look, tell=lambda: None, follow=lambda _: None)
        stream: Any = SimpleNamespace(
            is_running=True, must_restart=False, is_partly_over=self.partly_over, end_turn=lambda: None
        )
        there: Any = SimpleNamespace(wishes=self.wishes)
        supervisor = Supervisor(
            self.tail, there, progress, watches, lambda: self.settings, turn_s, clock=lambda: self.now
        )  # fmt: skip
        supervisor.watch(stream)


@pytest.fixture
def world() -> World:
    job: Any = SimpleNamespace(options=CopyOptions(mirror="m"), plan=None)
    made = World(Found(job, 2, Unwaited()))
    made.tail.ranges = list(RANGES)
    made.tail.deal()
    return made


def test_a_turn_lasts_while_nothing_asks_for_another_one(world: World) -> None:
    world.lasts, world.step_s = 50, TURN_S
    world.watch()
    assert world.ends == []


def test_a_turn_with_a_time_ends_with_it(world: World) -> None:
    world.lasts, world.step_s = 7, 1.0
    world.watch(turn_s=5.0)
    assert world.ends == [5, 6], "asked until it has ended"
    world.tail.stopping.clear()
    world.tail.turns += 1
    world.lasts, world.looks, world.ends = 4, 0, []
    world.watch(turn_s=5.0)
    assert world.ends == []


@pytest.mark.parametrize("why", ["untaken", "partly_over", "rate"])
def test_a_turn_ends_for_what_its_tasks_can_not_go_on_with(world: World, why: str) -> None:
    if why == "rate":
        world.wishes = Wishes(rate=Wish(by="ann", at="today", max_bytes_per_second=10))
    else:
        setattr(world, why, True)
    world.watch()
    assert world.ends[0] == 0


def test_a_turn_ends_when_one_task_has_most_of_the_work(world: World) -> None:
    world.lasts, world.step_s = 6, TURN_S / 2
    world.table = rows([[0, 1], [2, 3]], 0, 0, 0, 0)
    world.after = rows([[0, 1], [2, 3]], 500, 500, 0, 0)
    world.watch()
    assert len(world.ends) == 1, "once, for what came since"
    lists = [sorted(one.partition for one in part) for part in world.tail.deal().lists]
    assert not any({0, 1} <= set(part) for part in lists)


def test_a_turn_ends_when_the_settings_have_changed(world: World) -> None:
    """Once: its tasks would go on with the old password until they have to connect again."""
    world.lasts, world.step_s = 6, TURN_S / 2
    look = world.look

    def changed() -> None:
        look()
        world.settings = "another password"

    world.look = changed  # type: ignore[method-assign]
    world.watch()
    assert len(world.ends) == 1


# --- what joins -------------------------------------------------------------------------------------------------------


def joined(world: World, *ranges: CopyRange) -> Change:
    world.tail.ranges = [*world.tail.ranges, *ranges]
    return Change(joined=list(ranges), deal=world.tail.deal())


def test_partitions_join_the_tasks_that_run(world: World) -> None:
    world.lasts, world.step_s = 6, 4.0
    world.tail.changes = [None, joined(world, JOINS)]
    world.watch()
    assert world.handed == [([JOINS], 2)] and world.ends == []


def job_of(settings: str) -> CopyJob:
    """Return a job whose clusters have these settings."""
    nothing = cast("Any", None)
    return CopyJob(mirror=nothing, source=settings, target=settings, plan=nothing, options=CopyOptions(mirror="m"))


def test_login_that_is_refused_for_a_while_ends_no_tail_whose_settings_are_in_files(world: World) -> None:
    """Each look for partitions logs in: between two passwords. From the environment nobody ever reads another one."""
    world.lasts, world.step_s = 30, 4.0
    world.tail.refused = AuthenticationFailed("source", "b:1", "no such user")
    world.tail._job = job_of("file.properties")
    world.watch()
    assert world.looks == 30 and world.ends == []
    world.tail.stopping.clear()
    world.tail._job = job_of("env:S")
    with pytest.raises(AuthenticationFailed):
        world.watch()


def test_certificate_of_one_broker_that_is_renewed_late_ends_no_tail(world: World) -> None:
    """Whoever renews it does that at the broker: it is no matter of the settings that a job was given."""
    world.lasts, world.step_s = 30, 4.0
    world.tail.refused = TlsRefused("source", "b:1", "certificate has expired", "Renew it.")
    world.tail._job = job_of("env:S")
    world.watch()
    assert world.looks == 30 and world.ends == []


@pytest.mark.parametrize("why", ["nobody listens", "they may not"])
def test_partitions_that_can_not_join_take_another_turn(world: World, why: str) -> None:
    world.lasts, world.step_s = 6, 4.0
    change = joined(world, JOINS)
    world.tail.changes = [change if why == "nobody listens" else replace(change, joined=[])]
    world.listens = why != "nobody listens"
    world.watch()
    assert len(world.ends) == 1


def test_a_long_turn_weighs_no_more_than_another_one(world: World) -> None:
    """Days of little are less than minutes of much."""
    tail = world.tail
    day = PartitionResult(
        topic="t", target_topic="t", partition=0, position=1, done=False, bytes=144 * MB, seconds=144 * TURN_S
    )
    short = replace(day, partition=1, bytes=50 * MB, seconds=TURN_S)
    tail.take([day, short])
    assert tail._weights[RANGES[0].source] == MB and tail._weights[RANGES[1].source] == 50 * MB
