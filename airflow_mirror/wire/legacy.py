"""Message sets of magic 0 and 1: old segments that current brokers still serve as they were written.

Each message is a batch of its own; a compressed message wraps a message set. Inner messages have absolute offsets in a
wrapper of magic 0, and offsets relative to the wrapper's first in one of magic 1 (KIP-31). The wrapper's own offset is
that of its *last* message. The CRC-32 covers the bytes from the magic on.

No available client library's reader would do: none reads LZ4 of magic 0, whose frames have a wrong header checksum
(KAFKA-3160), and none reports a corrupt message with a single kind of error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from airflow_mirror.wire import codec

# The CRC, at byte 12, is over all that follows it; key and value have lengths of four bytes
# (org.apache.kafka.common.record.LegacyRecord).
_HEADERS = {0: struct.Struct(">qiIbb"), 1: struct.Struct(">qiIbbq")}  # offset, length, crc, magic, attributes[, time]
_OVERHEAD, _MAGIC_AT, _CRC_AT = 12, 16, 12
_CODEC_MASK, _LOG_APPEND_TIME = 0x07, 0x08
NO_TIMESTAMP = -1  # what a consumer sees for a message without a timestamp (RecordBatch.NO_TIMESTAMP)


class Message(NamedTuple):
    """One message as a consumer sees it; ``timestamp`` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class _Entry(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def codec_of(view: memoryview) -> int:
    """Return the codec number of a message; 0 if it is not a wrapper."""
    return view[_MAGIC_AT + 1] & _CODEC_MASK


def crc_is_valid(view: memoryview) -> bool:
    """Return whether the stored CRC-32 matches the bytes."""
    return int.from_bytes(view[_CRC_AT:_MAGIC_AT], "big") == zlib.crc32(view[_MAGIC_AT:])


def decode(view: memoryview) -> list[Message]:
    """Return the messages of one message or wrapper in order, each with its absolute offset.

    :raises ValueError: it can't be decompressed or parsed.
    """
    try:
        (outer,) = _entries(view)
        if not outer.attributes & _CODEC_MASK:
            return [Message(outer.offset, outer.timestamp, outer.key, outer.value)]
        inner = list(_entries(memoryview(_unwrapped(outer))))
    except (struct.error, IndexError, KeyError) as e:
        raise ValueError(f"message set of {len(view)} bytes can't be parsed: {e}") from e
    if not inner or any(e.attributes & _CODEC_MASK or e.magic != outer.magic for e in inner):
        raise ValueError("compressed message set is empty, or holds wrappers or another magic")
    # The wrapper has the last one's offset, also after the cleaner took some of them: so it is counted from the end.
    base = outer.offset - inner[-1].offset if outer.magic == 1 else 0
    appended = outer.magic == 1 and outer.attributes & _LOG_APPEND_TIME
    return [Message(base + e.offset, outer.timestamp if appended else e.timestamp, e.key, e.value) for e in inner]


def _entries(view: memoryview) -> Iterator[_Entry]:
    at, end = 0, len(view)
    while at < end:
        magic = view[at + _MAGIC_AT]
        header = _HEADERS[magic]
        fields = header.unpack_from(view, at)
        stop = at + _OVERHEAD + fields[1]
        key, behind = _bytes(view, at + header.size, stop)
        value, behind = _bytes(view, behind, stop)
        if behind != stop or stop > end:
            raise ValueError(f"a message of {fields[1]} bytes does not end where it says")
        yield _Entry(fields[0], magic, fields[4], fields[5] if magic else NO_TIMESTAMP, key, value)
        at = stop


def _bytes(view: memoryview, at: int, stop: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", view, at)
    behind = at + 4 + max(size, 0)
    if size < -1 or behind > stop:
        raise ValueError(f"a field of {size} bytes goes beyond its message")
    return None if size < 0 else bytes(view[at + 4 : behind]), behind


def _unwrapped(outer: _Entry) -> bytes | memoryview:
    if outer.value is None:
        raise ValueError("compressed message without a value")
    number = outer.attributes & _CODEC_MASK
    payload = _with_right_checksum(outer.value) if number == codec.LZ4 and outer.magic == 0 else outer.value
    return codec.decompress(number, payload)


def _with_right_checksum(frame: bytes) -> bytes:
    """Repair the header checksum of an LZ4 frame of magic 0, which also covered the frame's magic number."""
    import xxhash

    descriptor = frame[4 : 6 + (8 if frame[4] & 0x08 else 0)]  # flags, block size and, by flag, the content size
    at = 4 + len(descriptor)
    return frame[:at] + bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF]) + frame[at + 1 :]
