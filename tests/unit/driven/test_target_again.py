"""A target topic is deleted and created again while it is copied to: nothing of ours gets into the new one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import watch
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.errors import TargetGone
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, errors, id_of, ranges_of
from tests.driven.script import Fault, Request

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
        assert self.was in str(error) and now in str(error) and "plan anew" in str(error)


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
        following.until(lambda: p.error is not None, "it stops")
    world.assert_gone(p.error)
    rows = [(r.key, r.value) for r in world.target.log(TP).rows()]
    assert rows == [(r.key, r.value) for r in world.source.topics["b"].logs[0].rows()]


@MODES
def test_brokers_without_topic_ids_are_copied_to(source: DrivenCluster, target: DrivenCluster, mode: str) -> None:
    target.brokers[1].served[3] = (0, 9)
    world = World(source, target)
    assert errors(copy(source, target, [replace(one, target_topic_id="") for one in world.ranges(mode)]))[TP] is None
    assert world.copy(mode) is None, "one that knows an id by another broker"


# --- between our look and our bytes ------------------------------------------------------------------------------------


@MODES
def test_records_do_not_get_into_a_topic_that_was_created_since_we_looked(world: World, mode: str) -> None:
    """The partition is idle, and records come before anybody has looked again. The broker refuses them."""
    with Following(world.source, world.target, world.ranges(mode)) as following:
        (p,) = following.loop.partitions
        following.until(lambda: p.position == 5, "it is copied")
        world.create_again()
        rule = world.target.script.on("Produce", Fault(), when=by_id)
        world.write()
        following.until(lambda: p.error is not None, "it stops")
    assert rule.hits
    world.assert_gone(p.error)
    assert world.target.log(TP).end == 0


@MODES
@pytest.mark.parametrize("start", [0, 4])
def test_nothing_gets_into_a_topic_that_is_created_again_while_we_look(world: World, mode: str, start: int) -> None:
    """Its id is still the old one's, and its end is the new one's: 0, as of a copy that has not begun."""
    log = world.source.topics["t"].logs[0]
    log.begin_at(start)
    assert world.copy(mode) is None
    world.write()
    world.target.script.on("OffsetForLeaderEpoch", Fault(before=lambda _: world.create_again()))
    world.assert_gone(world.copy(mode))
    assert world.target.log(TP).end == 0 and not world.target.asked("DeleteRecords")[bool(start and mode == IDENTICAL) :]


@MODES
@pytest.mark.parametrize("start", [0, 4])
def test_copy_goes_on_where_a_leader_has_not_heard_of_the_topic_yet(world: World, mode: str, start: int) -> None:
    """It says the same as of a topic that is gone."""
    world.source.topics["t"].logs[0].begin_at(start)
    ours = world.target.script.on("Produce", Fault.refused(ErrorCode.UNKNOWN_TOPIC_ID, [TP]), times=2, when=by_id)
    assert world.copy(mode) is None
    assert len(ours.hits) == 2
    there = [(r.key, r.value) for r in world.target.log(TP).rows()]
    assert there == [(r.key, r.value) for r in world.source.topics["t"].logs[0].rows()]


@pytest.mark.parametrize("newest", [8, 12, 13])
@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
@MODES
def test_batches_go_by_id_where_a_broker_takes_that_and_no_transaction_is_open(
    world: World, mode: str, delivery: str, newest: int
) -> None:
    world.target.brokers[1].served[0] = (3, newest)
    assert errors(copy(world.source, world.target, world.ranges(mode), delivery=delivery))[TP] is None
    versions = {r.version for r in world.target.asked("Produce") if any(t.name == "t" for t in r.message.topic_data)}
    assert versions == {13 if newest == 13 and (mode, delivery) != (MAPPED, "transactional") else 8}


def by_id(request: Request) -> bool:
    """Return whether a request produces to the topic, and to no other of its name."""
    return request.version == 13
