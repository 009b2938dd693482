"""Delivery in transactions: what is committed with the records is where the next copy goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.offsets import derive
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import ForeignData, PartitionStopped
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, lose
from tests.driven.copying import Following, copy, create_maps, errors, lose_pieces, map_of, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.script import Fault, Request

TP = TopicPartition("t", 0)


def deliver(source: DrivenCluster, target: DrivenCluster) -> None:
    ranges = ranges_of(source, "t", MAPPED)
    copies = copy(source, target, ranges, delivery="transactional", transaction_bytes=300)
    assert errors(copies) == {TP: None}


def bodies(cluster: DrivenCluster) -> list[tuple[object, ...]]:
    return [row[1:] for row in cluster.topics["t"].logs[0].rows()]


def clock_of(target: DrivenCluster) -> Callable[[], float]:
    """Give a copy the time of its target, which moves by itself as well: pauses end."""
    return lambda: target.clock.now_ms / 1000 + time.monotonic()


def brings_records(request: Request) -> bool:
    """Tell a batch of the copy's from a piece of an offset map."""
    return any(topic.name == "t" for topic in request.message.topic_data)


@pytest.fixture
def writer(source: DrivenCluster, target: DrivenCluster) -> Writer:
    target.create("t")
    return Writer(source.create("t").logs[0])


def test_next_source_offset_is_committed_with_the_records(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """A hole at the end is below it, too."""
    writer.plain(5)
    writer.in_transaction(9, 2)
    writer.end(9, commit=False)
    deliver(source, target)
    (committed,) = target.groups.committed.values()
    (position,) = committed.values()
    assert position.offset == 8
    assert json.loads(position.metadata)["producer_id"] in target.topics["t"].logs[0].producers.known


def test_what_the_target_lost_of_a_running_copy_stops_it(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """Its progress is in a log of its own, which has lost nothing: what it passes over would never be copied."""
    for _ in range(2):
        writer.plain(5)
    ranges = ranges_of(source, "t", MAPPED)
    with Following(source, target, ranges, delivery="transactional", transaction_bytes=300) as tail:
        (p,) = tail.loop.partitions
        tail.until(lambda: p.committed == 10, "it is committed, and the map in hand")
        with target.changing():
            target.log(TP).truncate(0)
            Writer(target.log(TP)).plain(1, size=21)
        source.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with source.changing():
            writer.plain(1)
        tail.until(lambda: p.committed == 11 or p.error is not None, "it stops, or goes on")
    assert isinstance(p.error, PartitionStopped) and "The target lost records" in str(p.error)


def test_what_the_target_lost_of_a_map_that_was_never_stored_is_not_passed_over(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """The copier was killed behind its commit. The next one went on at the progress, without what was gone, and ended."""
    for _ in range(2):
        writer.plain(5)
    deliver(source, target)
    lose_pieces(target)
    with target.changing():
        target.log(TP).truncate(5)
        Writer(target.log(TP)).plain(1, size=21)
    (p,) = copy(source, target, ranges_of(source, "t", MAPPED), delivery="transactional", transaction_bytes=300)
    assert isinstance(p.error, PartitionStopped) and "the target lost records that were committed" in str(p.error)


def test_a_copy_goes_on_at_the_committed_offset(source: DrivenCluster, target: DrivenCluster, writer: Writer) -> None:
    for _ in range(3):
        writer.plain(5)
        deliver(source, target)
        writer.skip(2)
    assert bodies(target) == bodies(source)


def test_backlog_that_is_written_slowly_is_committed_before_the_coordinator_aborts_it(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """A second for each batch, as with a rate or a quota: 32 MiB are never there before the minute is over."""
    for _ in range(100):
        writer.plain(1)
    batches = target.script.on("Produce", Fault(before=lambda _: target.advance(1)), times=None, when=brings_records)
    copies = copy(
        source, target, ranges_of(source, "t", MAPPED), delivery="transactional", merge_below=0,
        clock=clock_of(target), should_stop=lambda: len(batches.hits) > 200,
    )  # fmt: skip
    assert copies[0].done and copies[0].counters.batches == 100
    assert bodies(target) == bodies(source)
    assert len(target.asked("EndTxn")) < 12, "and not one by one"


def test_transaction_whose_partition_waits_for_its_turn_is_committed_meanwhile(
    source: DrivenCluster, target: DrivenCluster
) -> None:
    """Six partitions of one leader, which throttles each request for 40 s: the coordinator aborts none of theirs."""
    for cluster in (source, target):
        cluster.create("t", 6)
    for log in source.topics["t"].logs:
        for _ in range(2):
            Writer(log).plain(1)
    batches = target.script.on("Produce", Fault(throttle_ms=40_000), times=None, when=brings_records)
    create_maps(target)
    options = CopyOptions(mirror="m", delivery="transactional", merge_below=0)
    loop = CopyLoop(
        ranges_of(source, "t", MAPPED), Clusters.of(source.config, target.config), options, lambda: None,
        clock=clock_of(target),
    )  # fmt: skip

    def turn() -> bool:
        at_rest = not loop._steps.busy and not loop._out.busy
        if at_rest and any(loop._out.has(p) for p in loop.partitions):
            target.advance(5)
        return len(batches.hits) > 12

    assert all(p.done for p in loop.run(turn))
    assert len(batches.hits) == 12, "each batch once"
    assert [len(log.rows()) for log in target.topics["t"].logs] == [2] * 6


def test_records_under_a_forgotten_transactional_id_are_still_ours(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """The map is derived anew, and what was committed says who wrote what stands on the target."""
    writer.plain(5)
    deliver(source, target)
    lose_pieces(target)
    with target.lock:
        target.transactions.known.clear()
    writer.plain(5)
    deliver(source, target)
    assert bodies(target) == bodies(source)
    whole = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert whole is not None and (whole.source_start, whole.source_end) == (0, 10)
    assert sum(whole.columns[2]) == 10


def forget(target: DrivenCluster) -> None:
    """A week passes: the coordinators forget the transactional ids, and the groups' offsets."""
    with target.lock:
        target.transactions.known.clear()
        target.groups.committed.clear()


def unclean(source: DrivenCluster, target: DrivenCluster) -> None:
    """Deliver, and end without having stored what was mapped, as a killed copier does."""
    denied = Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    target.script.on("Produce", denied, when=lambda request: not brings_records(request), times=None)
    deliver(source, target)
    target.script.clear()


@pytest.mark.parametrize("mapped", [0, 5])
def test_what_a_killed_copier_had_committed_is_ours_a_week_later(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, mapped: int
) -> None:
    """No map and nobody's memory tells that, and a stranger writes in transactions, too."""
    deliver(source, target)  # which begins a map
    if mapped:
        writer.plain(mapped)
        deliver(source, target)
    writer.plain(3)
    unclean(source, target)
    stranger = Writer(target.topics["t"].logs[0])
    stranger.in_transaction(9, 2)
    stranger.end(9, commit=True)
    forget(target)
    writer.plain(4)
    deliver(source, target)
    whole = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert whole is not None
    rows = {row.offset: row[1:] for row in target.topics["t"].logs[0].rows()}
    assert [rows[s.target + i] for s in whole.segments() for i in range(s.count)] == bodies(source)
    assert len(rows) == len(bodies(source)) + 2, "none is there twice"


def test_where_the_source_lost_some_of_what_a_killed_copier_had_committed_nothing_is_copied_once_more(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    for end in (deliver, unclean):
        writer.plain(5)
        end(source, target)
    forget(target)
    lose(source.topics["t"].logs[0], 5)
    error = errors(copy(source, target, ranges_of(source, "t", MAPPED), delivery="transactional"))[TP]
    assert isinstance(error, ForeignData) and "The source lost records" in str(error)
    assert len(bodies(target)) == 10


@pytest.mark.parametrize("loses", [lambda log: lose(log, 0), lambda log: log.begin_at(2)], ids=["cleaner", "retention"])
@pytest.mark.parametrize("more", [0, 4])
def test_where_the_source_lost_the_first_of_what_a_killed_copier_had_committed_nothing_is_copied_once_more(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, loses: Callable[[PartitionLog], None], more: int
) -> None:
    """The map has its origin alone: the source's next record is not the first of what was committed."""
    deliver(source, target)
    writer.plain(5)
    unclean(source, target)
    forget(target)
    loses(source.topics["t"].logs[0])
    if more:
        writer.plain(more)
    error = errors(copy(source, target, ranges_of(source, "t", MAPPED), delivery="transactional"))[TP]
    assert isinstance(error, ForeignData) and "elete the target topic" in str(error)
    assert len(bodies(target)) == 5


def test_strangers_transactions_behind_an_origin_do_not_stop_a_source_that_begins_with_a_hole(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    deliver(source, target)
    stranger = Writer(target.topics["t"].logs[0])
    stranger.in_transaction(9, 2)
    stranger.end(9, commit=True)
    writer.skip(3)
    writer.plain(4)
    deliver(source, target)
    assert bodies(target)[2:] == bodies(source)


def test_first_copy_reads_nothing_of_its_source_to_know_earlier_writers(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    stranger = Writer(target.topics["t"].logs[0])
    stranger.in_transaction(9, 2)
    stranger.end(9, commit=True)
    writer.plain(5)
    looked = source.script.on("Fetch", Fault(), when=lambda request: not request.message.max_wait_ms, times=None)
    deliver(source, target)
    assert bodies(target)[2:] == bodies(source) and not looked.hits


def test_what_an_open_transaction_hides_is_not_stable(source: DrivenCluster, writer: Writer) -> None:
    writer.plain(5)
    writer.in_transaction(9, 2)
    with WireCluster(source.config) as cluster:
        cluster.refresh(["t"])
        assert (cluster.last_stable([TP]), cluster.high_watermarks([TP])) == ({TP: 5}, {TP: 7})


def test_strangers_open_transaction_does_not_keep_a_copy_from_its_records(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """Several mirrors may write to one topic: one of them has a transaction open nearly always."""
    stranger = Writer(target.topics["t"].logs[0])
    writer.plain(5)
    deliver(source, target)
    stranger.in_transaction(9, 2)
    for _ in range(2):
        writer.plain(5)
        deliver(source, target)
        lose_pieces(target)
    deliver(source, target)
    whole = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert whole is not None and (whole.source_end, sum(whole.columns[2])) == (15, 15)
    stranger.end(9, commit=False)
    assert bodies(target) == bodies(source)


@pytest.mark.parametrize("opened_at", [0, 3, 4, 5, 7, 11, 12])
def test_what_we_committed_is_known_wherever_a_stranger_hides_it(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, opened_at: int
) -> None:
    """Producer 7 commits 3 records, aborts 2, commits 1 twice; a stranger's open transaction begins somewhere."""
    log = target.topics["t"].logs[0]
    ours, stranger, offsets = Writer(log), Writer(log), []
    steps: list[tuple[int, bool]] = [(2, False), (1, True), (2, False), (0, False), (1, True), (1, True)]
    for count, ends in steps:
        for _ in range(count):
            if log.end >= opened_at and 9 not in {h for h in log.producers.known}:
                stranger.in_transaction(9, 1)
            offsets.append(log.end)
            ours.in_transaction(7, 1)
        if ends or count == 0:
            ours.end(7, commit=ends)
    if 9 not in log.producers.known:
        stranger.in_transaction(9, 1)
    committed = [offset for n, offset in enumerate(offsets) if n not in (3, 4)]
    with WireCluster(target.config) as cluster:
        cluster.refresh(["t"])
        found = derive.target_runs(cluster, TP, 0, log.end, {7}, committed_only=True)
        assert [offset for first, count in found for offset in range(first, first + count)] == committed
