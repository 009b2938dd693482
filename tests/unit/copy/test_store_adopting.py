"""The map of what another tool copied: it counts as a whole, and a copy goes on from it, whatever dies when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import LeaseLost
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.copying import create_maps

ONE = CopyRange(source_topic="here", target_topic="orders", partition=3, start_offset=0, mode=MAPPED)


class World:
    """A target with the topic ``orders``; each store is another process."""

    def __init__(self, wire: WireCluster) -> None:
        self.wire = wire

    def store(self) -> MapStore:
        return MapStore("m", [ONE.map_key])

    def load(self) -> OffsetMap | None:
        return self.store().load(self.wire, ONE)


@pytest.fixture
def world() -> Iterator[World]:
    with DrivenCluster("target") as target, WireCluster(target.config) as wire:
        target.create("orders", 4)
        create_maps(target)
        yield World(wire)


def adopted(runs: int = 20_000) -> OffsetMap:
    """A map of several pieces: more runs than one holds."""
    whole = OffsetMap(5, 40)
    for i in range(runs):
        whole.add(5 + 3 * i, 40 + 2 * i, 1)
    whole.advance(whole.source_end + 1, whole.target_end + 7)
    return whole


def nothing() -> None:
    pass


def test_what_was_adopted_loads_with_the_end_of_the_others_records(world: World) -> None:
    whole = adopted()
    world.store().adopt(world.wire, ONE, whole, nothing)
    found = world.load()
    assert found is not None and found.adopted_until == whole.target_log_end
    found.adopted_until = 0
    assert found == whole


def test_a_copy_goes_on_where_it_ended(world: World) -> None:
    whole = adopted(3)
    world.store().adopt(world.wire, ONE, whole, nothing)
    store = world.store()
    end = store.resume(world.wire, ONE)
    assert end is not None
    assert (end.source_end, end.target_log_end) == (whole.source_end, whole.target_log_end)
    more = OffsetMap(whole.source_end, whole.target_end)
    more.add(whole.source_end, whole.target_log_end, 4)
    store.append(world.wire, ONE, more, nothing)
    found = world.load()
    assert found is not None and found.source_end == more.source_end
    assert found.adopted_until == whole.target_log_end, "what comes later is the mirror's own"
    assert found.passes_over(whole.target_log_end - 1) and not found.passes_over(40)
    assert not found.passes_over(whole.target_log_end)


@pytest.mark.repeats
def test_killed_before_any_write_the_old_map_counts_or_the_whole_new_one(world: World) -> None:
    old, new = adopted(2), adopted(20_001)
    world.store().adopt(world.wire, ONE, old, nothing)
    for left in range(100):
        steps = iter(range(left))

        def check(steps: Iterator[int] = steps) -> None:
            if next(steps, None) is None:
                raise LeaseLost("lease", 1, "killed")

        try:
            world.store().adopt(world.wire, ONE, new, check)
        except LeaseLost:
            found = world.load()
            assert found is not None and found.source_end in (old.source_end, new.source_end)
            assert len(found) in (2, 20_001)
            continue
        break
    else:
        raise AssertionError("it never came to its end")
    found = world.load()
    assert found is not None and len(found) == 20_001


def test_a_later_adoption_of_another_topic_of_that_name_counts(world: World) -> None:
    world.store().adopt(world.wire, ONE, adopted(2), nothing)
    world.store().adopt(world.wire, ONE, adopted(5), nothing)
    found = world.load()
    assert found is not None and len(found) == 5
