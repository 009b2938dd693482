"""Records survive decoding and encoding in every field, and clients that are not ours read the same."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as PythonRecordBatch

from airflow_mirror.copy.batches import tiers
from airflow_mirror.copy.batches.tiers import Send, Tier
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, heart, packed, records
from airflow_mirror.wire.batch import RawBatch, iter_batches
from airflow_mirror.wire.records import Record
from tests.hearts import beating

INT64 = 1 << 63
START = 10**12
NOT_UTF8 = b"trace-\xff\xfe"
TIMES = st.one_of(st.sampled_from([-1, 0, -INT64, INT64 - 1, 1 << 31, 1_700_000_000_000]), st.integers(-INT64, INT64 - 1))
CONTENT = st.one_of(st.none(), st.just(b""), st.binary(max_size=70))
HEADERS = st.lists(
    st.tuples(st.one_of(st.sampled_from([b"h", b"h", b"", NOT_UTF8]), st.binary(max_size=70)), CONTENT), max_size=4
)
ROWS = st.lists(st.tuples(TIMES, CONTENT, CONTENT, HEADERS), min_size=1, max_size=140)
TEXT_ROWS = st.lists(
    st.tuples(TIMES, CONTENT, CONTENT, st.lists(st.tuples(st.text(max_size=9).map(str.encode), CONTENT), max_size=3)),
    min_size=1,
    max_size=140,
)
Row = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
# The encoder of a client library took a first timestamp of -1 for "not set yet".
FIRST_WITHOUT_TIME: list[Row] = [(-1, b"k", None, []), (100, None, b"v", []), (50, b"", b"", [(b"h", None), (b"h", b"")])]


def rows(drawn: Sequence[Row]) -> list[Record]:
    return [Record(START + i, *fields) for i, fields in enumerate(drawn)]


def batch(of: list[Record], number: int = codec.NONE, **header: int) -> RawBatch:
    view = records.encode(of, number, 7, 0, 0)
    (raw,) = iter_batches(view)
    assert raw.header is not None
    wire_batch.HEADER.pack_into(view, 0, *raw.header._replace(base_offset=of[0].offset, **header))
    struct.pack_into(">I", view, 17, wire_batch.crc32c.crc32c(view[21:]))  # type: ignore[attr-defined]
    (raw,) = iter_batches(view)
    return raw


def encoded_again(raw: RawBatch) -> list[Record]:
    """Return what stands on the target after a copy that could not pass ``raw`` as it is: by either heart the same."""
    of_each = []
    for engine in {None, heart.engine}:
        with beating(engine, 1 << 18):
            of_each.append(_encoded_again(raw))
    assert of_each[0] == of_each[-1]
    return of_each[0]


def _encoded_again(raw: RawBatch) -> list[Record]:
    found: list[Record] = []
    for send in tiers.actions(raw, Tier.REENCODE, 0, INT64 - 1, 1 << 20):
        assert isinstance(send, Send), send
        view = send.signed(1 << 20, 1, 0, 0)
        struct.pack_into(">q", view, 0, send.base_offset)
        (copy,) = iter_batches(view)
        assert copy.header is not None and wire_batch.crc_is_valid(view, copy.header)
        again = list(records.decode(copy))
        assert copy.header.max_timestamp == send.newest_timestamp == max(one.timestamp for one in again)
        found += again
    return found


@pytest.mark.repeats
@given(ROWS)
@example(FIRST_WITHOUT_TIME)
def test_every_field_survives_encoding_decoding_and_encoding_again(drawn: list[Row]) -> None:
    original = rows(drawn)
    raw = batch(original)
    assert list(records.decode(raw)) == original
    assert encoded_again(raw) == original


@pytest.mark.repeats
@given(TEXT_ROWS)
@example(FIRST_WITHOUT_TIME)
def test_other_clients_decode_the_same_records(drawn: list[Row]) -> None:
    original = rows(drawn)
    raw = batch(original)
    expected = [(r.offset, r.timestamp, r.key, r.value, [(n.decode(), v) for n, v in r.headers]) for r in original]
    in_c = DefaultRecordBatch(bytes(raw.view))
    assert in_c.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in in_c] == expected
    if all(-INT64 <= r.timestamp - original[0].timestamp < INT64 for r in original):  # Python's integers don't wrap
        in_python: Any = PythonRecordBatch(bytes(raw.view))
        assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in in_python] == expected


@pytest.mark.parametrize("drawn", [FIRST_WITHOUT_TIME, [(5, None, None, [(NOT_UTF8, b"v")]), (7, b"k", b"", [])]])
def test_time_of_append_takes_the_place_of_each_time(drawn: list[Row]) -> None:
    raw = batch(rows(drawn), attributes=wire_batch.LOG_APPEND_TIME, max_timestamp=999_000)
    expected = [r._replace(timestamp=999_000) for r in rows(drawn)]
    assert list(records.decode(raw)) == expected
    assert [p.timestamp for p in records.pack(raw)] == [999_000] * len(expected)
    assert encoded_again(raw) == expected


@pytest.mark.repeats
@given(ROWS, st.data())
def test_no_damaged_payload_is_anything_but_a_value_error(drawn: list[Row], data: st.DataObject) -> None:
    payload = bytearray(batch(rows(drawn)).view[wire_batch.HEADER_SIZE :])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    header = batch(rows(drawn)).header
    assert header is not None
    try:
        for one in packed.split(cut, header):
            packed.fields_of(one.body)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        (b"", "ends within a record"),
        (b"\x0d\x00\x00\x00\x01\x01\x00", "goes beyond its payload"),  # a length below zero
        (b"\x7e\x00\x00\x00\x01\x01\x00", "goes beyond its payload"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "1 behind its batch's offset"),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", "has records of 7"),
        (b"\x0c\x00" + b"\xff" * 12, "goes beyond|more than ten bytes"),
    ],
)
def test_bytes_that_are_no_records_are_refused(payload: bytes, cause: str) -> None:
    header = batch(rows([(5, None, None, [])])).header
    assert header is not None
    with pytest.raises(ValueError, match=cause):
        list(packed.split(payload, header))
