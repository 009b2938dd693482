"""A target that takes nothing for an hour, a source that is silent for half of one: nothing ends for good, or is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.loop import maps
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.offsets import store
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import LeaseUnconfirmed, TryAgain
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, map_of, ranges_of
from tests.driven.script import Fault

TP = TopicPartition("t", 0)
HOUR_S, STEP_S = 3600, 6.0
AWAY = [
    Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS),
    Fault.done_but_refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    Fault.not_arrived(),
]
WAYS = ["refused", "refused behind the append", "not arrived"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps are not tried for ten seconds: these don't pass by the test's clock."""
    monkeypatch.setattr(store, "_PATIENCE_S", 0.02)
    monkeypatch.setattr(store, "_CLOSED_S", 0.02)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def tick(self, seconds: float) -> float:
        self._now += seconds
        return self._now


class Turns:
    """The turns of a tail, by a clock of their own."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster, ranges: list[CopyRange]) -> None:
        self._clusters, self._ranges, self.now = (source, target), ranges, 0.0

    def following(self) -> Following:
        """Return a copy that follows, by this clock."""
        return Following(*self._clusters, self._ranges, clock=lambda: self.now)

    def in_vain(self) -> PartitionResult:
        """Return how a turn ends in which nothing is taken: its partition stops. Each turn of the loop takes time."""
        copy = self.following()

        def stopped() -> bool:
            self.now += STEP_S
            return copy.state(TP) is State.STOPPED

        with copy:
            copy.until(stopped, "it gives up")
        (partition,) = copy.loop.partitions
        assert isinstance(partition.error, TryAgain), partition.error
        return PartitionResult.of(partition, 1.0)

    def to_the_end(self) -> None:
        """Copy everything that is there."""
        source, target = self._clusters
        with self.following() as copy:
            copy.until(lambda: ends(target) == ends(source), "all is copied")


def has_asked(cluster: DrivenCluster, requests: int) -> bool:
    return len(cluster.requests) > requests


def has_failed(p: PartitionCopy, generation: int) -> bool:
    return p.generation > generation


def test_quiet_partition_outlives_a_rolling_restart_that_is_quick(source: DrivenCluster, target: DrivenCluster) -> None:
    """A leader moves every 45 seconds, for five minutes, and nobody writes."""
    Writer(source.create("t").logs[0]).plain(5)
    target.create("t")
    clock = Clock()
    with Following(source, target, ranges_of(source, "t"), clock=lambda: clock.tick(0.001)) as copy:
        (p,) = copy.loop.partitions
        for _ in range(7):
            copy.until(lambda: p.state is State.READY and p.available_end == 5 == p.position, "it is level")
            for _ in range(9):  # a broker may be silent for longer than each of them
                clock.tick(5.0)
                copy.until(partial(has_asked, source, len(source.requests)), "its source is well")
            moved = source.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            copy.until(partial(has_failed, p, p.generation), "its leader moves")
            assert moved.hits
        copy.until(lambda: p.state is State.STOPPED or (p.state is State.READY and p.available_end == 5), "it is level")
        assert p.error is None


@pytest.mark.faults
@pytest.mark.parametrize("fault", AWAY, ids=WAYS)
@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
def test_data_that_is_not_taken_for_an_hour_comes_once(fault: Fault, mode: str) -> None:
    """Each turn gives the partition up after two minutes, and the next one opens it again where the target's log ends."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        turns = Turns(source, target, ranges_of(source, "t", mode))
        turns.to_the_end()
        gone = target.script.on("Produce", fault, times=None)
        begun = turns.now
        for _ in range(30):
            Writer(log).plain(2)
            assert not turns.in_vain().final, "the tail would end"
        assert len(gone.hits) >= 30 and turns.now - begun > HOUR_S
        target.script.clear()
        turns.to_the_end()
        assert [row.value for row in target.log(TP).rows()] == [row.value for row in log.rows()]


@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
def test_source_that_is_silent_for_half_an_hour_is_read_on_where_it_was(mode: str) -> None:
    """No request arrives, and the turns find nothing: each partition is given up, and opened again by the next turn."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        turns = Turns(source, target, ranges_of(source, "t", mode))
        turns.to_the_end()
        begun = turns.now
        for api in ("Fetch", "ListOffsets"):
            source.script.on(api, Fault.not_arrived(), times=None)
        with source.changing():
            Writer(log).plain(7)
        while turns.now - begun < HOUR_S / 2:
            assert not turns.in_vain().final, "the tail would end"
        source.script.clear()
        turns.to_the_end()
        assert [row.value for row in target.log(TP).rows()] == [row.value for row in log.rows()]


@pytest.mark.parametrize("fault", [AWAY[0], AWAY[2]], ids=[WAYS[0], WAYS[2]])
def test_copy_that_never_gives_up_waits_for_the_hour_and_ends_equal(fault: Fault) -> None:
    """The bound of a bulk copy is an option: the same hour, in one go."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        gone, clock = target.script.on("Produce", fault, times=None), Clock()
        copy = Following(source, target, ranges_of(source, "t"), clock=clock, give_up_after_s=float("inf"))
        with copy:
            copy.until(lambda: clock.tick(STEP_S) > HOUR_S, "an hour passes")
            assert copy.state(TP) is not State.STOPPED and len(gone.hits) > 3
            target.script.clear()

            def level() -> bool:
                clock.tick(0.25)  # its pause before the next attempt passes by this clock
                return ends(target) == ends(source)

            copy.until(level, "all is copied")
        assert [row.value for row in target.log(TP).rows()] == [row.value for row in log.rows()]


def test_tail_is_not_ended_by_an_hour_without_a_word_about_its_lease() -> None:
    """The coordinator is away, as with a whole target. Each turn ends after ten minutes of it, and no longer."""
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        Writer(source.create("t").logs[0]).plain(5)
        target.create("t")
        clock, ranges = Clock(), [replace(one, end_offset=None) for one in ranges_of(source, "t")]

        def silent() -> None:
            clock.tick(STEP_S)
            raise LeaseUnconfirmed("id", 1, 9.0, None)

        for turn in range(1, 7):
            loop = CopyLoop(ranges, Clusters.of(source.config, target.config), CopyOptions(mirror="m"), silent, clock)
            with pytest.raises(LeaseUnconfirmed):
                loop.run(lambda: False)
            (p,) = loop.partitions
            p.error = LeaseUnconfirmed("id", 1, 9.0, None)  # as the task does, `copy.task`
            assert not PartitionResult.of(p, 1.0).final, "the tail would end"
            assert clock() > turn * 600
        assert ends(target) == [0], "and nothing is written meanwhile"
        with Following(source, target, ranges, clock=clock) as copy:
            copy.until(lambda: ends(target) == ends(source), "all is copied")


def test_data_go_on_while_no_offset_map_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be stored is derived, and stored, at the next start.

    The clock stands still, and maps are tried at each turn: to requests in flight a jump would be a broker's silence.
    """
    monkeypatch.setattr(maps, "EVERY_S", -1.0)
    with DrivenCluster("source") as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        turns = Turns(source, target, ranges_of(source, "t", MAPPED))
        turns.to_the_end()
        where = [TopicPartition(MAPS, p) for p in range(MAP_PARTITIONS)]
        refused = target.script.on("Produce", Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS, where), times=None)

        def is_more(tried: int) -> bool:
            return len(refused.hits) > tried

        copy = turns.following()
        with copy:
            for _ in range(10):
                with source.changing():
                    Writer(log).plain(2)
                tried = len(refused.hits)
                copy.until(lambda: ends(target) == [log.end], "the data arrive")
                copy.until(partial(is_more, tried), "their map is tried")
            stored = map_of(target, copy.ranges[0])
            assert stored is None or stored.source_end < log.end
        target.script.clear()
        known = log.end
        Writer(log).plain(1)
        turns.to_the_end()
        found = map_of(target, copy.ranges[0])
        assert found is not None and found.source_end >= known
        assert [row.value for row in target.log(TP).rows()] == [row.value for row in log.rows()]
