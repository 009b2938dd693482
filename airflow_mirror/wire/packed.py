"""Records as stored in a batch: an offset, a timestamp, and an opaque body.

Only three fields of a record depend on its batch: its length and the deltas of its timestamp and offset. Everything
else, from the key's length on, is copied from batch to batch unchanged: null and empty keys, header names that are not
UTF-8, repeated headers. So none of it can change on the way. Format: KIP-98, `DefaultRecord` of the Java client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from airflow_mirror.wire.batch import LOG_APPEND_TIME, BatchHeader
from airflow_mirror.wire.varint import read_zigzag, zigzag

Headers = Sequence[tuple[bytes, bytes | None]]
FRAME_BYTES = 21  # at most, besides the body: length 5, attributes 1, timestamp delta 10, offset delta 5
_INT64 = 1 << 63


class Packed(NamedTuple):
    """A record. ``timestamp`` in ms, as a consumer sees it; ``body`` from the key's length to the end of the headers."""

    offset: int
    timestamp: int
    body: bytes | memoryview


def body_of(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Encode the body of a record with these fields."""
    parts = [_sized(key), _sized(value), zigzag(len(headers))]
    for name, content in headers:
        parts += (_sized(name), _sized(content))
    return b"".join(parts)


def fields_of(body: bytes | memoryview) -> tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]:
    """Return key, value and headers.

    :raises ValueError: the bytes are not a valid body.
    """
    try:
        key, at = _bytes(body, 0)
        value, at = _bytes(body, at)
        count, at = read_zigzag(body, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(body, at)
            content, at = _bytes(body, at)
            if name is None:
                raise ValueError("a header has no name")
            headers.append((name, content))
    except IndexError:
        raise ValueError("a record ends within one of its fields") from None
    if count < 0 or at != len(body):
        raise ValueError(f"a record of {len(body)} bytes has fields of {at}")
    return key, value, headers


def split(payload: bytes | memoryview, header: BatchHeader) -> Iterator[Packed]:
    """Yield the records of a payload in order; their bodies are views into it if it is a view.

    :param payload: the uncompressed bytes after the batch header.
    :raises ValueError: the payload does not match the header; records before the first invalid one were yielded.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    # The broker writes its time into the header alone: the records keep their producer's, which no consumer sees
    # (KIP-32).
    appended = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    at, end, last = 0, len(payload), -1
    try:
        # Length, attributes, timestamp delta, offset delta, then the body: key, value, number of headers, headers
        # (DefaultRecord). Lengths and deltas are zig-zag varints; lengths of -1 are null.
        for _ in range(header.record_count):
            # One- and two-byte integers are decoded inline: nearly all are short, and a call would dominate.
            size = payload[at]
            if size < 0x80:
                at += 1
            elif (byte := payload[at + 1]) < 0x80:
                size += (byte << 7) - 0x80
                at += 2
            else:
                size, at = read_zigzag(payload, at)
                size <<= 1
            stop = at + (size >> 1)
            if size & 1 or stop > end:
                raise ValueError(f"a record goes beyond its payload of {end} bytes")
            since = payload[at + 1]  # after the attributes, of which no bit has a meaning yet
            if since < 0x80:
                since, at = (since >> 1) ^ -(since & 1), at + 2
            else:
                since, at = read_zigzag(payload, at + 1)
            delta = payload[at]
            if delta < 0x80:
                delta, at = (delta >> 1) ^ -(delta & 1), at + 1
            else:
                delta, at = read_zigzag(payload, at)
            # Rising, and within the batch: offsets are what a mirror keeps, so a record may not choose its own.
            if not last < delta <= header.last_offset_delta or at > stop:
                raise ValueError(f"a record stands {delta} behind its batch's offset, which can't be")
            last = delta
            timestamp = base_timestamp + since if appended is None else appended
            if not -_INT64 <= timestamp < _INT64:
                timestamp = (timestamp + _INT64) % (2 * _INT64) - _INT64  # wraps like a Java long
            yield Packed(base_offset + delta, timestamp, payload[at:stop])
            at = stop
    except IndexError:
        raise ValueError(f"a payload of {end} bytes ends within a record") from None
    if at != end:
        raise ValueError(f"a payload of {end} bytes has records of {at}")


def frame(since: int, delta: int, body_bytes: int) -> bytes:
    """Return what stands before a body of so many bytes, with these deltas of timestamp and offset."""
    # Attributes 0: no bit of a record's own has a meaning yet (DefaultRecord).
    deltas = b"\0" + zigzag(since) + zigzag(delta)
    return zigzag(len(deltas) + body_bytes) + deltas


def join(records: Sequence[Packed]) -> bytes:
    """Return the payload of a batch of these records: consecutive offsets, the first timestamp as base."""
    base = records[0].timestamp
    parts: list[bytes | memoryview] = []
    for delta, (_, timestamp, body) in enumerate(records):
        parts += (frame(timestamp - base, delta, len(body)), body)
    return b"".join(parts)


def _sized(content: bytes | None) -> bytes:
    return b"\x01" if content is None else zigzag(len(content)) + content


def _bytes(view: bytes | memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = read_zigzag(view, at)
    if size == -1:
        return None, at
    if size < 0 or at + size > len(view):
        raise ValueError(f"a field of {size} bytes goes beyond its record")
    return bytes(view[at : at + size]), at + size
