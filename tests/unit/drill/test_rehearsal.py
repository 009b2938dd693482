"""Faults are injected one after the other, and only what is new and theirs counts as noticed."""

from __future__ import annotations

import pytest

from airflow_mirror.errors import InvalidField, TryAgain
from airflow_mirror.extras.drill.page import render
from airflow_mirror.extras.drill.rehearsal import Fault, kill_tail, names_of, planned, recreate_topic, rehearse
from airflow_mirror.plan.findings import Finding, Unknown
from tests.unit.drill.test_drill import a_drill


class World:
    """A mirror's health: ``said`` from some second after the last fault on. Only waiting takes time."""

    def __init__(self) -> None:
        self.now, self.done = 100.0, list[str]()
        self.said: list[tuple[float, str, str]] = []  # seconds after the fault, check, text
        self.faults_at: list[float] = []

    def inject(self, name: str) -> None:
        self.done.append(name)
        self.faults_at.append(self.now)

    def look(self) -> list[Finding]:
        since = self.now - self.faults_at[-1] if self.faults_at else -1.0
        return [
            (Unknown if what.startswith("not known") else Finding)("block", check, "", what)
            for at, check, what in self.said
            if since >= at
        ]

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def rehearse(self, *faults: Fault) -> list[dict[str, object]]:
        return rehearse(faults, self.look, 60.0, clock=lambda: self.now, pause=self.pause)

    def kill(self) -> Fault:
        return kill_tail(lambda: self.inject("kill"))

    def recreate(self) -> Fault:
        return recreate_topic("drill-1", lambda: self.inject("recreate"))


@pytest.fixture
def one() -> World:
    return World()


def test_each_fault_has_a_row_that_tells_how_it_was_noticed(one: World) -> None:
    one.said = [(12.0, "notes", "drill-1-0 offsets [0, 3): the source topic is gone"), (30.0, "tail", "no sign of life")]
    rows = one.rehearse(one.recreate(), one.kill())
    assert [(row["fault"], row["noticed_s"], row["how"]) for row in rows] == [
        ("recreate_topic", 12.0, "notes: drill-1-0 offsets [0, 3): the source topic is gone"),
        ("kill_tail", 30.0, "tail: no sign of life"),
    ]
    assert one.done == ["recreate", "kill"] and all(row["at_ms"] for row in rows)
    html = render(a_drill({}, {}, rehearsal=[*rows, *planned(["x"])]), [])
    assert "12.0 s" in html and "never" in html and "it was not injected" in html


def test_fault_that_nobody_notices_has_no_time(one: World) -> None:
    """What another fault would show, and what was wrong before, does not count."""
    one.said = [(0.0, "lag", "2 partitions are behind")]
    (row,) = one.rehearse(one.kill())
    assert row["noticed_s"] is None and row["how"] == "it was not noticed within 60 s"
    one.said = [(-1.0, "tail", "it was never started")]
    (row,) = one.rehearse(one.kill())
    assert row["noticed_s"] is None
    one.said = [(5.0, "tail", "not known: no broker answered"), (9.0, "notes", "not known: drill-1 did not answer")]
    rows = one.rehearse(one.kill(), one.recreate())
    assert [row["noticed_s"] for row in rows] == [None, None], "a look that failed has noticed nothing"
    one.said = [(5.0, "notes", "drill-2-0: the source topic is gone")]
    (row,) = one.rehearse(one.recreate())
    assert row["noticed_s"] is None


def test_fault_that_can_not_be_injected_says_why_and_the_next_one_comes(one: World) -> None:
    def refused() -> None:
        raise TryAgain("no broker answered")

    one.said = [(3.0, "tail", "lost")]
    first, second = one.rehearse(recreate_topic("drill-1", refused), one.kill())
    assert (first["noticed_s"], first["how"]) == (None, "it could not be injected: no broker answered")
    assert second["noticed_s"] == 3.0


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, []), ("", []), ([], []), ("kill_tail", ["kill_tail"]),
        (["kill_tail", "recreate_topic", "kill_tail"], ["recreate_topic", "kill_tail"]),
    ],
)  # fmt: skip
def test_a_dead_tail_comes_last(given: object, names: list[str]) -> None:
    """It would notice no other fault."""
    assert names_of(given) == names
    with pytest.raises(InvalidField, match="no such fault"):
        names_of(["flood"])
