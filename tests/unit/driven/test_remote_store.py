"""A source whose older records lie in a remote store: reading them takes time, which brokers 3.6 give by the fetch."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import source_side
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import TryAgain
from airflow_mirror.wire import single
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, ends, errors, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.script import Request

TP = TopicPartition("t", 0)


@pytest.fixture
def log(source: DrivenCluster, target: DrivenCluster) -> PartitionLog:
    """A log of the source, of which all that is there now needs as much time as some fetches get."""
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    for _ in range(3):
        Writer(log).plain(5)
    log.remote_below, log.remote_ms = log.end, 500
    return log


def polls(source: DrivenCluster) -> list[Request]:
    """Return the fetches of the copy; single ones of openings have no id of the topic."""
    return [r for r in source.asked("Fetch") if not r.message.topics[0].topic]


def waits(source: DrivenCluster) -> list[int]:
    return [r.message.max_wait_ms for r in polls(source)]


@pytest.mark.parametrize("mode", ["identical", MAPPED])
@pytest.mark.parametrize("remote_ms", [500, 2000])
def test_remote_records_are_copied_and_a_copy_of_them_opens_again(
    source: DrivenCluster, target: DrivenCluster, log: PartitionLog, mode: str, remote_ms: int
) -> None:
    log.remote_ms = remote_ms
    ranges = ranges_of(source, "t", mode)
    for _ in range(2):
        assert errors(copy(source, target, ranges)) == {TP: None}
        assert ends(target) == [15]
    Writer(log).plain(5)
    assert errors(copy(source, target, ranges_of(source, "t", mode))) == {TP: None}
    assert target.topics["t"].logs[0].rows() == log.rows()


def test_fetch_waits_no_longer_where_nothing_may_be_there(source: DrivenCluster, target: DrivenCluster) -> None:
    """A partition that was just opened has no backlog, perhaps: others of its broker that have one would wait for it."""
    for cluster in (source, target):
        cluster.create("t")
    log = source.topics["t"].logs[0]
    with Following(source, target, ranges_of(source, "t")) as following:
        following.until(lambda: len(polls(source)) > 3, "it follows")
        with source.changing():
            Writer(log).plain(5)
        following.until(lambda: ends(target) == [5], "it is copied")
    assert waits(source)[0] == 50 and set(waits(source)[1:]) == {500}


def test_reading_waits_at_no_logs_end(source: DrivenCluster, target: DrivenCluster) -> None:
    source.create("t")
    log = source.topics["t"].logs[0]
    Writer(log).plain(5)
    Writer(log).in_transaction(7, 5)
    with WireCluster(source.config) as cluster:
        assert len(list(single.read_batches(cluster, TP, 0, 10, isolation=READ_COMMITTED))) == 1
    assert [r.message.max_wait_ms for r in source.asked("Fetch")] == [0, 0]


def test_reading_goes_on_as_patiently_as_it_had_to(source: DrivenCluster, log: PartitionLog) -> None:
    log.remote_ms = 2000
    with WireCluster(source.config) as cluster:
        read = single.read_batches(cluster, TP, 0, 15, isolation=READ_COMMITTED, max_bytes=1)
        assert [raw.next_offset for raw, _ in read] == [5, 10, 15]
    assert [r.message.max_wait_ms for r in source.asked("Fetch")] == [0, 1000, 2000, 2000, 2000]


def test_wait_of_a_single_fetch_ends_before_its_connection_is_given_up(source: DrivenCluster, log: PartitionLog) -> None:
    with WireCluster(source.config, timeout_s=3.0) as cluster:
        single.fetch_one(cluster, TP, 0, isolation=READ_COMMITTED, max_wait_ms=4000)
    assert [r.message.max_wait_ms for r in source.asked("Fetch")] == [500]


def test_store_that_fails_for_good_is_given_up_as_what_passes(
    source: DrivenCluster, target: DrivenCluster, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By empty answers it can't be told from a damaged log, for which another replica would be needed."""
    monkeypatch.setattr(source_side, "_DRY_S", 0.05)
    log.remote_ms = 3_600_000
    (p,) = copy(source, target, ranges_of(source, "t"), give_up_after_s=0.3)
    assert p.state is State.STOPPED and isinstance(p.error, TryAgain)
    assert "no progress for" in str(p.error)
    assert "nothing arrives at offset 0 although the log ends at 15; its remote store is slow or fails" in str(p.error)
    asked = waits(source)
    opened = [n for n, wait in enumerate(asked) if wait == 50]
    # Of one opening or another: a busy machine ends one before it has asked so often.
    assert len(opened) > 2 and [50, 2000, 4000, 4000] in [asked[n : n + 4] for n in opened]


def test_store_that_comes_back_is_copied(
    source: DrivenCluster, target: DrivenCluster, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_side, "_DRY_S", 0.05)
    log.remote_ms = 3_600_000
    with Following(source, target, ranges_of(source, "t")) as following:
        (p,) = following.loop.partitions
        following.until(lambda: p.failures > 1, "it is opened again")
        with source.changing():
            log.remote_ms = 500
        following.until(lambda: ends(target) == [15], "it is copied")
        assert p.error is None
