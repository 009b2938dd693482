"""What a record of the target proves that the source has not, or has otherwise."""

from __future__ import annotations

import struct

import crc32c
import pytest

from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.fingerprint import first_foreign
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import CorruptBatch
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.batch import RawBatch, iter_batches
from airflow_mirror.wire.records import Record

ONE = CopyRange(source_topic="orders", target_topic="orders", partition=4, start_offset=0)


def log(first: int, *values: bytes, number: int = codec.NONE, **header: int) -> RawBatch:
    rows = [Record(0, 1_700_000_000_000 + i, b"k", value, [(b"\xff", None)]) for i, value in enumerate(values)]
    return signed(records.encode(rows, number, 5, 0, 0), base_offset=first, **header)


def signed(view: memoryview, **header: int) -> RawBatch:
    (raw,) = iter_batches(view)
    assert raw.header is not None
    wire_batch.HEADER.pack_into(view, 0, *raw.header._replace(**header))
    struct.pack_into(">I", view, 17, crc32c.crc32c(bytes(view[21:])))
    return next(iter_batches(view))


def marker(at: int, **header: int) -> RawBatch:
    return log(at, b"\0" * 6, attributes=wire_batch.CONTROL | wire_batch.TRANSACTIONAL, **header)


def unreadable(first: int) -> RawBatch:
    raw = log(first, b"a", b"b", b"c", number=codec.ZSTD)
    raw.view[wire_batch.HEADER_SIZE :] = bytes(len(raw.view) - wire_batch.HEADER_SIZE)
    return signed(raw.view)


def test_equal_records_are_no_difference_however_batched() -> None:
    assert first_foreign(ONE, log(7, b"a"), [log(7, b"a")], 0) is None
    same_times = log(7, b"a", b"b")
    assert first_foreign(ONE, same_times, [log(7, b"a", b"b", number=codec.LZ4)], 0) is None


def test_record_where_the_source_has_another_is_foreign() -> None:
    found = first_foreign(ONE, log(7, b"a", b"x"), [log(7, b"a", b"b")], 0)
    assert found is not None and found[0] == 8


@pytest.mark.parametrize("header", [{}, {"record_count": 0}], ids=["whole", "emptied-by-the-cleaner"])
def test_record_where_the_source_has_a_marker_is_foreign(header: dict[str, int]) -> None:
    source = [log(7, b"a"), marker(8, **header), log(9, b"b")]
    found = first_foreign(ONE, log(7, b"a", b"x"), source, 0)
    assert found is not None and found[0] == 8 and "marker" in found[1]


def test_filler_where_the_source_has_a_marker_is_none() -> None:
    """The cleaner has left the last one of a batch, so that the batch is no longer one of fillers."""
    (raw,) = iter_batches(records.encode([Record(0, 1_700_000_000_000, tombstones.KEY, None, [])], codec.GZIP, 5, 0, 0))
    left = signed(raw.view, base_offset=8)
    assert first_foreign(ONE, left, [log(7, b"a"), marker(8)], 0) is None
    assert first_foreign(ONE, left, [log(8, b"a")], 0) is not None, "a record was there"


def test_record_that_the_cleaner_may_have_taken_since_proves_nothing() -> None:
    target = log(7, b"a", b"b", b"c")
    only_the_last = log(9, b"c", base_timestamp=1_700_000_000_002, max_timestamp=1_700_000_000_002)
    assert first_foreign(ONE, target, [only_the_last], 0) is None
    assert first_foreign(ONE, target, [], 0) is None
    assert first_foreign(ONE, target, [log(7, b"a", last_offset_delta=2)], 0) is None, "left out inside a batch"


def test_what_lies_before_the_source_s_log_start_proves_nothing() -> None:
    assert first_foreign(ONE, log(7, b"x", b"b"), [log(7, b"a", b"b")], 8) is None
    assert first_foreign(ONE, log(7, b"x", b"x"), [log(7, b"a", b"b")], 8) is not None


def test_unreadable_batch_is_its_own_copy() -> None:
    """It passed as it is; a copy that starts again must not stop at it for ever."""
    assert first_foreign(ONE, unreadable(7), [unreadable(7)], 0) is None
    with pytest.raises(CorruptBatch, match=r"orders-4 offsets \[7, 10\)"):
        first_foreign(ONE, unreadable(7), [log(7, b"a", b"b", b"c")], 0)


def test_log_append_time_batch_is_compared_record_by_record() -> None:
    """Its bytes hold other times than readers see."""
    appended = log(7, b"a", attributes=wire_batch.LOG_APPEND_TIME, max_timestamp=1_800_000_000_000)
    assert first_foreign(ONE, log(7, b"a"), [appended], 0) is not None


def test_damaged_target_batch_is_named_despite_equal_source_bytes() -> None:
    broken = log(7, b"a")
    broken.view[70] ^= 1
    (again,) = iter_batches(broken.view)
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        first_foreign(ONE, again, [again], 0)
