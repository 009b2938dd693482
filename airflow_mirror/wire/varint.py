"""The variable-length integers of record batches: zig-zag, seven bits a byte (KIP-98, as Protocol Buffers have them)."""

from __future__ import annotations


def zigzag(value: int) -> bytes:
    """Encode an int64."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
