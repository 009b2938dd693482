"""A target that takes nothing for an hour, data or offset maps: nothing ends for good, is lost, or comes twice."""

from __future__ import annotations

from functools import partial

import pytest

from airflow_mirror.copy.loop import maps
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.offsets import store
from airflow_mirror.copy.offsets.topic import PARTITIONS
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import TryAgain
from airflow_mirror.partition import TopicPartition
from airflow_mirror.policy import MAPS
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
        where = [TopicPartition(MAPS, p) for p in range(PARTITIONS)]
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
