"""Small scenarios of which one knows what is wrong with them: a counter, and a lock with an owner."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.explore.deviations import REST
from tests.explore.scenario import Invariant, Scenario
from tests.explore.scheduler import Scheduler
from tests.explore.turns import Actor

_COUNTER = frozenset({"counter:n"})
_LOCK = frozenset({"lock:owner"})


class Toy:
    """A dictionary that several actors share."""

    def __init__(self, scheduler: Scheduler, **values: Any) -> None:
        self.s, self.values = scheduler, values
        self.told: list[str] = []

    def get(self, key: str, touches: frozenset[str] = _COUNTER) -> Any:
        return self.s.ask(f"read {key}", lambda: self.values[key], touches=touches)

    def set(self, key: str, value: Any, touches: frozenset[str] = _COUNTER) -> None:
        self.s.ask(
            f"set {key} to {value}",
            lambda: self.values.__setitem__(key, value),
            effect=True,
            touches=touches,
            lost=lambda: None,
        )

    def work(self, name: str, part: int) -> None:
        done = self.values["work"]
        self.s.ask(f"do part {part}", lambda: done.append((name, part)), effect=True, lost=lambda: None)

    def swap(self, key: str, old: Any, new: Any) -> bool:
        def do() -> bool:
            if self.values[key] != old:
                return False
            self.values[key] = new
            return True

        return self.s.ask(f"swap {key} from {old} to {new}", do, effect=True, touches=_COUNTER, lost=lambda: False)


def broken_counter(s: Scheduler) -> Toy:
    """Two actors count by reading and writing."""
    toy = Toy(s, n=0)

    def count() -> int:
        toy.set("n", toy.get("n") + 1)
        toy.told.append("counted")
        return 1

    for name in "AB":
        s.add(Actor(name, count))
    return toy


def sound_counter(s: Scheduler) -> Toy:
    """Two actors count by compare-and-set; one whose answer was lost says nothing."""
    toy = Toy(s, n=0)

    def count() -> None:
        for _ in range(5):
            seen = toy.get("n")
            if toy.swap("n", seen, seen + 1):
                toy.told.append("counted")
                return
            s.clock.sleep(0.1)

    for name in "AB":
        s.add(Actor(name, count))
    return toy


def lock_with_time_limit(s: Scheduler) -> Toy:
    """An owner works under a lock that others may break once it is a minute old; it does not look again."""
    toy = Toy(s, owner="", since=0.0, work=[])

    def own(name: str) -> None:
        while True:
            owner = toy.get("owner", _LOCK)
            if not owner or s.clock.monotonic() - toy.get("since", _LOCK) > 60:
                break
            s.clock.sleep(5)
        toy.set("owner", name, _LOCK)
        toy.set("since", s.clock.monotonic(), _LOCK)
        for part in (1, 2):
            toy.work(name, part)
        toy.set("owner", "", _LOCK)

    s.add(Actor("A", lambda: own("A")))
    s.add(Actor("B", lambda: own("B"), starts=1.0))
    return toy


def late_comer(s: Scheduler, wanted: int = 0) -> Toy:
    """One counts; who comes last does so unless that one has."""
    toy = Toy(s, n=0, m=0)

    def late() -> None:
        if toy.get("n") == wanted:
            toy.set("m", 1)

    s.add(Actor("A", lambda: toy.set("n", 1)))
    s.add(Actor("B", late, last=True))
    return toy


def _lost(toy: Toy) -> str:
    return "" if toy.values["n"] >= len(toy.told) else f"{len(toy.told)} were told, the counter is {toy.values['n']}"


def _mixed(toy: Toy) -> str:
    names = [name for name, _ in toy.values["work"]]
    return "" if sorted(names) in (names, names[::-1]) else f"done was {toy.values['work']}"


def _free(toy: Toy) -> str:
    return f"{toy.values['owner']} holds it" if toy.values["owner"] else ""


COUNTED = Invariant("who was told that it counted is counted", _lost, at_end=True)
BOTH = {"A": "set n to ", "B": "set m to "}
ALONE = Invariant("nobody works between two works of another one", _mixed)
FREE = Invariant("the lock is free at the end", _free, at_end=True)

TOYS = {
    one.name: one
    for one in (
        Scenario("broken", broken_counter, (COUNTED,)),
        Scenario("sound", sound_counter, (COUNTED,)),
        Scenario("late", late_comer, (COUNTED,), reaches=BOTH),
        Scenario("never", partial(late_comer, wanted=2), (COUNTED,), reaches=BOTH),
        Scenario("lock", lock_with_time_limit, (ALONE, FREE), freezes=(30.0, 90.0, REST)),
    )
}
