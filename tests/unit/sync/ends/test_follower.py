"""One look at the source: what is noted, and what a source that is gone leaves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import ClusterUnreachable, MirrorError, TryAgain
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.follower import EndsFollower
from airflow_mirror.sync.ends.notes import End
from airflow_mirror.sync.write_permit import Stopped
from airflow_mirror.wire import requests
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryState
from tests.unit.plan.builders import a_mirror
from tests.unit.sync.confirmed import Confirmed

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
GONE = ClusterUnreachable("source", "host:9092", "connection refused")
PLAN = plan_of(
    a_mirror(name="m"), topic_plan("a", {0: 0}, source_topic_id="1"), topic_plan("b", {0: 0}, source_topic_id="2")
)


class Source:
    """A source with the topics a and b. ``offsets``: last stable offset and end; one without has no leader."""

    def __init__(self) -> None:
        self.offsets = {A: (5, 9), B: (3, 3)}
        self.ids = {"a": "1", "b": "2"}
        self.id, self.down = "s", False
        self.order: list[int] = []

    @property
    def wire(self) -> Source:
        return self

    def cluster_id(self) -> str:
        return self.id

    def refresh_present(self, topics: Collection[str]) -> set[str]:
        if self.down:
            raise GONE
        return set(topics) - self.ids.keys()

    def topic_id(self, topic: str) -> str:
        return self.ids[topic]

    def partitions(self, _: str) -> int:
        return 1

    def ask_each(self, _what: str, tps: Any, ask: Any, _operation: str) -> tuple[Any, dict[TopicPartition, MirrorError]]:
        asked: list[int] = []
        ask(asked, [])
        self.order += asked
        which = 0 if asked == [requests.READ_COMMITTED] else 1
        found = {tp: self.offsets[tp][which] for tp in tps if tp in self.offsets}
        return found, {tp: TryAgain("no leader") for tp in tps if tp not in found}


class World:
    def __init__(self, source: Source | None = None, state: MemoryState | None = None) -> None:
        self.source, self.state, self.right, self.now = source or Source(), state or MemoryState(), Confirmed(), 100.0
        self.follower = EndsFollower(sides(PLAN, self.source, self, self.right, state=self.state), lambda: self.now)
        self.wire = None

    def look(self, at: float) -> dict[str, Any]:
        self.now = at
        return self.follower.follow(int(at * 1000)).to_dict()

    def noted(self) -> dict[TopicPartition, End]:
        seen = notes.load("m", self.state.read())
        return {} if seen is None else dict(seen.partitions)

    def missed(self) -> float | None:
        seen = notes.load("m", self.state.read())
        return None if seen is None or seen.missed_ms is None else seen.missed_ms / 1000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    def list_offsets(connection: list[int], _led: Any, _timestamp: int, isolation: int) -> None:
        connection.append(isolation)

    monkeypatch.setattr(requests, "list_offsets", list_offsets)
    return World()


def test_ends_are_asked_before_stable_offsets(world: World) -> None:
    """Otherwise each record in between would look like an open transaction."""
    assert world.look(100.0)["seen"] == 100.0
    assert world.source.order == [requests.READ_UNCOMMITTED, requests.READ_COMMITTED]
    assert world.noted() == {A: End(5, 9, 100_000), B: End(3, 3, 100_000)}


def test_a_source_that_is_gone_is_noted_as_missed_once(world: World) -> None:
    world.look(100.0)
    before = world.noted()
    world.source.down = True
    report = world.look(150.0)
    assert report["seen"] == 100.0 and "connection refused" in report["said"][0]
    assert world.noted() == before and 150.0 <= (world.missed() or 0.0) < 151.0
    missed = world.state.read()
    del world.source.offsets[A], world.source.offsets[B]
    world.source.down = False
    assert world.look(160.0)["seen"] == 100.0 and world.state.read() == missed  # brokers without leaders


def test_what_was_seen_last_is_noted_when_the_source_is_missed(world: World) -> None:
    """Looks are more frequent than notes, and the last one counts."""
    for at, end in ((100.0, 10), (101.0, 30), (102.0, 40)):
        world.source.offsets[B] = (end, end)
        world.look(at)
    assert world.noted()[B] == End(10, 10, 100_000) and world.missed() is None
    world.source.down = True
    world.look(103.0)
    assert world.noted()[B] == End(40, 40, 102_000)
    seen = notes.load("m", world.state.read())
    assert seen is not None and (seen.rates, seen.peaks) == ((15.0,), (20.0,))


def test_a_source_that_is_back_is_noted_at_once(world: World) -> None:
    """Else a tail that goes with it the next time leaves word of the first time."""
    world.look(100.0)
    world.source.down = True
    world.look(101.0)
    world.source.down = False
    world.look(102.0)
    assert world.missed() is None and world.noted()[A].at_ms == 102_000


def test_a_new_tail_notes_what_the_one_before_could_not(world: World) -> None:
    world.look(100.0)
    world.source.down = True
    again = World(world.source, world.state)
    again.look(130.0)
    assert again.missed() == 130.0 and again.noted()[A].at_ms == 100_000


def test_a_source_that_nobody_has_seen_is_not_missed(world: World) -> None:
    world.source.down = True
    world.look(100.0)
    assert world.state.read() == {}


def test_one_leader_is_enough_to_have_seen_the_source(world: World) -> None:
    world.look(100.0)
    world.source.offsets = {B: (4, 4)}
    report = world.look(110.0)
    assert (report["seen"], report["failed"]["count"]) == (110.0, 1)
    assert world.noted() == {A: End(5, 9, 100_000), B: End(4, 4, 110_000)}


def test_a_topic_that_was_created_again_is_not_the_one(world: World) -> None:
    world.look(100.0)
    world.source.ids = {"a": "another"}
    report = world.look(110.0)
    assert report["seen"] == 110.0 and world.noted().keys() == {A, B} and world.missed() is None
    causes = ["a: the source's topic was created again", "b: the source has no such topic any more"]
    assert report["left_out"]["first"][: len(causes)] == causes and not report["failed"]["count"]


def test_a_source_of_another_cluster_id_was_not_seen(world: World) -> None:
    """It was built anew: none of its topics is the one of the plan."""
    world.look(100.0)
    world.source.ids, world.source.id = {}, "another"
    assert world.look(110.0)["seen"] == 100.0 and world.missed() is None


def test_nothing_stays_noted_of_a_topic_that_is_gone(world: World) -> None:
    """A failover would take its ends for those of the last look."""
    world.look(100.0)
    del world.source.ids["b"]
    world.look(110.0)
    assert world.noted().keys() == {A}
    assert list(world.state.read())[-1] == "ends/m/look", "it is noted last"


def test_a_look_that_can_not_be_noted_is_one_all_the_same(world: World) -> None:
    """A failover must not take the source for gone because the target could not be written to."""
    world.right.left = 0
    report = world.look(100.0)
    assert report["seen"] == 100.0 and world.noted() == {} and "not noted" in report["said"][0]


def test_a_job_that_ends_notes_nothing_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: Any) -> None:
        raise Stopped("the job ends")

    monkeypatch.setattr(world.right, "granted", stopped)
    with pytest.raises(Stopped):
        world.look(100.0)


def test_many_partitions_are_noted_less_often_than_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.sync.ends.follower._NOTE_S", 12.5)  # 25 s for two
    for at in (100.0, 110.0, 120.0):
        world.source.offsets[B] = (int(at), int(at))
        assert world.look(at)["seen"] == at and world.noted()[B].end == 100
    world.look(130.0)
    assert world.noted()[B] == End(120, 120, 130_000)
    world.look(90.0)  # the clock was set back
    assert world.noted()[B].at_ms == 90_000


def test_what_a_newer_version_has_noted_is_left_as_it_is(world: World) -> None:
    newer = {"ends/m/look": b'{"v": 99}'}
    world.state.write(newer)
    report = world.look(100.0)
    assert report["seen"] == 100.0 and "newer version" in report["said"][0] and world.state.read() == newer
