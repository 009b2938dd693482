"""The source gets another leader between two fetches: one that has everything, and one that has not (KIP-320)."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.states import State
from airflow_mirror.errors import SourceTruncated
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, ranges_of
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
