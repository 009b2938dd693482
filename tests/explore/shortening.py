"""A lease that is short while a cutover runs (ADR 55): its driver, tasks of two turns, a cutover, and another job.

All of them use the lease's own code. The driver's main thread withdraws the lease to begin a second turn, while its other
thread makes it short, and longer again. Whoever opens the target waited for as long as its token says.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from airflow_mirror.copy.writer import lease, lease_watch
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.short_lease import ShortLease
from airflow_mirror.errors import LeaseUnconfirmed, MirrorCutOver, WritingEnded
from airflow_mirror.jobs.runner.cutover_signs import SILENCE_S
from airflow_mirror.wire.transactions import TransactionClient
from tests.explore.deviations import REST, Deviation
from tests.explore.scenario import Invariant, Scenario
from tests.explore.scheduler import Scheduler
from tests.explore.turns import Actor, Asked
from tests.memory.admin import MemoryAdmin
from tests.memory.asking import touching
from tests.memory.cluster import MemoryCluster
from tests.memory.rules import Rules

NAME, TOPIC = "flow", "orders"
_TURN_S, _TURNS = 11.0, 2  # the cutover runs across the change
_WRITES_S = 60.0  # how long a task goes on without its driver
_LOOK_S = 0.5  # of the driver's thread


class World:
    """A target, and what tasks write there.

    :ivar wrong: what nobody may do. :ivar is_open: whether applications may write to the target.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.s = scheduler
        self.target = MemoryCluster("target", clock=scheduler.brokers_clock(), rules=Rules(open_by_default=True))
        self.wrong: list[str] = []
        self.last: LeaseToken | None = None  # the newest under which was written
        self.is_open = False
        self.cutover: Actor | None = None

    def admin(self) -> MemoryAdmin:
        """Connections of one process."""
        return MemoryAdmin(self.target, self.s.ask)

    def runs_cutover(self) -> bool:
        """Whether a driver hears the cutover's signs of life."""
        one = self.cutover
        return one is not None and not one.is_over and one.began <= self.s.now < one.silent_since + SILENCE_S

    def require_ours(self) -> None:
        """Return unless applications may write to the target: what each job asks behind the taking of its lease."""
        touches = touching("opening", TOPIC)
        if self.s.ask("target: is it open", lambda: self.is_open, at="target", touches=touches):
            raise MirrorCutOver(NAME, [TOPIC], "just now")

    def write(self, turn: int, token: LeaseToken, check: Any) -> None:
        """Write a record, with a permit, in a turn's name."""
        self.s.ask(
            f"target: the mirror copies in turn {turn}", lambda: self._written(turn, token), effect=True, at="target",
            touches=touching("log", TOPIC) | touching("lease", token.transactional_id), check=check,
        )  # fmt: skip

    def _written(self, turn: int, token: LeaseToken) -> None:
        if self.is_open:
            self.wrong.append(f"a task of turn {turn} wrote to an open target")
        if self.last is not None and token.epoch < self.last.epoch:
            self.wrong.append(f"a task of turn {turn} wrote after one whose lease was taken later")
        else:
            self.last = token


def _task(w: World, token: LeaseToken, turn: int) -> Actor:
    admin = w.admin()
    client = TransactionClient(admin.wire, token.transactional_id)

    def body() -> str:
        known, until = lease_watch.Confirmation(token, w.s.clock.monotonic), w.s.now + _WRITES_S
        while w.s.now < until:
            known.ask(client.describe)
            known.check_not_lost()
            with suppress(LeaseUnconfirmed):
                w.write(turn, token, known.check)
            w.s.clock.sleep(known.ask_again_s)
        return "over"

    return w.s.add(Actor(f"T{turn}", body, background=True))


def _driver(w: World) -> None:
    admin, keeping = w.admin(), w.admin()
    held: dict[str, LeaseToken] = {}

    def keep() -> None:
        short: LeaseToken | None = None
        while True:
            wanted = held["token"] if w.runs_cutover() else None
            if wanted != short:
                lease.shorten(keeping.wire, wanted or held["token"], wanted is not None)
                short = wanted
            w.s.clock.sleep(_LOOK_S)

    def body() -> str:
        held["token"] = lease.take(admin.wire, NAME)
        w.s.clock.sleep(held["token"].wait_s)
        w.require_ours()
        w.s.spawn("D keeper", keep, background=True)
        for turn in range(1, _TURNS + 1):
            task = _task(w, held["token"], turn)
            w.s.clock.sleep(_TURN_S)
            held["token"] = lease.withdraw(admin.wire, held["token"])
            if not task.is_over:
                w.s.clock.sleep(lease.HANDOVER_S)
        return "stopped"

    w.s.add(Actor("D", body))


def _cutover(w: World) -> None:
    admin = w.admin()

    def body() -> str:
        short = ShortLease(lambda: lease.seen_short(admin.wire, NAME), w.s.clock.monotonic)
        w.s.clock.sleep(1.0)
        short.wait(w.s.clock.sleep)
        token = lease.take(admin.wire, NAME, to_end=True, short=short.ripe)
        w.s.clock.sleep(token.wait_s)

        def open_it() -> None:
            w.is_open = True

        # In one step: the decision pins what is decided about the mirror's tail, so that no other job comes between.
        w.s.ask(
            f"target: opened after {token.wait_s:.0f} s", open_it, effect=True, at="target",
            touches=touching("opening", TOPIC), check=lambda: lease.confirm(MemoryAdmin(w.target).wire, token),
        )  # fmt: skip
        return f"opened after {token.wait_s:.0f} s"

    w.cutover = w.s.add(Actor("C", body, starts=3.0))


def _another_job(w: World) -> None:
    """Takes the lease as a job does, and copies, unless writing was ended or the target is open."""
    admin = w.admin()

    def body() -> str:
        if lease.is_writing_ended(admin.wire, NAME):
            raise WritingEnded(NAME)
        token = lease.take(admin.wire, NAME)
        w.s.clock.sleep(token.wait_s)
        w.require_ours()
        _task(w, token, _TURNS + 1)
        return "copies"

    w.s.add(Actor("N", body, last=True))


def build(scheduler: Scheduler) -> World:
    """A tail that changes its turn, a cutover that goes by its short lease, and the next job."""
    world = World(scheduler)
    _driver(world)
    _cutover(world)
    _another_job(world)
    return world


def _is_on_its_way(deviation: Deviation, asked: Asked) -> bool:
    # Records whose permit was good when their bytes were handed over: sequences hold that (`identity`), not the lease.
    return deviation.kind == "late" and "the mirror copies" in asked.what


INVARIANTS = (Invariant("one turn writes at a time, and none to an open target", lambda w: "; ".join(w.wrong)),)
SCENARIO = Scenario(
    "shortening", build, INVARIANTS, freezes=(1.5, 5.0, 6.5, 13.0, REST), accepts=_is_on_its_way,
    reaches={"T1": "target: the mirror copies", "T2": "target: the mirror copies", "C": "target: opened after 2 s"},
)  # fmt: skip
