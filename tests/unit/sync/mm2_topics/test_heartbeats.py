"""Heartbeats: of the job at any time, of the source while it answers, and of clusters before it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.errors import BrokerError, LeaseLost, LedgerLost, TracesUnfit
from airflow_mirror.plan.mm2_topics import mark
from airflow_mirror.sync.mm2_topics import heartbeats
from airflow_mirror.sync.mm2_topics.formats import Heartbeat
from airflow_mirror.sync.mm2_topics.heartbeats import Heart, further
from airflow_mirror.sync.write_permit import Stopped
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.plan.builders import a_mirror
from tests.unit.sync.mm2_topics.world import World

OWN, OF_SOURCE = "heartbeats", "A.heartbeats"


class Alive(World):
    """A mirror with heartbeats, and a clock that stands still unless a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, traces="heartbeats", target_alias="B")
        self.now, self.upstream, self.unfit = 100.0, MemoryLedger(), set[str]()
        self.lost, self.refuses = False, dict[str, Exception]()
        monkeypatch.setattr(heartbeats, "make_ready", self._make_ready)
        monkeypatch.setattr(heartbeats, "Ledger", lambda _: self)
        given = sides(self.plan, self.source, self.target, self.right, ledger=self.ledger)
        self.heart = Heart(given, lambda: self.now)

    def peek(self) -> Any:
        if self.lost:
            raise LedgerLost("the source's ledger is gone")
        return self.upstream.values()

    def _make_ready(self, _plan: Any, names: Any, *_: Any) -> Any:
        if bad := self.unfit.intersection(names):
            raise TracesUnfit(dict.fromkeys(bad, "it has 3 partitions instead of 1"))
        for error in (self.refuses[name] for name in names if name in self.refuses):
            raise error
        return {name: self.traces.log(name) for name in names}

    def beats(self) -> dict[str, list[int]]:
        """The times that each topic has."""
        found = {}
        for topic, rows in self.traces.items():
            beats = [Heartbeat("A", "B", int.from_bytes(value[2:], "big")) for _, value in rows]
            assert [(one.key, one.value) for one in beats] == rows
            found[topic] = [one.at_ms for one in beats]
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Alive:
    return Alive(monkeypatch)


def test_flow_and_source_are_alive(world: Alive) -> None:
    report = world.heart.follow(1)
    assert (report.topics, report.seen, report.failed) == (2, True, [])
    world.heart.follow(2)
    assert world.beats() == {OWN: [1, 2], OF_SOURCE: [1, 2]}
    assert str(report) == "written to 2 topics" and report.to_dict()["said"] == []


def test_a_source_that_is_gone_is_left_in_peace_and_stands_still(world: Alive) -> None:
    world.heart.follow(1)
    world.source.silent = True
    assert not (report := world.heart.follow(2)).seen and "the source does not answer" in str(report)
    world.source.silent = False
    assert not world.heart.follow(3).seen, "it is asked again after a while only"
    world.now += 11
    assert world.heart.follow(4).seen
    assert world.beats() == {OWN: [1, 2, 3, 4], OF_SOURCE: [1, 4]}


def test_clusters_before_the_source_get_the_next_hop(world: Alive) -> None:
    mark(world.upstream, ["heartbeats", "Z.heartbeats", "Y.Z.heartbeats", "B.heartbeats", "Z.checkpoints.internal"])
    world.heart.follow(1)
    assert set(world.beats()) == {OWN, OF_SOURCE, "A.Z.heartbeats", "A.Y.Z.heartbeats"}
    mark(world.upstream, ["X.heartbeats"])
    world.heart.follow(2)
    assert "A.X.heartbeats" not in world.beats(), "it is looked for them seldom"
    world.now += 301
    world.heart.follow(3)
    assert world.beats()["A.X.heartbeats"] == [3]


def test_what_can_not_be_written_for_them_is_said_and_holds_up_nothing(world: Alive) -> None:
    mark(world.upstream, ["Z.heartbeats", "Y.heartbeats"])
    world.unfit = {"A.Z.heartbeats"}
    report = world.heart.follow(1)
    assert report.topics == 3 and set(world.beats()) == {OWN, OF_SOURCE, "A.Y.heartbeats"}
    assert len(report.failed) == 1 and "3 partitions" in report.failed[0]
    assert "heartbeats are not written: A.Z.heartbeats" in report.to_dict()["said"][0]
    world.now, world.lost = world.now + 301, True
    report = world.heart.follow(2)
    assert report.topics == 2 and "clusters before the source are not known" in report.failed[0]


def test_a_target_that_fails_is_not_taken_for_a_silent_source(world: Alive) -> None:
    """The chain's own heartbeat goes on, and what failed is tried again soon."""
    mark(world.upstream, ["Z.heartbeats", "Y.heartbeats"])
    world.refuses = {"A.Y.heartbeats": BrokerError("create", 7, "REQUEST_TIMED_OUT")}
    report = world.heart.follow(1)
    assert report.seen and "REQUEST_TIMED_OUT" in report.failed[0]
    assert world.beats() == {OWN: [1], OF_SOURCE: [1], "A.Z.heartbeats": [1]}
    world.refuses, world.now = {}, world.now + 11
    assert not world.heart.follow(2).failed and world.beats()["A.Y.heartbeats"] == [2]


@pytest.mark.parametrize("error", [Stopped("the job ends"), LeaseLost("airflow-mirror.m", 1, "epoch 2")])
def test_a_job_that_may_not_write_says_nothing_of_the_source(world: Alive, error: Exception) -> None:
    mark(world.upstream, ["Z.heartbeats"])
    world.refuses = {"A.Z.heartbeats": error}
    with pytest.raises(type(error)):
        world.heart.follow(1)
    assert world.beats() == {OWN: [1], OF_SOURCE: []}


def test_unfit_topics_and_a_lost_lease_are_errors(world: Alive) -> None:
    world.unfit = {OWN}
    with pytest.raises(TracesUnfit, match="3 partitions"):
        world.heart.follow(1)
    world.unfit = set()
    world.right.lost = True
    with pytest.raises(LeaseLost):
        world.heart.follow(2)
    assert not any(world.beats().values())


def test_rings_end() -> None:
    mirror = a_mirror(source_alias="A", target_alias="B", traces="heartbeats")
    assert further(mirror, ["heartbeats", "A.heartbeats", "B.heartbeats", "C.B.heartbeats", "C.heartbeats"]) == [
        "A.C.heartbeats"
    ]
