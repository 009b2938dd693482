"""What is asked in bulk is given once for each partition, and then the cluster is asked again."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.opening.answers import PrereadCluster, preread
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import BrokerError
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster

RANGES = [CopyRange("here", "there", p, 0, 10) for p in range(50)]
FIRST = TopicPartition("there", 0)


class World:
    """Clusters whose log ends grow by one with each question; counts the questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        self.broken = False
        monkeypatch.setattr(WireCluster, "_ask_leaders", lambda _, what, tps, ask, operation: self.answer(what, tps))
        config = ClientConfig({"bootstrap.servers": "127.0.0.1:1"})
        self.source, self.target = PrereadCluster(config), PrereadCluster(config)

    def answer(self, what: str, tps: list[TopicPartition]) -> dict[TopicPartition, object]:
        if self.broken:
            raise BrokerError(what, 3, "UNKNOWN_TOPIC_OR_PARTITION")
        self.asked[what] += 1
        return {tp: [] if what == "DescribeProducers" else self.asked.total() for tp in tps}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_many_partitions_cost_as_many_questions_as_one(world: World) -> None:
    preread(world.source, world.target, RANGES)
    bulk = world.asked.total()
    for r in RANGES:
        world.target.log_ends([r.target]), world.target.high_watermarks([r.target]), world.target.log_starts([r.target])
        world.target.describe_producers([r.target]), world.target.log_ends([r.target])
        for _ in range(3):
            world.source.log_starts([r.source])
        world.source.high_watermarks([r.source])
    assert (bulk, world.asked.total()) == (7, 7)


def test_the_logs_end_is_asked_before_and_after_the_rest_of_the_target_and_the_source_last(world: World) -> None:
    preread(world.source, world.target, RANGES)
    before, watermark = world.target.log_ends([FIRST])[FIRST], world.target.high_watermarks([FIRST])[FIRST]
    start, after = world.target.log_starts([FIRST])[FIRST], world.target.log_ends([FIRST])[FIRST]
    source = world.source.high_watermarks([RANGES[0].source])[RANGES[0].source]
    assert before < watermark < start < after < source


def test_an_answer_is_given_once_and_after_the_pass_none_is(world: World) -> None:
    preread(world.source, world.target, RANGES)
    kept = world.target.high_watermarks([FIRST])[FIRST]
    assert world.target.high_watermarks([FIRST])[FIRST] > kept
    other = RANGES[1].target
    world.target.ask_again()
    asked = world.asked.total()
    world.target.log_ends([other])
    assert world.asked.total() == asked + 1


def test_a_partition_that_is_gone_leaves_the_others_to_ask_for_themselves(world: World) -> None:
    world.broken = True
    preread(world.source, world.target, RANGES)
    world.broken = False
    assert world.target.log_ends([FIRST])[FIRST] == 1


def test_a_single_partition_is_not_asked_about_twice(world: World) -> None:
    preread(world.source, world.target, RANGES[:1])
    assert world.asked.total() == 0
