"""Writers that others overtake, whose answers are lost and whose records come late: nothing is lost or done twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from airflow_mirror.errors import TryAgain, Undecided
from airflow_mirror.ledger.deciding import decide, settle
from airflow_mirror.ledger.fold import NOTHING, Decision, Fold, Verdict
from tests.unit.ledger.patience import tries


class World:
    """A log, and what happens on the way to it. Other writers step in wherever one waits for a broker.

    :ivar late: records that a network holds.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.records, self.late = rng, list[bytes | None](), list[bytes]()
        self.others: list[Callable[[], None]] = []
        self.depth = 0

    def append(self, value: bytes) -> int | None:
        self.meanwhile()
        how = self.rng.choice(["good"] * 4 + ["resent", "answer lost", "lost", "late", "late"])
        if how in ("good", "resent", "answer lost"):
            self.records += [value] * (2 if how == "resent" else 1)
        if how == "late":
            self.late.append(value)
        offset = len(self.records) - 1
        self.meanwhile()
        return offset if how in ("good", "resent") else None

    def read(self, start: int) -> Iterator[tuple[int, bytes | None, int]]:
        self.meanwhile()
        if self.rng.random() < 0.1:
            raise TryAgain("no broker answers")
        end = self.rng.randint(start, len(self.records)) if self.rng.random() < 0.2 else len(self.records)
        yield from ((offset, self.records[offset], 0) for offset in range(start, end))

    def meanwhile(self) -> None:
        if self.rng.random() < 0.05:
            self.records.append(self.rng.choice([None, b"", b"{}", b"\xff", b'{"claim":1}', b"[" * 100]))
        while self.late and self.rng.random() < 0.3:
            self.records.append(self.late.pop(self.rng.randrange(len(self.late))))
        if self.others and self.depth < 6 and self.rng.random() < 0.3:
            self.depth += 1
            self.others.pop()()
            self.depth -= 1


@pytest.mark.parametrize("seed", range(150))
def test_no_update_is_lost_and_none_is_done_twice(seed: int) -> None:
    """Each writer adds 1 to one or two counters; what they were told must be what the log says."""
    rng = random.Random(seed)
    world, added = World(rng), dict.fromkeys("abc", 0)

    def writer() -> None:
        keys = rng.sample("abc", rng.randint(1, 2))

        def change(values: Mapping[str, Any]) -> Mapping[str, Any]:
            return {key: values.get(key, 0) + 1 for key in keys}

        assert insisting(lambda: decide(world, Fold(), change, tries(500))) is not None
        for key in keys:
            added[key] += 1

    world.others = [writer] * 15
    while world.others:
        world.others.pop()()
    world.records += world.late  # whatever comes after all have been told
    assert replayed(world.records).values == {key: count for key, count in added.items() if count}


def insisting(decides: Callable[[], Any]) -> Any:
    """Begin again while no broker answers: then nothing was decided, or it would be :class:`Undecided`."""
    while True:
        try:
            return decides()
        except TryAgain as e:
            assert not isinstance(e, Undecided)


def replayed(records: list[bytes | None]) -> Fold:
    fold = Fold()
    for offset, value in enumerate(records):
        fold.apply(offset, value)
    return fold


class Scripted:
    """A log whose appends do what a test says: the offset they return, or None; ``held`` come when they are let in."""

    def __init__(self, *script: str) -> None:
        self.script, self.records, self.held = list(script), list[bytes](), list[bytes]()

    def append(self, value: bytes) -> int | None:
        how = self.script.pop(0)
        (self.held if how == "held" else self.records).append(value)
        return len(self.records) - 1 if how == "good" else None

    def read(self, start: int) -> Iterator[tuple[int, bytes, int]]:
        yield from ((offset, self.records[offset], 0) for offset in range(start, len(self.records)))


def test_a_decision_without_an_answer_is_made_too_late() -> None:
    """Else it could be applied after its writer was told that it was not."""
    log, fold = Scripted("held", "good"), Fold()
    assert settle(log, fold, fold.decision({"a": 1}), lambda: True) is Verdict.REFUSED
    log.records += log.held
    assert replayed(list(log.records)).values == {}


def test_a_decision_whose_answer_was_lost_is_found_in_the_log() -> None:
    log, fold = Scripted("answer lost"), Fold()
    assert settle(log, fold, fold.decision({"a": 1}), lambda: True) is Verdict.APPLIED


def test_a_bump_keeps_the_value_that_it_makes_newer() -> None:
    log, fold = Scripted("good", "held", "good"), Fold()
    settle(log, fold, fold.decision({"a": {"v": 9, "unknown": [1]}}), lambda: True)
    assert settle(log, fold, fold.decision({"a": 1}), lambda: True) is Verdict.REFUSED
    assert (fold.values["a"], fold.version("a")) == ({"v": 9, "unknown": [1]}, 2)


def test_who_gives_up_says_that_nobody_knows() -> None:
    log = Scripted("held")
    with pytest.raises(Undecided, match="nobody knows what is decided on a: no broker said"):
        decide(log, Fold(), lambda _: {"a": 1}, lambda: False)


def test_nothing_to_change_appends_nothing() -> None:
    log = Scripted()
    assert decide(log, Fold(), lambda _: None, lambda: False) is None


def test_a_slower_one_decides_again_on_what_it_finds() -> None:
    log, fold = Scripted("good", "good"), Fold()
    log.records.append(Decision(expects={"a": 0}, sets={"a": "theirs"}, read=NOTHING).encode())
    seen: list[Any] = []

    def change(values: Mapping[str, Any]) -> Mapping[str, Any]:
        if not seen:  # it comes between our look and our record
            log.records.append(fold.decision({"a": "theirs again"}).encode())
        seen.append(values["a"])
        return {"a": "ours"}

    assert decide(log, fold, change, lambda: True) == {"a": "ours"}
    assert seen == ["theirs", "theirs again"] and fold.values == {"a": "ours"}


def test_what_was_looked_up_is_so_still_when_it_is_decided() -> None:
    log, fold = Scripted("good", "good"), Fold()
    log.records.append(Decision(expects={"begun": 0}, sets={"begun": 1}, read=NOTHING).encode())
    seen: list[Any] = []

    def change(values: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append((values.get("direction"), len(values), values["begun"]))
        if len(seen) == 1:  # it comes between our look and our record
            log.records.append(fold.decision({"direction": "turned"}).encode())
        return {"fence": f"up, {seen[-1][0]}"}

    assert decide(log, fold, change, lambda: True) == {"fence": "up, turned"}
    assert seen == [(None, 1, 1), ("turned", 2, 1)]
