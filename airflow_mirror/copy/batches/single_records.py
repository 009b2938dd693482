"""The commonest tiny batch: one record, not compressed. Many of them become one batch without decoding any.

Only two of a record's fields depend on the batch it is in: the deltas of its timestamp and its offset. The rest of its
bytes are taken as they are. Whatever looks unusual is left to `merging`, which decodes.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.batch import BatchHeader, RawBatch
from airflow_mirror.wire.varint import zigzag

_JOINED_BYTES = 1 << 18  # more gains nothing: the round trip is paid for long before
_DELTAS_BYTES = 16  # what the deltas and the length of a record may need more in a larger batch


_varint = lru_cache(maxsize=1 << 16)(zigzag)


class Singles:
    """Collects batches of one record each that follow each other without a hole.

    :param max_bytes: the target's ``max.message.bytes``.
    """

    def __init__(self, max_bytes: int) -> None:
        self._limit = min(_JOINED_BYTES, max_bytes)
        self._parts: list[bytes | memoryview] = []
        self._size = wire_batch.HEADER_SIZE
        self._first = self._count = self._base = self._newest = 0
        self._lone: RawBatch | None = None

    def take(self, view: memoryview, header: BatchHeader) -> bool:
        """Add a sound batch, if it is one of these and there is room; it must follow the last one taken."""
        if header.record_count != 1 or header.attributes & wire_batch.CODEC_MASK:
            return False
        if self._size + len(view) - wire_batch.HEADER_SIZE + _DELTAS_BYTES > self._limit:
            return False
        rest = _behind_the_deltas(view)
        if rest is None:
            return False
        timestamp = header.base_timestamp
        if not self._count:
            self._first, self._base, self._newest = header.base_offset, timestamp, timestamp
        since, delta = _varint(timestamp - self._base), _varint(self._count)
        length = _varint(1 + len(since) + len(delta) + len(rest))
        self._parts += (length, b"\0", since, delta, rest)
        self._size += len(length) + 1 + len(since) + len(delta) + len(rest)
        self._lone = RawBatch(view, 2, header) if not self._count else None
        self._newest = max(self._newest, timestamp)
        self._count += 1
        return True

    def flush(self) -> Send | None:
        """Return what was collected as one batch, and begin anew; a lone batch comes back as it was."""
        if not self._count:
            return None
        if self._lone is not None and self._lone.header is not None:
            header = self._lone.header
            send = Send(header.base_offset, 1, header.size, self._lone, [], 0, header.next_offset)
        else:
            view = wire_batch.build(b"".join(self._parts), 0, self._count, self._base, self._newest, -1, -1, -1)
            struct.pack_into(">q", view, 0, self._first)
            raw = next(wire_batch.iter_batches(view))
            send = Send(self._first, self._count, len(view), raw, [], 0, self._first + self._count, self._count)
        self._parts, self._size, self._count, self._lone = [], wire_batch.HEADER_SIZE, 0, None
        return send


def _behind_the_deltas(view: memoryview) -> memoryview | None:
    """Return a lone record's bytes from its key length on, None unless it stands as every producer writes it."""
    at, length, shift = wire_batch.HEADER_SIZE, 0, 0
    while True:
        if at + 4 > len(view) or shift > 28:
            return None
        byte = view[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    # The length is zig-zag encoded; attributes, both deltas: a batch's only record has 0 in all of them.
    if length >> 1 != len(view) - at or view[at] or view[at + 1] or view[at + 2]:
        return None
    return view[at + 3 :]
