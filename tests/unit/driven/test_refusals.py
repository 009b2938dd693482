"""What single requests are refused, exactly there: the copy goes on and is equal, or stops with what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAPS
from airflow_mirror.copy.loop import source_side, target_side
from airflow_mirror.copy.loop.failures import CORRUPT_AGAIN, TOO_LARGE_AGAIN
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.loop.target_side import TargetSide
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import CorruptBatch, MissingRight, PartitionStopped, SourceTruncated, TryAgain
from airflow_mirror.wire import codec
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import TlsRefused
from airflow_mirror.wire.settings import WireSettings
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, ends, errors, ranges_of
from tests.driven.script import Fault, Request, Rule
from tests.driven.validation import TopicConfig

TP = TopicPartition("t", 0)


@pytest.fixture
def writer(source: DrivenCluster, target: DrivenCluster) -> Writer:
    target.create("t")
    return Writer(source.create("t").logs[0])


def error_of(source: DrivenCluster, target: DrivenCluster, mode: str = "identical", **options: Any) -> Exception | None:
    return errors(copy(source, target, ranges_of(source, "t", mode), **options))[TP]


def is_equal(source: DrivenCluster, target: DrivenCluster) -> bool:
    return source.log(TP).rows() == target.log(TP).rows()


def progress(target: DrivenCluster) -> list[int]:
    """Return the offsets that were committed with records."""
    return [one.offset for of in target.groups.committed.values() for one in of.values()]


def is_of_copy(request: Request) -> bool:
    """Tell a batch of the copy's from a piece of an offset map."""
    return any(topic.name != MAPS for topic in request.message.topic_data)


def fetches_data(request: Request) -> bool:
    """Say whether it is one of the copy, which polls; single fetches of opening do not."""
    return bool(request.message.max_wait_ms > 0)


def test_fetch_refused_as_a_whole_is_repeated(source: DrivenCluster, target: DrivenCluster, writer: Writer) -> None:
    writer.plain(5)
    rule = source.script.on("Fetch", Fault(effect=False, code=ErrorCode.UNKNOWN_SERVER_ERROR), when=fetches_data, times=2)
    assert error_of(source, target) is None and len(rule.hits) == 2
    assert is_equal(source, target)


def test_broker_whose_certificate_is_renewed_late_ends_no_copy_that_follows(
    target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was restarted, and for a moment presents the old one: what it leads waits, as behind any restart."""
    opened, expired, refused = Connection.open, threading.Event(), list[int]()

    with DrivenCluster("source", brokers=3) as source:
        late = source.brokers[3]

        def open_(host: str, port: int, settings: WireSettings, timeout_s: float | None = None) -> Connection:
            if expired.is_set() and port == late.port:
                refused.append(port)
                raise TlsRefused(settings.role, f"{host}:{port}", "certificate has expired", "Renew it.")
            return opened(host, port, settings, timeout_s)

        monkeypatch.setattr(Connection, "open", open_)
        target.create("t", 6)
        writers = [Writer(log) for log in source.create("t", 6).logs]
        for writer in writers:
            writer.plain(5)
        with Following(source, target, ranges_of(source, "t")) as tail:
            tail.until(lambda: ends(target) == [5] * 6, "all of it is copied")
            expired.set()
            late.disconnect()
            tail.until(lambda: len(refused) >= 3, "it was refused")
            expired.clear()
            with source.changing():
                for writer in writers:
                    writer.plain(1)
            tail.until(lambda: ends(target) == [6] * 6 or any(tail.loop.partitions[p].error for p in range(6)), "over")
            assert [p.error for p in tail.loop.partitions] == [None] * 6


@pytest.fixture
def damaged(source: DrivenCluster, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> Callable[[ErrorCode], Rule]:
    """Make the source refuse a batch, with a code. Twenty batches before it come in a response of their own."""
    monkeypatch.setattr(source_side, "_PARTITION_FETCH_BYTES", 8 << 10)
    for _ in range(20):
        writer.plain(5)

    def refuse(code: ErrorCode) -> Rule:
        at = source.log(TP).end
        writer.plain(5, size=4 << 10)

        def asks(request: Request) -> bool:
            asked = (one.fetch_offset for topic in request.message.topics for one in topic.partitions)
            return fetches_data(request) and at in asked

        return source.script.on("Fetch", Fault.refused(code, {TP}), when=asks, times=None)

    return refuse


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_batch_that_the_source_cannot_read_stops_the_copy_behind_those_before_it(
    source: DrivenCluster, target: DrivenCluster, damaged: Callable[[ErrorCode], Rule], delivery: str
) -> None:
    """The fetch of it is refused while they are written, and asked again when they are there for good: not before."""
    refused = damaged(ErrorCode.CORRUPT_MESSAGE)
    mode = MAPPED if delivery == "transactional" else "identical"
    (stopped,) = copy(source, target, ranges_of(source, "t", mode), delivery=delivery, merge_below=0)
    assert isinstance(stopped.error, CorruptBatch) and stopped.error.start_offset == 100, stopped.error
    assert stopped.settled_position == 100 and target.log(TP).last_stable >= 100
    assert stopped.counters.batches == 20 and len(refused.hits) <= CORRUPT_AGAIN + 2
    if delivery == "transactional":
        assert progress(target) == [100]


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_comes_before_a_place_that_a_store_does_not_give_is_committed(
    source: DrivenCluster, target: DrivenCluster, damaged: Callable[[ErrorCode], Rule], code: ErrorCode
) -> None:
    damaged(code)
    ranges = ranges_of(source, "t", MAPPED)
    (stopped,) = copy(source, target, ranges, delivery="transactional", merge_below=0, give_up_after_s=0.05)
    assert isinstance(stopped.error, TryAgain) and code.name in str(stopped.error)
    assert progress(target) == [100]


def test_batch_that_the_source_cannot_read_behind_a_hole_stops_the_copy(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, damaged: Callable[[ErrorCode], Rule]
) -> None:
    """The hole stays open, as long as nobody knows where the next batch begins."""
    writer.in_transaction(9, 2)
    writer.end(9, commit=False)
    damaged(ErrorCode.CORRUPT_MESSAGE)
    (stopped,) = copy(source, target, ranges_of(source, "t"))
    assert isinstance(stopped.error, CorruptBatch) and stopped.error.start_offset == 103
    assert stopped.settled_position == 100


@pytest.mark.parametrize(
    ("side", "api", "said"),
    [
        ("source", "Fetch", "fetch from t-0.*lacks Read on topic 't'"),
        ("target", "Produce", "produce to t-0.*lacks Write on topic 't'"),
    ],
)
def test_right_that_is_taken_away_in_the_middle_is_named(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, side: str, api: str, said: str
) -> None:
    """Whoever replaces an ACL may need a moment; who has taken it away is told which one it was."""
    writer.plain(5)
    denied = Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, {TP})
    (source if side == "source" else target).script.on(api, denied, when=fetches_data if api == "Fetch" else None)
    with pytest.raises(TryAgain, match=f"no progress for .*{said}.*kafka-acls .*--add"):
        raise error_of(source, target, give_up_after_s=-1.0) or AssertionError("it went through")


@pytest.mark.parametrize("back", [True, False], ids=["comes-back", "stays-away"])
def test_right_that_is_away_when_a_partition_is_opened_again_may_come_back(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, back: bool
) -> None:
    """A tool that replaces a rule deletes it first. The opening behind a denied fetch must not end a tail for good."""
    writer.plain(5)
    denied = Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, {TP})
    away = replace(denied, after=lambda _: source.script.on("ListOffsets", denied, times=2 if back else None))
    source.script.on("Fetch", away, when=fetches_data, times=1)
    if back:
        assert error_of(source, target) is None and is_equal(source, target)
        return
    with pytest.raises(TryAgain, match="no progress for .*lacks Describe on topic 't'"):
        raise error_of(source, target, give_up_after_s=0.2) or AssertionError("it went through")


@pytest.mark.parametrize("merge_below", [0, 1 << 16])
def test_bit_that_flips_before_a_batch_is_sent_is_fetched_anew(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, merge_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, behind our look at the checksum: the same bytes would be refused for ever."""
    for _ in range(3):
        writer.plain(5)
    sign, flipped = TargetSide._sign, list[memoryview]()

    def damaged(*of: Any) -> memoryview:
        batch = sign(*of)
        if not flipped:
            batch[-1] ^= 1
            flipped.append(batch)
        return batch

    monkeypatch.setattr(TargetSide, "_sign", damaged)
    (copied,) = copy(source, target, ranges_of(source, "t"), merge_below=merge_below)
    assert flipped and copied.error is None and is_equal(source, target)
    assert copied.counters.merged == (3 if merge_below else 0), "and the others go on being merged"


@pytest.mark.parametrize("merge_below", [0, 1 << 16])
@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_batch_that_arrives_damaged_each_time_stops_the_copy_behind_the_one_before_it(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, delivery: str, merge_below: int
) -> None:
    """In a transaction the one before it is committed first."""
    writer.plain(5)
    writer.plain(5, size=200)

    def has_second(request: Request) -> bool:
        sent = [one for topic in request.message.topic_data for one in topic.partition_data]
        return is_of_copy(request) and any(len(one.records) > 1000 for one in sent)

    mode = MAPPED if delivery == "transactional" else "identical"
    rule = target.script.on("Produce", Fault.refused(ErrorCode.CORRUPT_MESSAGE, {TP}), when=has_second, times=None)
    (stopped,) = copy(source, target, ranges_of(source, "t", mode), delivery=delivery, merge_below=merge_below)
    assert isinstance(stopped.error, PartitionStopped), stopped.error
    assert (stopped.error.start_offset, stopped.error.end_offset) == (5, 10)
    assert "CORRUPT_MESSAGE" in str(stopped.error) and "memory of this host" in str(stopped.error)
    assert stopped.settled_position == 5
    if delivery == "transactional":
        assert progress(target) == [5]
    if not merge_below:
        assert len(rule.hits) == (5 if delivery == "transactional" else 4)


def test_batch_that_nobody_can_read_stops_the_copy_behind_the_transaction_before_it(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.plain(5)
    writer.plain(5, size=200)
    monkeypatch.setattr(target_side, "_unreadable", lambda step: "it is cut off" if step.base_offset == 5 else None)
    number = count()
    unknown = Fault.refused(ErrorCode.UNKNOWN_SERVER_ERROR, {TP})
    rule = target.script.on("Produce", unknown, when=lambda r: is_of_copy(r) and next(number) in (1, 3), times=None)
    (stopped,) = copy(source, target, ranges_of(source, "t", MAPPED), delivery="transactional", merge_below=0)
    assert isinstance(stopped.error, CorruptBatch) and stopped.error.start_offset == 5
    assert stopped.settled_position == 5 and progress(target) == [5]
    assert len(rule.hits) == 2


@pytest.mark.parametrize("number", [codec.NONE, codec.GZIP])
def test_record_above_the_limit_of_the_beginning_is_offered_to_a_topic_that_takes_more_now(
    source: DrivenCluster, target: DrivenCluster, number: int
) -> None:
    """What a tail has read of the target may be weeks old; batches of several records are split by it all the same."""
    target.create("t", config=TopicConfig(max_message_bytes=5_000_000))
    writer = Writer(source.create("t").logs[0])
    writer.plain(2)
    writer.plain(1, number, size=3_000_000)
    writer.plain(3, number, size=600_000)
    assert error_of(source, target, max_batch_bytes={"t": 1 << 20}) is None
    assert is_equal(source, target)


@pytest.mark.parametrize("raised", [True, False])
def test_record_that_is_too_large_waits_for_the_limit_of_its_source(
    source: DrivenCluster, target: DrivenCluster, raised: bool
) -> None:
    """Settings follow half a minute behind: one record of that time must not end a tail."""
    topic = target.create("t", config=TopicConfig(max_message_bytes=20_000))
    writer = Writer(source.create("t").logs[0])
    writer.plain(5)
    refused = target.script.on("Produce", Fault(), when=lambda _: ends(target) == [5], times=None)
    limits = {"t": 20_000}
    with Following(source, target, ranges_of(source, "t"), max_batch_bytes=limits, merge_below=0) as tail:
        tail.until(lambda: ends(target) == [5], "all is copied")
        with source.changing():
            writer.plain(1, size=30_000)
        if raised:
            tail.until(lambda: len(refused.hits) == 3, "it is refused a few times")
            topic.set({"max.message.bytes": "40000"})
            tail.until(lambda: is_equal(source, target), "it is copied")
            return
        tail.until(lambda: tail.state(TP) is State.STOPPED, "it stops")
    error = tail.loop.partitions[0].error
    assert isinstance(error, PartitionStopped) and (error.start_offset, error.end_offset) == (5, 6)
    assert "MESSAGE_TOO_LARGE" in str(error) and "max.message.bytes=20000 when this copy began" in str(error)
    assert len(refused.hits) == TOO_LARGE_AGAIN + 1


def test_range_with_an_end_waits_for_no_limit(source: DrivenCluster, target: DrivenCluster) -> None:
    """No settings follow beside it."""
    target.create("t", config=TopicConfig(max_message_bytes=20_000))
    Writer(source.create("t").logs[0]).plain(1, size=30_000)
    assert isinstance(error_of(source, target, max_batch_bytes={"t": 20_000}), PartitionStopped)
    assert len(target.asked("Produce")) == 1


def test_right_that_priming_lacks_stops_it_at_once(source: DrivenCluster, target: DrivenCluster, writer: Writer) -> None:
    writer.plain(6)
    source.log(TP).begin_at(4)
    target.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, {TP}))
    with pytest.raises(MissingRight, match="prime t-0.*lacks Write on topic 't'"):
        raise error_of(source, target) or AssertionError("it went through")


def test_source_that_is_truncated_while_a_transaction_commits_stops_the_copy(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    writer.plain(5)
    assert error_of(source, target, MAPPED, delivery="transactional") is None
    source.log(TP).truncate(3)
    assert isinstance(error_of(source, target, MAPPED, delivery="transactional"), SourceTruncated)
    assert target.log(TP).rows()[-1].offset == 4


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_empty_mapped_copy_begins_where_the_source_begins_now(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, delivery: str
) -> None:
    """Nothing was copied yet: what retention took meanwhile is nobody's loss."""
    assert error_of(source, target, MAPPED, delivery=delivery) is None
    writer.plain(6)
    source.log(TP).begin_at(4)
    assert error_of(source, target, MAPPED, delivery=delivery) is None
    assert [row.value for row in target.log(TP).rows()] == [row.value for row in source.log(TP).rows()]
