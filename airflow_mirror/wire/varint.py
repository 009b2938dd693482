"""Variable-length integers, seven bits per byte, as in Protocol Buffers.

Record batches use signed ones with zig-zag encoding (KIP-98); headers and fields of flexible requests use unsigned ones
(KIP-482).
"""

from __future__ import annotations

_HALF = 1 << 63
_UINT64 = 2 * _HALF - 1
_TABLE_SIZE = 1 << 13  # lengths, offset and timestamp deltas are mostly this small


def zigzag(value: int) -> bytes:
    """Encode an int64; a value outside its range wraps like a Java long."""
    if 0 <= value < _TABLE_SIZE:
        return _TABLE[value]
    return _encoded(value)


def _encoded(value: int) -> bytes:
    value = (value + _HALF) % (2 * _HALF) - _HALF
    return unsigned(value << 1 ^ value >> 63)


def unsigned(value: int) -> bytes:
    """Encode a non-negative integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_TABLE = tuple(_encoded(value) for value in range(_TABLE_SIZE))


def read_zigzag(view: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the int64 that begins at byte ``at``, and the position of the next field; bits beyond the 64th don't count.

    :raises ValueError: it has more than ten bytes. :raises IndexError: it is truncated.
    """
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # As a Java client reads it: what does not fit is shifted out, and no error.
            value &= _UINT64
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a variable-length integer has more than ten bytes")


def read_unsigned(view: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned integer that begins at byte ``at``, and the position of the next field.

    Not shared with the signed variant, which is called for each record.
    """
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def tags_end(view: memoryview, at: int = 0) -> int:
    """Return where the tagged fields end that begin at byte ``at``; nothing here needs any of them."""
    count, at = read_unsigned(view, at)
    for _ in range(count):
        at = read_unsigned(view, at)[1]
        size, at = read_unsigned(view, at)
        at += size
    return at
