"""A target topic is deleted and created again while it is copied to: nothing of ours gets into the new one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mirror.copy.loop import watch
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.errors import TargetGone
from airflow_mirror.partition import TopicPartition
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, errors, id_of, ranges_of

TP = TopicPartition("t", 0)
MODES = pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])


class World:
    """Five records, and a target topic that is there before them."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster) -> None:
        self.source, self.target = source, target
        self.writer = Writer(source.create("t").logs[0])
        self.writer.plain(5)
        target.create("t")
        self.was = id_of(target, "t")

    def ranges(self, mode: str) -> list[CopyRange]:
        return [replace(one, target_topic_id=self.was) for one in ranges_of(self.source, "t", mode)]

    def copy(self, mode: str) -> Exception | None:
        return errors(copy(self.source, self.target, self.ranges(mode)))[TP]

    def create_again(self) -> None:
        with self.target.changing():
            self.target.create("t")

    def write(self) -> None:
        with self.source.changing():
            self.writer.plain(3)

    def assert_gone(self, error: Exception | None) -> None:
        now = id_of(self.target, "t")
        assert isinstance(error, TargetGone) and (error.known, error.found) == (self.was, now)
        assert self.was in str(error) and now in str(error) and "plan again" in str(error)


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster) -> World:
    return World(source, target)


def written(target: DrivenCluster) -> int:
    """Return how often something was written to the topic, wherever it was."""
    produced = [r for r in target.asked("Produce") for topic in r.message.topic_data if topic.name == "t"]
    return len(produced) + len(target.asked("DeleteRecords"))


@MODES
@pytest.mark.parametrize("start", [0, 4])
def test_target_that_was_created_again_is_not_taken_for_a_fresh_one(world: World, mode: str, start: int) -> None:
    """With a start above 0 it would be primed."""
    world.source.topics["t"].logs[0].begin_at(start)
    assert world.copy(mode) is None
    world.create_again()
    world.write()
    before = written(world.target)
    world.assert_gone(world.copy(mode))
    assert world.target.log(TP).end == 0 and written(world.target) == before


@MODES
@pytest.mark.parametrize("start", [0, 4])
def test_idle_copy_notices_that_its_target_was_created_again(
    world: World, mode: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_EVERY_S", 0.01)
    world.source.topics["t"].logs[0].begin_at(start)
    with Following(world.source, world.target, world.ranges(mode)) as following:
        (p,) = following.loop.partitions
        following.until(lambda: p.position == 5, "it is copied")
        before = written(world.target)
        world.create_again()
        following.until(lambda: p.error is not None, "it stops")
        world.assert_gone(p.error)
    assert world.target.log(TP).end == 0 and written(world.target) == before


@MODES
def test_mirror_to_which_the_new_topic_belongs_is_undisturbed(
    world: World, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It copies another topic there."""
    monkeypatch.setattr(watch, "_EVERY_S", 0.01)
    Writer(world.source.create("b").logs[0]).plain(7, size=9)
    with Following(world.source, world.target, world.ranges(mode)) as following:
        (p,) = following.loop.partitions
        following.until(lambda: p.position == 5, "it is copied")
        world.create_again()
        (theirs,) = (replace(one, target_topic="t") for one in ranges_of(world.source, "b", mode))
        assert errors(copy(world.source, world.target, [theirs]))[theirs.source] is None
        world.write()
    world.assert_gone(p.error)
    rows = [(r.key, r.value) for r in world.target.log(TP).rows()]
    assert rows == [(r.key, r.value) for r in world.source.topics["b"].logs[0].rows()]


@MODES
def test_brokers_without_topic_ids_are_copied_to(source: DrivenCluster, target: DrivenCluster, mode: str) -> None:
    target.brokers[1].served[3] = (0, 9)
    world = World(source, target)
    assert errors(copy(source, target, [replace(one, target_topic_id="") for one in world.ranges(mode)]))[TP] is None
    assert world.copy(mode) is None, "one that knows an id by another broker"
