"""The world of a copy: two driven clusters, a driver, its tasks, and who gets in between.

The driver is that of a bulk copy, with its real lease, ear and rounds; Spark is ours: it begins tasks in processes of
their own, loses one (`lose`, or when one has stood still for :data:`LOST_S`), and runs it again. What a task does is the
package's from `carry_out` to the bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy import task
from airflow_mirror.copy.loop import steps
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.spark import attempt
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.short_lease import ShortLease
from airflow_mirror.errors import LeaseLost, MirrorCutOver, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver import following, held_lease, prepare, rounds
from airflow_mirror.jobs.driver.held_lease import wait_until_safe, writer_lease
from airflow_mirror.jobs.driver.prepare import require_still_ours
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import request
from tests.driven.content import Writer
from tests.driven.copying import create_maps, id_of, ranges_of
from tests.driven.records import Row
from tests.driven.script import Fault
from tests.explore.beside_copying import LISTEN_EVERY_S, QUIET, Ear, LeaseAdmin
from tests.explore.machine import Machine, QuietCluster, Thread
from tests.explore.turns import Actor

if TYPE_CHECKING:
    from tests.driven.log import PartitionLog
    from tests.explore.scheduler import Scheduler
    from tests.explore.turns import VirtualEvent

TOPIC, TP, MIRROR = "t", TopicPartition("t", 0), "m"
BATCHES = 6
RATE = 150.0  # bytes in a second: a batch takes one, so that there are moments between two of them
LOST_S = 10.0  # after so much silence Spark runs a task again
_ALL_S = 30.0  # a copy from the beginning, by a tail
_TRIGGER_S = LISTEN_EVERY_S


class World:
    """A source with old records, and what is on its way to the target.

    :param mode: of the copy. :param forgets: the target's brokers forget producers of old records before each batch.
    :param follows: for how many seconds a task follows the source; None: it ends where that ends now.
    :param holed: offsets of the source are missing, which are padded on the target.
    :param changes: somebody changes the source's topic: it matters when a task asks for it.
    :ivar there: the records of the target topic as it was at first. Offsets are left out where they change.
    :ivar opened_at: where the target's log ended when it was opened; None: it was not.
    :ivar wrong: what has happened that must not.
    """

    def __init__(
        self, scheduler: Scheduler, *, mode: str = IDENTICAL, forgets: bool = False, follows: float | None = None,
        holed: bool = False, changes: bool = False,
    ) -> None:  # fmt: skip
        self.s, self.mode, self.follows = scheduler, mode, follows
        self.source, self.target = (QuietCluster(role, scheduler) for role in ("source", "target"))
        self.writer = Writer(self.source.create(TOPIC).logs[0])
        for number in range(BATCHES):
            if holed and number % 2:
                self.writer.holed([1], 3)
            else:
                self.writer.plain(2 + number % 2)
        self.target.create(TOPIC)
        self.was, self.was_source = self.target.topics[TOPIC], self.source.topics[TOPIC]
        if mode == MAPPED:
            create_maps(self.target)
        if forgets:
            self.target.script.on("Produce", Fault(before=lambda _: self.target.expire_producers()), times=None)
        self.machine = Machine(scheduler, self.source, self.target)
        self.know_topics()
        known: dict[str, Any] = {"target_topic_id": id_of(self.target, TOPIC)}
        if follows is not None:
            known["end_offset"] = None
        self.plan = [replace(one, **known) for one in ranges_of(self.source, TOPIC, mode)]
        self.spark: list[Task] = []
        self.drivers: list[Actor] = []
        self.opener: Actor | None = None
        self.opened_at: int | None = None
        self.wrong: list[str] = []
        self.there: list[Row] = []
        self._end, self._read = 0, (-1, list[Row]())
        scheduler.still = frozenset({"coordinator"} if changes else {"source", "coordinator"})
        scheduler.around.append(self._installed)
        scheduler.after_effect.append(self._look)

    def know_topics(self) -> None:
        """Name topics by their ids."""
        self.machine.names |= {topic.topic_id: name for name, topic in self.target.topics.items()}

    def task_of(self, driver: str) -> str:
        """Return the name of a driver's next task."""
        return f"{driver}.T{sum(one.actor.name.startswith(driver + '.') for one in self.spark)}"

    @property
    def is_created_again(self) -> bool:
        """Whether the topic of one side is another one."""
        return self.is_target_new or self.source.topics[TOPIC] is not self.was_source

    @property
    def is_target_new(self) -> bool:
        """Whether the target's topic is another one."""
        return self.target.topics[TOPIC] is not self.was

    def require_not_open(self, *_: object) -> None:
        """Look at what is decided, in place of `life.require_active`.

        :raises MirrorCutOver: the target was opened.
        """
        if self.s.ask("target: read the ledger", lambda: self.opened_at, touches=frozenset({"opening"})) is not None:
            raise MirrorCutOver(MIRROR, [TOPIC], "just now")

    def require_lease(self, token: LeaseToken) -> None:
        """Look at whose the lease is, in the step of a decision that depends on it.

        :raises LeaseLost: it is another one's.
        """
        known = self.target.transactions.known[token.transactional_id]
        if (known.producer_id, known.timeout_ms) != (token.producer_id, token.mark_ms):
            raise LeaseLost(token.transactional_id, token.epoch, f"epoch {known.epoch}")

    @property
    def here(self) -> list[Row]:
        """The records of the source's topic as it was at first."""
        log = self.was_source.logs[0]
        if self._read[0] != log.end:
            self._read = log.end, self._rows(log)
        return self._read[1]

    def _rows(self, log: PartitionLog) -> list[Row]:
        rows = log.rows()
        return [row._replace(offset=0) for row in rows] if self.mode == MAPPED else rows

    def _look(self, actor: str, what: str) -> None:
        log = self.was.logs[0]
        if log.end == self._end:
            return
        self._end, self.there = log.end, self._rows(log)
        if self.opened_at is not None:
            self.wrong.append(f"{actor}: {what}: the log ends at {log.end}, it was opened at {self.opened_at}")

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Let the package's modules run here."""
        loop: Any = partial(CopyLoop, clock=self.s.clock.monotonic)
        configs = {"source": self.source.config, "target": self.target.config}
        pyspark = SimpleNamespace(TaskContext=SimpleNamespace(get=self._context))

        def load(reference: str, _: str = "") -> Any:
            return configs[reference]

        def discover(tail: Tail) -> None:
            tail.ranges = self.plan

        nothing, quiet = (lambda *_, **__: None), (lambda *_, **__: nullcontext(QUIET))
        stands_in: tuple[tuple[Any, dict[str, Any]], ...] = (
            (task, {"CopyLoop": loop, "load": load}),
            (steps, {"_WORKERS": 1}),  # which one it is depends on a hash of names, which differs from process to process
            (held_lease, {"load": load, "ClusterAdmin": LeaseAdmin}),
            (
                prepare,
                {"load": load, "ClusterAdmin": LeaseAdmin, "Ledger": nothing, "require_active": self.require_not_open},
            ),
            (Tail, {"discover": discover}),
            (following, {"Progress": lambda *_: QUIET, "Watches": quiet, "followers": quiet, "publish": nothing}),
            (following, {"load": load}),
        )
        with ExitStack() as stack:
            stack.enter_context(self.machine.installed())
            stack.enter_context(mock.patch.dict(sys.modules, {"pyspark": pyspark}))
            for module, given in stands_in:
                for name, one in given.items():
                    stack.enter_context(mock.patch.object(module, name, one))
            yield

    def _context(self) -> Any:
        me = self.s.me
        number = next((one.number for one in self.spark if me is not None and one.actor.process == me.process), None)
        return None if number is None else SimpleNamespace(attemptNumber=lambda: number)


@dataclass(eq=False)
class Task:
    """An attempt of a task of Spark's.

    :param number: of the attempt. :param over: set once Spark knows how it ended, or has lost it.
    :ivar told: what it returned.
    """

    number: int
    over: VirtualEvent
    actor: Actor = field(init=False)
    is_lost: bool = False
    told: list[PartitionResult] = field(default_factory=list)


class Spark:
    """What begins the tasks of one driver."""

    def __init__(self, w: World, name: str) -> None:
        self._w, self._name = w, name
        self._round: list[Task] = []
        self._is_cancelled = False

    def copy(self, left: Sequence[CopyRange], _: Wishes, token: LeaseToken) -> list[PartitionResult]:
        """One round of a bulk copy."""
        return self.carry_out(left, CopyWork(source="source", target="target", options=_OPTIONS, lease=token))

    def carry_out(self, left: Sequence[CopyRange], work: CopyWork) -> list[PartitionResult]:
        """A job of Spark's: a task, and another attempt of it if it is lost. Nothing comes of it if it is cancelled."""
        self._round = []
        try:
            while not self._is_cancelled:
                one = self._begin(work, left, len(self._round))
                one.over.wait()
                if self._is_cancelled:
                    break
                if not one.is_lost:
                    return one.told
            return []
        finally:
            self._round = []

    def cancel(self) -> None:
        """End its job; whether a task hears that is not known."""
        self._is_cancelled = True
        for one in self._round:
            one.over.set()

    def has_lost(self) -> bool:
        """Return whether a task of this round was lost."""
        return any(one.is_lost for one in self._round)

    def _begin(self, work: CopyWork, ranges: Sequence[CopyRange], number: int) -> Task:
        w, one = self._w, Task(number, self._w.s.event())
        fragile = w.s.actor(self._name).fragile
        # Who comes last, to whom nothing happens, has the time that all of it takes at the mirror's rate.
        follows = w.follows if fragile or w.follows is None else _ALL_S

        def carry_out() -> None:
            try:
                told = [PartitionResult(**json.loads(text)) for text in attempt.carry_out(work, ranges, follows)]
                one.told = told
            finally:
                one.is_lost = one.is_lost or not one.told
                one.over.set()

        one.actor = w.s.add(Actor(w.task_of(self._name), carry_out, fragile=fragile))
        self._round.append(one)
        w.spark.append(one)
        return one


def driver(w: World, name: str, **when: Any) -> Actor:
    """The driver of a bulk copy (`jobs.driver.copying`) on Spark."""

    def body() -> list[PartitionResult]:
        spark, status = Spark(w, name), StatusFile(None)
        with writer_lease("target", MIRROR) as held:
            require_still_ours(_JOB)
            wait_until_safe(held, status)
            ear = Ear(_NOBODY, "target", held, status, Wishes(), lambda: False, spark.has_lost)
            ear.thread.start()
            try:
                return rounds.copy_in_rounds(w.plan, spark.copy, ear, held, lambda: None)
            finally:
                ear.end()

    actor = w.s.add(Actor(name, body, **when))
    w.drivers.append(actor)
    return actor


class Stream:
    """A streaming query of one task, as `jobs.driver.spark_crew.SparkStream` has it."""

    def __init__(self, w: World, spark: Spark, tail: Tail, work: CopyWork) -> None:
        self._s, self._spark, self._tail, self._work = w.s, spark, tail, work
        self.is_running, self._is_stopped = True, False
        Thread(w.machine, self._run, name="stream", daemon=True).start()

    @property
    def is_partly_over(self) -> bool:
        """Never: it has one task."""
        return False

    @property
    def must_restart(self) -> bool:
        """Whether a task was lost."""
        return self._spark.has_lost()

    def _run(self) -> None:
        pause_s = _TRIGGER_S
        with suppress(TryAgain, NeedsHuman):
            while not self._is_stopped:
                self._tail.reported.clear()
                results = self._spark.carry_out(self._tail.ranges, self._work)
                if not self._is_stopped:
                    self._tail.take(results)
                # A turn that comes to nothing, as while its driver hangs in a withdrawal, is like the one before it.
                pause_s = pause_s * 2 if any(one.lease_lost for one in results) else _TRIGGER_S
                self._s.sleep(pause_s)
        self.is_running = False

    def failure(self) -> str:
        """Why it ended."""
        return "the streaming query ended"

    def end_turn(self) -> None:
        """Its tasks hear nothing."""

    def stop(self, wait_s: float) -> bool:
        """Stop the query."""
        reported = self._tail.reported.wait(wait_s)
        self._is_stopped = True
        self._spark.cancel()
        return reported


def tail(w: World, name: str, seconds: float, **when: Any) -> Actor:
    """The driver of a tail (`jobs.driver.following`), which is asked to end after a while."""

    def muster(_: object) -> Any:
        def follow(tail: Tail, work: CopyWork, __: float) -> Stream:
            return Stream(w, Spark(w, name), tail, work)

        return nullcontext(SimpleNamespace(hosts=None, slots=lambda: 1, follow=follow, may_start_again=lambda _: False))

    def ends(stopping: VirtualEvent) -> None:
        for _ in range(round(seconds)):
            w.s.sleep(1.0)  # what it stands still is not counted
        stopping.set()

    def body() -> list[PartitionResult]:
        Thread(w.machine, ends, (stopping,), "end", daemon=True).start()
        there: Any = _There(w)
        status, given = StatusFile(None), (_JOB, _REQUEST)
        found = following._copy(*given, status, stopping, there, QUIET, muster)  # type: ignore[arg-type]
        return [*found.totals.values()]

    stopping = w.s.event()
    actor = w.s.add(Actor(name, body, stop=stopping, **when))
    w.drivers.append(actor)
    return actor


def lose(w: World, name: str, **when: Any) -> Actor:
    """The network between Spark's driver and an executor: it is lost, and goes on."""

    def lost() -> None:
        for one in w.spark:
            if not one.over.is_set():
                _lose(one)

    return w.s.add(Actor(name, lambda: w.s.ask("Spark loses its executor", lost, effect=True), fragile=False, **when))


def heartbeat(w: World, name: str = "Spark") -> Actor:
    """What Spark does with an executor that gives no sign of life."""

    def silent() -> list[Task]:
        return [one for one in w.spark if one.actor.state == "frozen" and not one.over.is_set()]

    def body() -> None:
        while True:
            w.s.sleep(2.0)
            for one in silent():
                if w.s.now - one.actor.silent_since >= LOST_S:
                    _lose(one)

    return w.s.add(Actor(name, body, background=True, fragile=False, rests=lambda: not silent()))


def _lose(one: Task) -> None:
    one.is_lost = True
    one.over.set()


class _There:
    """A tail's presence: it hears a cutover."""

    def __init__(self, w: World) -> None:
        self._w, self.wishes, self.plan = w, Wishes(), None
        self.require_active, self.require_decided = (lambda: None), w.require_not_open

    @property
    def is_cut_over(self) -> bool:
        one = self._w.opener
        return one is not None and one.began <= self._w.s.now and not one.is_over


def next_owner(w: World, name: str, **when: Any) -> Actor:
    """Who ends all writing and opens the target, as a cutover does, by a lease that a tail has made short."""

    def opens() -> None:
        w.opened_at = w.was.logs[0].end

    def body() -> str:
        with WireCluster(w.target.config) as there:
            short = ShortLease(lambda: lease.seen_short(there, MIRROR), lambda: w.s.now)
            w.s.sleep(2.0)
            short.wait(w.s.sleep)
            token = lease.take(there, MIRROR, to_end=True, short=short.ripe)
            w.s.sleep(token.wait_s)
        touches = frozenset({"opening", f"log:{TOPIC}", f"lease:{token.transactional_id}"})
        ours = partial(w.require_lease, token)
        w.s.ask("target: decide that it is open", opens, effect=True, at="target", touches=touches, check=ours)
        return f"opened after {token.wait_s:.0f} s"

    w.opener = w.s.add(Actor(name, body, **when))
    return w.opener


def person(w: World, name: str, **when: Any) -> Actor:
    """Somebody deletes the target's topic and creates it again."""

    def again() -> None:
        w.target.create(TOPIC)
        w.know_topics()

    return _creates_again(w, name, "target", again, frozenset({f"log:{TOPIC}", f"topic:{TOPIC}"}), **when)


def owner(w: World, name: str, **when: Any) -> Actor:
    """Somebody deletes the source's topic and creates it again; an application fills it beyond where it ended."""

    def again() -> None:
        Writer(w.source.create(TOPIC).logs[0]).plain(4 * BATCHES, size=9)

    return _creates_again(w, name, "source", again, frozenset({"source"}), **when)


def _creates_again(
    w: World, name: str, side: str, again: Callable[[], None], touches: frozenset[str], **when: Any
) -> Actor:  # fmt: skip
    def body() -> None:
        w.s.ask(f"{side}: delete {TOPIC} and create it again", again, effect=True, at=side, touches=touches)

    return w.s.add(Actor(name, body, fragile=False, **when))


def producer(w: World, name: str, starts: Sequence[float]) -> Actor:
    """An application that writes to the source now and then."""

    def body() -> None:
        for at in starts:
            w.s.sleep(at - w.s.now)
            w.writer.plain(2)

    return w.s.add(Actor(name, body, fragile=False))


_NOBODY: Any = SimpleNamespace(name=MIRROR)
_OPTIONS = CopyOptions(mirror=MIRROR, merge_below=0, max_bytes_per_second=RATE)
_JOB: Any = SimpleNamespace(mirror=SimpleNamespace(name=MIRROR), options=_OPTIONS, plan=None, target="target")
_REQUEST = request(TailRequest, source="source", target="target", tasks=1, turn_s=60.0, no_progress=True)
