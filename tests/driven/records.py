"""Batches of magic 2, written and read record by record, with holes where the cleaner would have left them.

The product's record codec is not used here: what a copy wrote must not be judged by the code that wrote it. Shared are
the layout of the header (`wire.batch.HEADER`) and the compression itself (`wire.codec`); the conformance suite shows
both to a real broker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire.batch import BatchHeader


class Row(NamedTuple):
    """A record as a consumer sees it; ``timestamp`` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode(
    rows: Sequence[Row], *, base_offset: int | None = None, codec_number: int = codec.NONE, producer_id: int = -1,
    epoch: int = -1, sequence: int = -1, attributes: int = 0, last_offset: int | None = None, leader_epoch: int = -1,
) -> bytes:  # fmt: skip
    """Encode rows at the offsets that they have; gaps between them stay gaps.

    :param base_offset: of the batch; the first row's unless given. The cleaner keeps it when it removes that row.
    :param last_offset: of the batch; the last row's unless given.
    :param attributes: bits besides the codec.
    """
    base = rows[0].offset if base_offset is None else base_offset
    last = rows[-1].offset if last_offset is None else last_offset
    first_time = rows[0].timestamp if rows else -1
    payload = b"".join(_record(row, row.offset - base, row.timestamp - first_time) for row in rows)
    payload = bytes(codec.compress(codec_number, payload)) if rows else b""
    newest = max((row.timestamp for row in rows), default=-1)
    fields = BatchHeader(
        base, wire_batch.HEADER_SIZE + len(payload) - wire_batch.LOG_OVERHEAD, leader_epoch, 2, 0,
        codec_number | attributes, last - base, first_time, newest, producer_id, epoch, sequence, len(rows),
    )  # fmt: skip
    return signed(fields, payload)


def signed(header: BatchHeader, payload: bytes) -> bytes:
    """Put a header before a payload, with the checksum that fits."""
    content = bytearray(wire_batch.HEADER.pack(*header) + payload)
    struct.pack_into(">I", content, 17, crc32c.crc32c(memoryview(content)[21:]))
    return bytes(content)


def changed(batch: bytes | memoryview, **fields: int) -> bytes:
    """Return a batch with header fields set, whatever they are, and a checksum that fits."""
    return signed(header_of(batch)._replace(**fields), bytes(batch[wire_batch.HEADER_SIZE :]))


def header_of(batch: bytes | memoryview) -> BatchHeader:
    """Return the header of a batch of magic 2."""
    return BatchHeader._make(wire_batch.HEADER.unpack_from(batch, 0))


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, timestamp: int) -> bytes:
    """Return a transaction marker as EndTransactionMarker writes it: 78 bytes, base offset 0."""
    kind = struct.pack(">hh", 0, 1 if commit else 0)
    body = struct.pack(">hi", 0, coordinator_epoch)
    return encode(
        [Row(0, timestamp, kind, body)], producer_id=producer_id, epoch=epoch,
        attributes=wire_batch.TRANSACTIONAL | wire_batch.CONTROL,
    )  # fmt: skip


def decode(batch: bytes | memoryview) -> list[Row]:
    """Return the rows of a batch of magic 2.

    :raises ValueError: when its payload does not hold the records that its header counts, to the byte.
    """
    header = header_of(batch)
    payload = bytes(batch[wire_batch.HEADER_SIZE :])
    plain = bytes(codec.decompress(header.codec, payload)) if header.codec and header.record_count else payload
    rows, at = [], 0
    try:
        for _ in range(header.record_count):
            row, at = _row(plain, at, header)
            rows.append(row)
    except (IndexError, UnicodeDecodeError) as e:
        raise ValueError(f"record {len(rows)} of {header.record_count} can't be read: {e}") from e
    if at != len(plain):
        raise ValueError(f"{len(plain) - at} bytes behind the last of {header.record_count} records")
    return rows


def _record(row: Row, offset_delta: int, time_delta: int) -> bytes:
    body = b"\0" + _varint(time_delta) + _varint(offset_delta) + _field(row.key) + _field(row.value)
    body += _varint(len(row.headers))
    for name, value in row.headers:
        body += _field(name.encode()) + _field(value)
    return _varint(len(body)) + body


def _row(plain: bytes, at: int, header: BatchHeader) -> tuple[Row, int]:
    size, at = _read_varint(plain, at)
    end = at + size
    if end > len(plain):
        raise IndexError("beyond the payload")
    time_delta, at = _read_varint(plain, at + 1)
    offset_delta, at = _read_varint(plain, at)
    key, at = _read_field(plain, at)
    value, at = _read_field(plain, at)
    count, at = _read_varint(plain, at)
    headers = []
    for _ in range(count):
        name, at = _read_field(plain, at)
        content, at = _read_field(plain, at)
        headers.append(((name or b"").decode(), content))
    if at != end:
        raise ValueError(f"a record of {size} bytes does not end where it says")
    appended = header.attributes & wire_batch.LOG_APPEND_TIME
    timestamp = header.max_timestamp if appended else header.base_timestamp + time_delta
    return Row(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)), end


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    return b"".join(_sevens(value & (1 << 64) - 1))


def _sevens(value: int) -> Iterator[bytes]:
    while value > 0x7F:
        yield bytes([value & 0x7F | 0x80])
        value >>= 7
    yield bytes([value])


def _read_varint(plain: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = plain[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _field(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _read_field(plain: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(plain, at)
    if size < 0:
        return None, at
    if at + size > len(plain):
        raise IndexError("beyond the payload")
    return plain[at : at + size], at + size
