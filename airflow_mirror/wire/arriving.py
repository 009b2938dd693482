"""A response as it arrives: the room for it, and how much of it is there."""

from __future__ import annotations

import struct

RESPONSE = struct.Struct(">Ii")  # size, correlation id
_ZEROED_BYTES = 64 * 1024


class Arriving:
    """A partially received frame: first the head, then the body."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RESPONSE.size))
        self.at = 0
        self.is_body = False
        self.lowered = False  # whether SO_RCVLOWAT was raised for this frame


def room(size: int) -> memoryview:
    """Return a buffer to fill. Large ones are not zeroed: that took a twelfth of a copier's CPU."""
    if size <= _ZEROED_BYTES:
        return memoryview(bytearray(size))
    import pyarrow

    return memoryview(pyarrow.allocate_buffer(size)).cast("B")  # its format is signed bytes otherwise
