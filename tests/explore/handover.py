"""The smallest whole example: two attempts end a mirror's writing, move a group and open the target.

They take and confirm the lease by its own code. It shows how actors, a world and its invariants are written, and that a
permit which is looked at with the bytes holds whatever happens, while one that was looked at before does not
(tests/unit/explore/test_handover.py).
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import MirrorCutOver
from airflow_mirror.kafka.model import GroupPosition
from tests.explore.deviations import REST, Deviation
from tests.explore.scenario import Invariant, Scenario
from tests.explore.scheduler import Scheduler
from tests.explore.turns import Actor, Asked
from tests.memory.admin import MemoryAdmin
from tests.memory.applications import Consumer
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger
from tests.memory.rules import Rules

TP, GROUP, CUT = TopicPartition("orders", 0), "app", 5


class World:
    """A target that is full up to the cut, and what is decided there.

    :ivar foreign: who set a position behind the opening, and is no reader.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.s = scheduler
        self.target = MemoryCluster("target", clock=scheduler.brokers_clock(), rules=Rules(open_by_default=True))
        self.target.create(TP.topic)
        self.target.append(TP, *(b"%d" % n for n in range(CUT)))
        self.foreign: list[str] = []
        self._position: GroupPosition | None = None
        scheduler.after_effect.append(self._look)

    @property
    def opened_by(self) -> str:
        """Who opened the target; "" until somebody did."""
        found: str = self.target.decided.get("opened", "")
        return found

    def attempt(self, name: str, *, looks_before: bool = False) -> Callable[[], str]:
        """Return the body of a cutover's attempt.

        :param looks_before: its permit is looked at before the request is made, not with the bytes.
        """
        admin, ledger = MemoryAdmin(self.target, self.s.ask), MemoryLedger(self.target, self.s.ask, self.s.clock)

        def body() -> str:
            token = lease.take(admin.wire, "flow", to_end=True)
            self.s.clock.sleep(token.wait_s)

            def permit() -> None:
                if "opened" in ledger.values():
                    raise MirrorCutOver("flow", [TP.topic], "just now")
                lease.confirm(admin.wire, token)

            if looks_before:
                permit()
            wanted = {GROUP: {TP: GroupPosition(CUT)}}
            (commit,) = admin.commit_groups(wanted, (lambda: None) if looks_before else permit).values()
            if commit.error is not None:
                raise commit.error
            decided = ledger.decide(lambda values: None if "opened" in values else {"opened": name})
            return "opened" if decided else "was open"

        return body

    def reader(self) -> Callable[[], int]:
        """Return the body of an application that reads on once the target is open, and writes there itself."""
        consumer = Consumer(self.target, GROUP, "", self.s.ask, reset="earliest")

        def body() -> int:
            self.target.append(TP, b"new")
            return consumer.read(TP)

        return body

    def _look(self, actor: str, what: str) -> None:
        before, self._position = self._position, self.target.positions(GROUP).get(TP)
        if before != self._position and self.opened_by and not what.startswith("target: a consumer"):
            self.foreign.append(f"{actor}: {what}")


def build(scheduler: Scheduler) -> World:
    """An attempt, its retry, and an application that reads on once the target is open."""
    world = World(scheduler)
    _add(world)
    return world


def _add(world: World, **given: bool) -> None:
    world.s.add(Actor("A", world.attempt("A", **given)))
    world.s.add(Actor("B", world.attempt("B", **given), last=True))
    world.s.add(Actor("App", world.reader(), last=True, after=lambda: bool(world.opened_by), fragile=False))


def build_unsafe(scheduler: Scheduler) -> World:
    """As `build`, with permits that are looked at before the request is made."""
    world = World(scheduler)
    _add(world, looks_before=True)
    return world


def _is_on_its_way(deviation: Deviation, asked: Asked) -> bool:
    # A request whose permit was good when its bytes were handed over, and that is applied later: docs/security.md.
    return deviation.kind == "late" and asked.what.startswith("target: set ")


INVARIANTS = (
    Invariant("a committed offset on an open target is nobody's but its readers'", lambda w: "; ".join(w.foreign)),
    Invariant(
        "who is told that it opened the target did",
        lambda w: "; ".join(
            f"{a.name} was told so, {w.opened_by} did"
            for a in w.s.actors if a.result == "opened" and w.opened_by != a.name
        ),
        at_end=True,
    ),
)  # fmt: skip
SCENARIO = Scenario("handover", build, INVARIANTS, freezes=(3.0, 30.0, REST), cuts=("target",), accepts=_is_on_its_way)
UNSAFE = Scenario("unsafe", build_unsafe, INVARIANTS, freezes=(3.0, 30.0, REST), accepts=_is_on_its_way)
