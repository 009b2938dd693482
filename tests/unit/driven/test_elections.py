"""The source gets another leader between two fetches: one that has everything, and one that has not (KIP-320)."""

from __future__ import annotations

import time
from itertools import count

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.errors import ForeignData, SourceTruncated
from tests.driven import copying
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, errors, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.script import Fault, Request

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("new_leader", [1, 2])
@pytest.mark.parametrize("longer", [True, False])
def test_an_unclean_election_between_two_fetches_stops_with_the_offsets(new_leader: int, longer: bool) -> None:
    """The new leader has lost [6, 10); by the next fetch its log may be longer than our position again."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(6)
        Writer(log).plain(4)

        def elect(_: Request) -> None:
            with source.changing():
                log.truncate(6)
                source.move_leader(TP, new_leader)
                Writer(log).plain(9 if longer else 1)

        with Following(source, target, ranges_of(source, "t")) as copy:
            copy.until(lambda: ends(target) == [10], "all is copied")
            source.script.on("Fetch", Fault(before=elect))
            copy.until(lambda: copy.state(TP) is State.STOPPED, "it stops")
        error = copy.loop.partitions[0].error
        assert isinstance(error, SourceTruncated)
        assert (error.start_offset, error.end_offset) == (6, 10), error
        assert "unclean leader election" in str(error)
        assert ends(target) == [10]


@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
def test_an_unclean_election_that_lost_what_a_range_still_asks_for_stops_it(mode: str) -> None:
    """Before any of it was fetched: nothing that was copied is gone, and what follows would be another story."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(6)
        Writer(log).plain(4)
        ranges = ranges_of(source, "t", mode)

        def elect(_: Request) -> None:
            with source.changing():
                log.truncate(6)
                source.move_leader(TP, 2)
                Writer(log).plain(1)

        source.script.on("Fetch", Fault(before=elect), when=lambda request: bool(request.message.max_wait_ms > 0))
        turns = count()
        error = errors(copying.copy(source, target, ranges, should_stop=lambda: next(turns) > 200))[TP]
        assert isinstance(error, SourceTruncated) and (error.start_offset, error.end_offset) == (7, 10), error
        assert ends(target) == [0]


def test_a_clean_election_goes_on_where_it_was() -> None:
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(6)
        with Following(source, target, ranges_of(source, "t")) as copy:
            for number in range(1, 6):
                copy.until(lambda: ends(target) == [log.end], "all is copied")
                source.move_leader(TP, 1 + number % 2)
                with source.changing():
                    Writer(log).plain(3)
            copy.until(lambda: ends(target) == [21], "all is copied")
        assert target.topics["t"].logs[0].rows() == log.rows()


def compacted(source: DrivenCluster, target: DrivenCluster) -> PartitionLog:
    """Batches at 0 and at 5: the cleaner took what lay between, and with it all of the leader's term before the last."""
    log = source.create("t").logs[0]
    target.create("t")
    Writer(log).plain(1)
    source.move_leader(TP, 2)
    Writer(log).skip(4)
    source.move_leader(TP, 1)
    Writer(log).plain(1)
    return log


@pytest.mark.parametrize("lost", [1, 2])
def test_hole_in_which_a_term_ended_is_no_truncation(lost: int) -> None:
    """The hole is filled when a connection is lost, once or twice: the position lies where the old term had ended."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        log = compacted(source, target)
        for nth in range(2, 2 + lost):
            target.script.on("Produce", Fault.not_arrived(), nth=nth)
        copies = copying.copy(source, target, ranges_of(source, "t"))
        assert errors(copies) == {TP: None}
        assert target.topics["t"].logs[0].rows() == log.rows()


@pytest.mark.parametrize("longer", [True, False])
def test_records_that_an_unclean_leader_writes_into_a_filled_hole_are_found(longer: bool) -> None:
    """Nothing that was copied is lost: what stands at their offsets on the target are markers."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        log = compacted(source, target)

        def elect(_: Request) -> None:
            with source.changing():
                log.truncate(1)
                source.move_leader(TP, 2)
                Writer(log).plain(9 if longer else 2)

        target.script.on("Produce", Fault(before=elect, effect=False, answer_bytes=0), nth=2)
        (stopped,) = copying.copy(source, target, ranges_of(source, "t"))
        assert isinstance(stopped.error, ForeignData if longer else SourceTruncated), stopped.error
        assert ends(target) == [5]


FAST = 20  # the looks at topics and leaders, every five seconds of a copy's clock


def following(source: DrivenCluster, target: DrivenCluster, mode: str = IDENTICAL) -> Following:
    """Return a copy whose clock runs fast, and which gives nothing up."""
    clock = lambda: time.monotonic() * FAST  # noqa: E731
    return Following(source, target, ranges_of(source, "t", mode), clock=clock, give_up_after_s=float("inf"))


@pytest.mark.parametrize("version", ["4.4.0", "2.8.2"])
def test_leader_that_is_cut_off_from_its_cluster_is_left_though_it_answers(version: str) -> None:
    """It takes itself for the leader, and has nothing new: to a copy it looks as if nobody wrote."""
    with DrivenCluster("source", brokers=2, version=version) as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        with following(source, target) as copy:
            (p,) = copy.loop.partitions
            copy.until(lambda: ends(target) == [5] and not p.is_behind, "all is copied")
            source.cut_off(1)
            source.move_leader(TP, 2)
            with source.changing():
                Writer(log).plain(5)
            copy.until(lambda: ends(target) == [10], "the new leader is asked")
        assert target.topics["t"].logs[0].rows() == log.rows()


def test_partition_that_moves_to_a_newer_leader_has_not_failed() -> None:
    """Elections may come often: a partition without news would be given up for them."""
    with DrivenCluster("source", brokers=3) as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        with following(source, target) as copy:
            (p,) = copy.loop.partitions
            copy.until(lambda: ends(target) == [5] and not p.is_behind, "all is copied")
            source.cut_off(1)
            source.script.on("Metadata", Fault.not_arrived(), broker=1, times=None)
            source.move_leader(TP, 2)
            copy.until(lambda: p.is_open and p.source_leader.epoch == 1, "the new leader is asked")
            opened = p.generation
            looks = len(source.asked("Metadata")) + 5
            copy.until(lambda: len(source.asked("Metadata")) > looks, "it is looked after again")
            assert (p.failures, p.generation) == (0, opened)


@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
def test_leader_that_was_replaced_is_not_taken_back_on_its_own_word(mode: str) -> None:
    """Whoever asks it alone, behind a lost connection, is told that it leads, and that its log ends where it did."""
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        log = source.create("t").logs[0]
        target.create("t")
        Writer(log).plain(5)
        with following(source, target, mode) as copy:
            (p,) = copy.loop.partitions
            copy.until(lambda: ends(target) == [5] and not p.is_behind, "all is copied")
            source.cut_off(1)
            source.move_leader(TP, 2)
            with source.changing():
                Writer(log).plain(5)
            copy.until(lambda: ends(target) == [10] and not p.is_behind, "the new leader's records are copied")
            source.script.on("Metadata", Fault.not_arrived(), broker=2, times=None)

            def asks_the_old_one() -> bool:
                if not p.failures:  # an idle connection is dialled again, and nothing else is asked
                    source.brokers[2].disconnect()
                return p.failures > 3 or p.state is State.STOPPED

            copy.until(asks_the_old_one, "it asks the old one")
            assert p.error is None and p.source_leader.node_id == 2, p.error
            source.script.clear()
            with source.changing():
                Writer(log).plain(5)
            copy.until(lambda: ends(target) == [15], "it goes on")
        assert target.topics["t"].logs[0].rows() == log.rows()
