"""What a source that returns had beyond the cut, and where nothing can be said."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover import after as module
from airflow_mirror.cutover.failover.after import after, to_dict
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.model import TopicInfo
from tests.unit.failover.world import A0, A1, B0, World


class Source:
    """``logs``: start and end by partition; ``ids`` of its topics."""

    def __init__(self) -> None:
        self.logs = {A0: (0, 50), A1: (0, 45), B0: (0, 30)}
        self.ids = {"a": "1", "b": "2"}
        self.cluster = "s"

    @property
    def wire(self) -> Source:
        return self

    def cluster_id(self) -> str:
        return self.cluster

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        counts = {name: sum(tp.topic == name for tp in self.logs) for name in names}
        return {name: TopicInfo(name, self.ids[name], counts[name], 1) for name in names if name in self.ids}

    def refresh_present(self, names: Collection[str]) -> set[str]:
        return {name for name in names if name not in self.ids}

    def log_starts(self, tps: Any) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in tps}

    def log_ends(self, tps: Any) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in tps}

    last_stable = log_ends


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Cut at 50, 40 and 30."""
    one = World(monkeypatch)
    monkeypatch.setattr(module, "count_data", lambda _wire, _tp, start, end, *, committed: end - start - 1)  # a marker
    return one


def lines(world: World, source: Source) -> list[str]:
    return [str(one) for one in after(source, world.on(), "m")]  # type: ignore[arg-type]


def test_offsets_beyond_the_cut_are_listed_by_partition(world: World) -> None:
    world.fail_over()
    source = Source()
    assert lines(world, source) == ["a-1: 5 offsets, 4 records, from 40 up to 45"]
    source.logs |= {A0: (60, 70), B0: (0, 20), TopicPartition("b", 1): (0, 3)}
    assert lines(world, source) == [
        "a-0: 10 offsets, 9 records, from 60 up to 70; 10 more were deleted there",
        "a-1: 5 offsets, 4 records, from 40 up to 45",
        "b-0: it ends at 20, below the cut at 30: the source has lost records",
        "b-1: 3 offsets, 2 records, from 0 up to 3",
    ]
    rows = after(source, world.on(), "m")  # type: ignore[arg-type]
    found = to_dict("m", rows)
    assert found["offsets"] == 18 and found["partitions"][0]["cut"] == 50


def test_topic_that_is_smaller_now_is_asked_for_what_it_has(world: World) -> None:
    """An application has created it again on empty disks, with the brokers' default of partitions."""
    world.fail_over()
    source = Source()
    source.ids["a"], source.logs = "another", {A0: (0, 3), B0: (0, 30)}
    assert lines(world, source) == [
        "a-0: the source's topic was created again; it has offsets 0 to 3, 2 records",
        "a-1: the source's topic was created again",
    ]


def test_more_than_can_be_read_is_told_in_offsets_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.fail_over()
    monkeypatch.setattr(module, "_READ_AT_MOST", 4)
    assert lines(world, Source()) == ["a-1: 5 offsets, from 40 up to 45"]


def test_other_topics_of_the_same_name_are_named(world: World) -> None:
    world.fail_over()
    source = Source()
    source.ids = {"a": "another"}
    assert lines(world, source) == [
        "a-0: the source's topic was created again; it has offsets 0 to 50, 49 records",
        "a-1: the source's topic was created again; it has offsets 0 to 45, 44 records",
        "b-0: the source has no such topic any more",
    ]  # fmt: skip


def test_a_partition_whose_copy_nobody_knows_is_not_left_out(world: World) -> None:
    del world.copied[B0]
    world.fail_over()
    assert lines(world, Source())[-1] == "b-0: up to where it was copied is not known; it has offsets 0 to 30"


def test_without_a_failover_or_its_source_nothing_is_listed(world: World) -> None:
    said = "mirror 'm' was not failed over, or its way back is armed since, or it was started over. "
    with pytest.raises(InputError, match=f"{said}'airflow-mirror failover' without --yes says what would be lost."):
        lines(world, Source())
    world.fail_over()
    source = Source()
    source.cluster = "x"
    with pytest.raises(InputError, match="the source is cluster x: mirror 'm' copied from s"):
        lines(world, source)
