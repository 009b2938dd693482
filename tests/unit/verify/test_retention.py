"""Logs that lose their beginning to retention while they are compared, and target logs that must not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, TryAgain
from airflow_mirror.verify import partition
from airflow_mirror.verify.bounds import bounds_difference, unseen
from airflow_mirror.verify.compare import Floor, Tally, compare
from airflow_mirror.verify.result import LogBounds, PartitionPair
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.records import Record
from tests.unit.verify.test_compare import BOTH_LEVELS, LOG, MAP, changed, copied, log

TP = TopicPartition("t", 0)


def losing(batches: list[RawBatch], after: int, floor: Floor, start: int) -> Iterator[RawBatch]:
    """The first ``after`` batches, then what is left once retention has moved the log's start."""
    yield from batches[:after]
    floor.rise(start)
    yield from (b for b in batches[after:] if b.next_offset > start)


def compared(
    source: list[Record],
    target: list[Record],
    by_batch: bool,
    *,
    held: bool = False,
    source_start: int | None = None,
    target_start: int | None = None,
) -> Tally:
    """Compare one record a batch; each side may lose its beginning after two batches."""
    floors = Floor(0), Floor(0)
    sides = [log(records, *[1] * len(records)) for records in (source, target)]
    reading = [
        losing(side, 2, floor, start) if start is not None else iter(side)
        for side, floor, start in zip(sides, floors, (source_start, target_start), strict=True)
    ]
    return compare(*reading, (0, 100), by_batch=by_batch, floors=floors, held=held)


@BOTH_LEVELS
def test_what_source_retention_takes_meanwhile_is_counted_not_extra(by_batch: bool) -> None:
    tally = compared(LOG, LOG, by_batch, source_start=11)
    assert (tally.records, tally.expired, tally.difference) == (4, 3, None)


@BOTH_LEVELS
def test_a_source_that_loses_everything_meanwhile_is_no_difference(by_batch: bool) -> None:
    tally = compared(LOG, LOG, by_batch, source_start=100)
    assert (tally.records, tally.expired, tally.difference) == (2, 5, None)


@BOTH_LEVELS
def test_records_behind_the_new_start_are_still_compared(by_batch: bool) -> None:
    tally = compared(LOG, changed(12, value=b"other"), by_batch, source_start=11)
    assert tally.difference is not None and (tally.difference.offset, tally.difference.kind) == (12, "value")
    tally = compared([r for r in LOG if r.offset != 12], LOG, by_batch, source_start=11)
    assert tally.difference is not None and (tally.difference.offset, tally.difference.kind) == (12, "extra")


@BOTH_LEVELS
def test_expired_target_records_differ_only_if_it_is_held(by_batch: bool) -> None:
    tally = compared(LOG, LOG, by_batch, target_start=11)
    assert (tally.records, tally.expired, tally.difference) == (4, 3, None)
    tally = compared(LOG, LOG, by_batch, target_start=11, held=True)
    assert tally.difference is not None and (tally.difference.offset, tally.difference.kind) == (5, "missing")


@BOTH_LEVELS
def test_log_start_within_a_batch_cuts_both_sides(by_batch: bool) -> None:
    floors = Floor(0), Floor(0)
    source = losing(log(LOG, 2, 5), 1, floors[0], 10)  # the batch of 5-12 is still there, its first records are not
    tally = compare(source, log(LOG, 2, 5), (0, 100), by_batch=by_batch, floors=floors)
    assert (tally.records, tally.expired, tally.difference) == (5, 2, None)


@BOTH_LEVELS
def test_mapped_source_retention_is_told_in_source_offsets(by_batch: bool) -> None:
    floors = Floor(0), Floor(40)
    source = losing(log(LOG, *[1] * 7), 2, floors[0], 11)
    tally = compare(source, log(copied(LOG), *[1] * 7), (0, 20), by_batch=by_batch, through=MAP, floors=floors)
    assert (tally.records, tally.expired, tally.difference) == (4, 3, None)


@pytest.mark.parametrize(
    ("pair", "source_start", "target_start", "offset"),
    [
        (PartitionPair(source_topic="t", target_topic="t", partition=0, held=True), 0, 5, 0),
        (
            PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=3, end_offset=9, held=True),
            0,
            5,
            3,
        ),
        (
            PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=5, end_offset=9, held=True),
            0,
            5,
            None,
        ),
        (PartitionPair(source_topic="t", target_topic="t", partition=0, held=True), 5, 5, None),
        (PartitionPair(source_topic="t", target_topic="t", partition=0, held=True), 7, 5, None),
        (
            PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=5, held=True),
            5,
            9,
            None,
        ),  # the source has nothing of it any more
        (
            PartitionPair(source_topic="t", target_topic="t", partition=0, begin_offset=0, start_offset=9, end_offset=9),
            0,
            9,
            None,
        ),  # its retention is on, and nothing is left to compare
        (PartitionPair(source_topic="t", target_topic="t", partition=0), 0, 5, None),
        (PartitionPair(source_topic="t", target_topic="t", partition=0), 0, 9, 0),
    ],
)
def test_a_risen_start_of_a_held_target_is_a_difference(
    pair: PartitionPair, source_start: int, target_start: int, offset: int | None
) -> None:
    found = bounds_difference(pair, LogBounds(source_start, 9, 9), LogBounds(target_start, 9, 9))
    assert (found.offset if found else None) == offset
    assert found is None or found.kind == "missing"


@pytest.mark.parametrize(
    ("asked", "source_start", "target_start", "offsets"),
    [((0, 9), 0, 5, 5), ((3, 9), 0, 5, 2), ((0, 9), 4, 5, 1), ((0, 9), 6, 5, 0), ((0, 3), 0, 5, 3), ((5, 9), 0, 5, 0)],
)
def test_what_the_targets_retention_took_is_told(
    asked: tuple[int, int], source_start: int, target_start: int, offsets: int
) -> None:
    """And is not proven: it was neither compared, nor taken from both sides."""
    start, end = asked
    pair = PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=start, end_offset=end)
    assert unseen(pair, LogBounds(source_start, 9, 9), LogBounds(target_start, 9, 9)) == offsets


class FakeLog:
    """A log of one record a batch, as ``fetch_one`` reads it; its start moves to ``start`` at the ``nth`` fetch."""

    role = "source"

    def __init__(self, nth: int, start: int) -> None:
        self.batches = log(LOG, *[1] * len(LOG))
        self.nth, self.start, self.fetches = nth, start, 0

    def log_starts(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start if self.fetches >= self.nth else 0)

    def fetch(self, _cluster: FakeLog, _tp: TopicPartition, position: int, **_: Any) -> Any:
        self.fetches += 1
        if position < self.log_starts([TP])[TP]:
            return SimpleNamespace(error=1, aborted=[], records=memoryview(b""))
        batch = next(b for b in self.batches if b.next_offset > position)
        return SimpleNamespace(error=0, aborted=[], records=batch.view)


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched of a fake log is its own."""
    monkeypatch.setattr(partition, "fetch_one", lambda log, *given, **more: log.fetch(log, *given, **more))


def test_reading_goes_on_where_the_log_begins_by_now() -> None:
    fake, floor = FakeLog(3, 11), Floor(0)
    read = [b.first_offset for b in partition.data_batches(fake, TP, 0, 13, floor=floor)]
    assert read == [3, 4, 11, 12]
    assert floor.offset == 11


def test_log_that_expires_while_read_is_read_to_its_end() -> None:
    fake, floor = FakeLog(2, 50), Floor(0)
    assert [b.first_offset for b in partition.data_batches(fake, TP, 0, 13, floor=floor)] == [3]
    assert floor.offset == 13


@pytest.mark.parametrize("empty", [(), (2, 3, 5)])
def test_the_time_that_a_reader_takes_is_no_silence_of_the_broker(
    monkeypatch: pytest.MonkeyPatch, empty: tuple[int, ...]
) -> None:
    """It compares each batch with the other side's, whose cluster may be slow; and empty answers may follow it."""
    fake, now = FakeLog(99, 0), [0.0]
    monkeypatch.setattr(partition, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def fetch(*given: Any, **more: Any) -> Any:
        now[0] += 1
        answer = FakeLog.fetch(fake, *given, **more)
        return SimpleNamespace(error=0, aborted=[], records=memoryview(b"")) if fake.fetches in empty else answer

    fake.fetch = fetch
    read = []
    for batch in partition.data_batches(fake, TP, 0, 13):
        read.append(batch.first_offset)
        now[0] += 2 * partition.STALL_S
    assert read == [record.offset for record in LOG]


def test_a_broker_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, now = FakeLog(99, 0), [0.0]
    monkeypatch.setattr(partition, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def fetch(*_: Any, **__: Any) -> Any:
        now[0] += 1
        assert now[0] < 99, "it would never be given up"
        return SimpleNamespace(error=0, aborted=[], records=memoryview(b""))

    fake.fetch = fetch
    with pytest.raises(TryAgain, match="empty answers for 30 s"):
        list(partition.data_batches(fake, TP, 5, 13))


def test_unexplained_offset_out_of_range_is_an_error() -> None:
    """Retention would explain it only below the log start."""
    fake = FakeLog(1, 0)
    fake.fetch = lambda *_, **__: SimpleNamespace(error=1, aborted=[], records=memoryview(b""))
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        list(partition.data_batches(fake, TP, 5, 13, floor=Floor(5)))
