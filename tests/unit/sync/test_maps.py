"""Offset maps are asked for as both logs stand, walked only when one has moved, and never guessed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.offsets.map import OffsetMap, Translated, Where
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import InputError, NoOffsetMap
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync import maps
from airflow_mirror.sync.maps import Maps, OffsetMaps
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.unit.cutover.builders import a_plan

ORDERS = TopicPartition("orders", 0)
CONFIG = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "source")
SHIFT = 1_000  # a target offset is the source's and this


@dataclass(frozen=True)
class Map:
    """The map of a partition that was copied up to ``source_end``, record by record."""

    source_end: int
    adopted_until = 0

    @property
    def target_end(self) -> int:
        return self.source_end + SHIFT

    def to_target(self, offset: int) -> Translated:
        beyond = offset > self.source_end
        return Translated(min(offset, self.source_end) + SHIFT, Where.BEYOND if beyond else Where.RECORD)

    def to_source(self, offset: int) -> Translated:
        return Translated(offset - SHIFT, Where.RECORD)


class Cluster:
    """A side: where its partitions end, and to where they are stable. ``None`` as an end: nothing there yet."""

    def __init__(self, _config: object) -> None:
        self.ends: dict[str, list[int]] = {}
        self.stable: dict[TopicPartition, int] = {}
        self.is_closed = False

    def refresh(self, _topics: Collection[str]) -> None:
        pass

    def partitions(self, topic: str) -> int:
        return len(self.ends[topic])

    def high_watermarks(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp.topic][tp.partition] for tp in tps}

    def last_stable(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.stable.get(tp, self.ends[tp.topic][tp.partition]) for tp in tps}

    def close(self) -> None:
        self.is_closed = True


class World:
    """A mirror whose topic is mapped; ``copied`` says how far each partition is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
        self.copied, self.walks = {0: 10}, list[int]()
        monkeypatch.setattr(maps, "WireCluster", Cluster)
        monkeypatch.setattr(Maps, "complete", lambda _source, one, *_: self._walk(one))
        self.maps = OffsetMaps(plan, CONFIG, CONFIG)
        self.source: Any
        self.target: Any
        self.source, self.target = self.maps._source, self.maps._target
        self.source.ends, self.target.ends = {"orders": [10]}, {"there": [10 + SHIFT]}

    def _walk(self, copy_range: CopyRange) -> Map:
        self.walks.append(copy_range.partition)
        if copy_range.partition not in self.copied:
            raise NoOffsetMap(copy_range.source)
        return Map(self.copied[copy_range.partition])

    def copy(self, end: int) -> None:
        self.copied[0], self.source.ends["orders"][0], self.target.ends["there"][0] = end, end, end + SHIFT


@pytest.fixture
def plan() -> Plan:
    planned = a_plan("orders")
    return replace(planned, topics=(replace(planned.topics[0], target_topic="there", mode="mapped"),))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> World:
    return World(monkeypatch, plan)


def test_map_is_walked_again_only_for_later_offsets(world: World) -> None:
    assert world.maps.to_target(ORDERS, 4) == (4 + SHIFT, Where.RECORD)
    assert world.maps.to_source(TopicPartition("there", 0), 7 + SHIFT) == (7, Where.RECORD)
    assert len(world.walks) == 1
    assert world.maps.to_target(ORDERS, 11).where is Where.BEYOND
    assert len(world.walks) == 1, "neither log has moved since"
    world.copy(12)
    assert world.maps.to_target(ORDERS, 11) == (11 + SHIFT, Where.RECORD)
    assert len(world.walks) == 2


def test_positions_are_where_both_logs_stand_now(world: World) -> None:
    assert world.maps.positions() == {ORDERS: 10}
    world.copy(15)
    assert world.maps.positions() == world.maps.positions() == {ORDERS: 15}
    assert len(world.walks) == 2
    world.target.stable[TopicPartition("there", 0)] = 13 + SHIFT  # a transaction is open there: nobody sees the rest
    assert world.maps.positions() == {ORDERS: 13}


def test_who_has_read_everything_goes_on_behind_what_another_tool_sent_again(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """It lies behind the last record that the map names, until the mirror's own records come."""
    adopted = OffsetMap(0, 0)
    adopted.add(0, 0, 10)
    adopted.advance(10, 14)
    adopted.adopted_until = 14
    world = World(monkeypatch, plan)
    monkeypatch.setattr(Maps, "complete", lambda *_: adopted)
    assert [world.maps.to_target(ORDERS, at) for at in (9, 10, 11)] == [
        (9, Where.RECORD), (14, Where.END), (14, Where.BEYOND),
    ]  # fmt: skip
    adopted.add(10, 14, 1)
    assert [world.maps.to_target(ORDERS, at) for at in (10, 11)] == [(14, Where.RECORD), (15, Where.END)]


def test_partition_not_begun_has_no_position_or_translation(world: World) -> None:
    world.source.ends, world.target.ends = {"orders": [10, 5, 3]}, {"there": [10 + SHIFT, 0]}
    assert world.maps.positions() == {ORDERS: 10}
    with pytest.raises(NoOffsetMap):
        world.maps.to_target(TopicPartition("orders", 1), 2)


def test_keyed_partition_stands_at_its_slowest_part(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """An offset of it has no translation."""
    world = World(monkeypatch, replace(plan, mirror=replace(plan.mirror, partitioning="by_key", offsets="mapped")))
    world.target.ends = {"there": [10 + SHIFT, 10 + SHIFT]}
    ends = iter([10, 6])
    monkeypatch.setattr(Maps, "complete", lambda *_: Map(next(ends)))
    assert world.maps.positions() == {ORDERS: 6}
    with pytest.raises(InputError, match="an offset has no counterpart"):
        world.maps.to_target(ORDERS, 1)


def test_keyed_partition_has_as_many_parts_as_when_its_copy_began(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """What the target has got since has no map, and would seem never to be reached."""
    keyed = replace(plan.mirror, partitioning="by_key", offsets="mapped")
    world = World(monkeypatch, replace(plan, mirror=keyed, topics=(replace(plan.topics[0], key_partitions=2),)))
    world.target.ends = {"there": [10 + SHIFT] * 5}
    seen = list[CopyRange]()
    monkeypatch.setattr(Maps, "complete", lambda _source, one, *_: [seen.append(one), Map(10)][1])
    assert world.maps.positions() == {ORDERS: 10}
    assert [(one.target.partition, one.key_partitions) for one in seen] == [(0, 2), (1, 2)]


def test_keyed_source_may_have_more_partitions_than_the_target(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """What is left out counts as never begun, and a catch-up would never end."""
    keyed = replace(plan.mirror, partitioning="by_key", offsets="mapped")
    world = World(monkeypatch, replace(plan, mirror=keyed, topics=(replace(plan.topics[0], key_partitions=1),)))
    world.copied, world.source.ends = {0: 10, 2: 4}, {"orders": [10, 5, 7]}
    assert world.maps.positions() == {ORDERS: 10, TopicPartition("orders", 2): 4}


def test_plan_without_mapped_topics_needs_no_maps() -> None:
    """Nothing is connected."""
    with OffsetMaps(a_plan("orders"), CONFIG, CONFIG) as none:
        assert not none
    assert maps.map_source(a_plan("orders")) is None


def test_connections_are_closed(world: World) -> None:
    with world.maps as opened:
        assert opened
    assert world.source.is_closed and world.target.is_closed


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_map_is_completed_for_what_is_copied(monkeypatch: pytest.MonkeyPatch, plan: Plan, isolation: str) -> None:
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(maps, "complete", lambda *given: seen.append(given) or SimpleNamespace(whole=None))
    of = maps.map_source(replace(plan, mirror=replace(plan.mirror, isolation=isolation)))
    assert of is not None
    of.open().complete(maps.mapped_range("orders", "there", 0), None, None)  # type: ignore[arg-type]
    (given,) = seen
    assert given[3] == "flow" and given[4] == (READ_COMMITTED if isolation == "read_committed" else 0)
