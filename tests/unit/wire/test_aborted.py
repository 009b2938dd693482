"""Which batches of a fetch response a consumer of committed records passes over."""

from __future__ import annotations

import pytest

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.aborted import AbortedFilter, data_batches
from airflow_mirror.wire.batch import BatchHeader, RawBatch, iter_batches
from airflow_mirror.wire.records import Record

HEADER = BatchHeader(1000, 500, 3, 2, 0, 0, 9, 0, 0, 5, 0, 0, 10)


def marker(producer_id: int, offset: int, kind: int) -> RawBatch:
    body = records.encode([Record(0, 0, bytes([0, 0, 0, kind]), b"\0" * 6, [])], codec.NONE, producer_id, 0, -1)
    (raw,) = iter_batches(body)
    assert raw.header is not None
    attributes = wire_batch.CONTROL | wire_batch.TRANSACTIONAL
    return RawBatch(raw.view, 2, raw.header._replace(base_offset=offset, attributes=attributes))


def data(producer_id: int, offset: int, count: int = 5) -> RawBatch:
    fields = {"base_offset": offset, "last_offset_delta": count - 1, "record_count": count, "producer_id": producer_id}
    return RawBatch(memoryview(bytearray(61)), 2, HEADER._replace(attributes=wire_batch.TRANSACTIONAL, **fields))


def test_only_the_aborted_stretch_of_a_producer_is_aborted() -> None:
    aborted = AbortedFilter([(7, 20), (8, 5)])
    seen = [
        aborted.is_aborted(data(7, 0)),  # an earlier, committed transaction of the same producer
        aborted.is_aborted(data(8, 5)),
        aborted.is_aborted(marker(7, 10, kind=1)),
        aborted.is_aborted(data(8, 11)),
        aborted.is_aborted(marker(8, 16, kind=0)),
        aborted.is_aborted(data(8, 17, 3)),  # its next transaction committed
        aborted.is_aborted(data(7, 20)),
        aborted.is_aborted(marker(7, 25, kind=0)),
        aborted.is_aborted(data(7, 26)),
    ]
    assert seen == [False, True, False, True, False, False, True, False, False]


def test_abort_right_behind_the_producers_commit_is_recognised() -> None:
    """The commit's marker ends at the very offset where the next transaction begins; it must not end that one."""
    aborted = AbortedFilter([(7, 6)])
    seen = [aborted.is_aborted(raw) for raw in (data(7, 0), marker(7, 5, kind=1), data(7, 6))]
    assert seen == [False, False, True]


@pytest.mark.parametrize("damage", ["emptied", "no-record"])
def test_marker_that_can_not_be_read_ends_its_transaction(damage: str) -> None:
    """Else what the producer committed later would be passed over, or the whole task would end."""
    end = marker(8, 10, kind=0)
    assert end.header is not None
    if damage == "emptied":  # as the cleaner leaves it
        end = RawBatch(end.view[: wire_batch.HEADER_SIZE], 2, end.header._replace(record_count=0))
    else:
        end.view[wire_batch.HEADER_SIZE :] = b"\xff" * (len(end.view) - wire_batch.HEADER_SIZE)
    fetched = [data(8, 5), end, data(8, 11)]
    listed = [(8, 5)]
    pairs = [(raw, listed) for raw in fetched]
    assert [raw is fetched[2] for raw in data_batches(pairs, committed=True)] == [True]
    assert len(list(data_batches(pairs, committed=False))) == 2


def test_each_response_has_a_list_of_its_own() -> None:
    """A transaction that was aborted in one response is over in the next one, whose list does not name it."""
    fetched = [(data(8, 5), [(8, 5)]), (data(8, 50), []), (data(9, 60), [(9, 60)])]
    assert [raw is fetched[1][0] for raw in data_batches(fetched, committed=True)] == [True]


def test_batches_without_records_are_passed_over() -> None:
    emptied = RawBatch(memoryview(bytearray(61)), 2, HEADER._replace(record_count=0))
    assert list(data_batches([(emptied, []), (marker(7, 3, kind=1), [])], committed=False)) == []
