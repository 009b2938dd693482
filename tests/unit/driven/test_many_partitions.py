"""Many partitions in one task: what the loop does grows with what happens, not with how many of them there are.

Work is counted, not timed: how often the loop looks at a partition, and in how many of its turns everybody moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_mirror.copy.loop import maps
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ranges_of

ROUNDS = 3
TURNS = 200  # in which everybody gets what has arrived for everybody; each piece of a large answer takes one
LOOKS = 40  # at each partition: at its opening, and for each thing that happens to it


class Counted:
    """Turns of the loop, and looks at partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns = self.looks = 0
        step, next_step = CopyLoop._step, PartitionCopy.next_step

        def turn(loop: CopyLoop) -> None:
            self.turns += 1
            step(loop)

        def look(p: PartitionCopy) -> Any:
            self.looks += 1
            return next_step(p)

        monkeypatch.setattr(CopyLoop, "_step", turn)
        monkeypatch.setattr(PartitionCopy, "next_step", look)


@contextmanager
def pair() -> Iterator[tuple[DrivenCluster, DrivenCluster]]:
    """Two clusters whose brokers hold a long poll as long as real ones."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target", brokers=2) as target:
        source.long_poll_s = 1.0
        yield source, target


def filled(source: DrivenCluster, target: DrivenCluster, identical: int, mapped: int) -> list[CopyRange]:
    ranges: list[CopyRange] = []
    for topic, count, mode in (("same", identical, "identical"), ("moved", mapped, MAPPED)):
        for cluster in (source, target):
            cluster.create(topic, count)
        for log in source.topics[topic].logs:
            Writer(log).plain(2)
        ranges += ranges_of(source, topic, mode)
    return ranges


def follow_in_rounds(
    source: DrivenCluster, target: DrivenCluster, ranges: Sequence[CopyRange], counted: Counted, **options: Any
) -> None:
    """Open all, then let a record arrive in each, again and again; the copy must have moved everywhere in few turns."""
    logs = [(source.log(one.source), target.log(one.target)) for one in ranges]

    def is_equal() -> bool:
        return all(there.end == here.end for here, there in logs)

    with Following(source, target, list(ranges), **options) as copy:
        copy.until(lambda: all(p.opened for p in copy.loop.partitions) and is_equal(), "all are open")
        assert counted.looks <= LOOKS * len(ranges), "opening"
        for _ in range(ROUNDS):
            before = counted.turns, counted.looks
            with source.changing():
                for here, _ in logs:
                    Writer(here).plain(1)
            copy.until(is_equal, "a record of each is copied")
            assert counted.turns - before[0] <= TURNS
            assert counted.looks - before[1] <= LOOKS * len(ranges)
        assert [p.error for p in copy.loop.partitions] == [None] * len(ranges)


def copied_twice(identical: int, mapped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (source, target):
        ranges = filled(source, target, identical, mapped)
        for _ in range(2):  # the second copy finds records on the target, and compares them
            with monkeypatch.context() as patch:
                patch.setattr(maps, "EVERY_S", 3600.0)  # each map that is stored takes a turn, too
                follow_in_rounds(source, target, ranges, Counted(patch))
        for one in ranges:
            assert target.log(one.target).rows() == source.log(one.source).rows()


@pytest.mark.repeats
def test_hundreds_of_partitions_cost_no_more_each_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    copied_twice(120, 50, monkeypatch)


@pytest.mark.faults
def test_thousands_of_partitions_in_one_task_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,500 of them are identical, and 1,000 mapped."""
    copied_twice(2500, 1000, monkeypatch)
