"""Merge many tiny batches into one while there is a backlog.

A broker accepts one batch per partition in a request, so a backlog of single-record batches would be copied at one
record per partition and round trip. Records keep offsets, timestamps and order. Only batch boundaries change, and of a
record's bytes only those that depend on them (`packed`). A batch that can't be decoded passes unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import cast

from airflow_mirror.copy.batches.tiers import Encoded, Part, Send
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, heart
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import BatchHeader, RawBatch
from airflow_mirror.wire.packed import FRAME_BYTES, Packed

_JOINED_BYTES = 1 << 18  # larger batches gain nothing, because the round trip no longer matters
# By how much smaller batches have to be than those without a codec, so that to compress again takes no longer than is
# saved (docs/adr/0059). Below a kilobyte a batch costs so much more than its bytes that only gzip still matters.
_SMALLER = {codec.SNAPPY: 2, codec.LZ4: 2, codec.ZSTD: 3, codec.GZIP: 32}
_TINY, _TINY_GZIP = 1024, 128


class Joiner:
    """Collects small neighbouring batches. After it rejects a batch, call :meth:`flush` before sending that batch.

    :param below: in bytes; larger batches are not taken.
    :param max_bytes: the target's ``max.message.bytes``.
    :param dense: only merge neighbours without a hole between them (identical offsets).
    """

    def __init__(self, below: int, max_bytes: int, *, dense: bool) -> None:
        self._below, self._limit, self._dense = below, min(_JOINED_BYTES, max_bytes), dense
        self._reset()

    def _reset(self) -> None:
        self._records: list[Packed] = []
        self._first: Send | RawBatch | None = None
        self._size, self._batches, self._codec, self._next = wire_batch.HEADER_SIZE, 0, 0, 0

    def take_batch(self, raw: RawBatch, header: BatchHeader) -> bool:
        """Take an intact, dense batch that could pass unchanged; return False if it does not fit."""
        number, count, at = header.attributes & wire_batch.CODEC_MASK, header.record_count, header.base_offset
        if len(raw.view) >= self._below or not self._follows(at, number):
            return False
        if count == 1 and not number and (body := _only_body(raw.view)) is not None:
            # By upper bounds, uncompressed: what is joined fits into what the target takes.
            size = self._size + FRAME_BYTES + len(body)
            if size > self._limit:
                return False
            self._records.append(Packed(at, header.base_timestamp, body))
            self._size = size
        else:
            # Check the count first: a small compressed batch may hold a million records.
            if self._size + count * FRAME_BYTES > self._limit:
                return False
            try:
                records = list(wire_records.pack(raw))
            # It is left to pass by itself: whether a batch with a right checksum can be read is for the target to say.
            except ValueError:
                return False
            if not self._add(records):
                return False
        self._took(raw, number, at + count)
        return True

    def take(self, send: Send) -> bool:
        """Take a batch of any kind; return False if it does not fit."""
        if send.raw is not None and send.raw.header is not None:
            return self.take_batch(send.raw, send.raw.header)
        if send.size >= self._below or not self._follows(send.base_offset, send.codec):
            return False
        assert send.encoded is not None
        if not self._add(list(send.encoded.records())):
            return False
        self._took(send, send.codec, send.next_source)
        return True

    def flush(self) -> Send | None:
        """Return what was taken as one batch, and start over; a single batch is returned as it was."""
        records, first = self._records, self._first
        if self._batches > 1:
            part = Part()
            for record in records:
                part.take(record, sys.maxsize)  # none may be left out: by its upper bound all of it fits
            # Behind the last batch, where its last record may be gone.
            merged = part.send(self._codec, self._batches)._replace(size=self._size, next_source=self._next)
        elif isinstance(first, RawBatch) and first.header is not None:
            merged = Send.unchanged(first, first.header)
        elif isinstance(first, Send):
            merged = first
        else:
            return None
        self._reset()
        return merged

    def _follows(self, at: int, number: int) -> bool:
        # One codec for all: what was compressed stays so, and in the way that its producer chose.
        return self._first is None or (number == self._codec and (at == self._next or not self._dense))

    def _add(self, records: list[Packed]) -> bool:
        size = self._size + sum(FRAME_BYTES + len(record.body) for record in records)
        if size > self._limit:
            return False
        self._records += records
        self._size = size
        return True

    def _took(self, batch: Send | RawBatch, number: int, behind: int) -> None:
        if self._first is None:
            self._first, self._codec = batch, number
        self._batches += 1
        self._next = behind


class CompiledJoiner(Joiner):
    """The same by the compiled heart, which also takes a whole run of batches at once."""

    def _reset(self) -> None:
        self._merger = heart.engine.Merger(self._below, self._limit, self._dense, codec.decompress)

    def take_batch(self, raw: RawBatch, header: BatchHeader) -> bool:
        """See :meth:`Joiner.take_batch`."""
        return bool(self._merger.take_batch(raw.view))

    def take(self, send: Send) -> bool:
        """See :meth:`Joiner.take`."""
        if send.raw is not None and send.raw.header is not None:
            return self.take_batch(send.raw, send.raw.header)
        merger = self._merger
        if send.size >= self._below or not merger.follows(send.base_offset, send.codec):
            return False
        assert send.encoded is not None
        batch, base_timestamp, *_, spans = send.encoded
        return bool(merger.take(send, batch, spans, base_timestamp, send.codec, send.next_source))

    def run(
        self, records: memoryview, read: int, at: int, end: int, max_bytes: int, doubtful: int, epoch: int
    ) -> Generator[Send, None, tuple[int, int]]:
        """Take the batches from byte ``read`` and offset ``at`` on that simply pass; yield what is full meanwhile.

        :param end: offset that they end before. :param doubtful: attributes that none of them has.
        :param epoch: their leader epoch.
        :return: byte and offset of the first batch that was not taken.
        """
        merger, full = self._merger, True
        while full:
            full = merger.run(records, read, at, end, max_bytes, doubtful, epoch)
            if merger.read > read:
                read, at = merger.read, merger.next
            if full and (send := self.flush()) is not None:
                yield send
        return read, at

    def flush(self) -> Send | None:
        """See :meth:`Joiner.flush`."""
        merger, first = self._merger, self._merger.first
        if merger.batches > 1:
            start, number, behind, batches = merger.first_offset, merger.codec, merger.next, merger.batches
            count, size, *encoded = merger.flush()
            return Send(start, count, size, number, behind, encoded=Encoded(*encoded), merged=batches)
        if isinstance(first, memoryview):
            raw = wire_batch.batch_at(first, 0)
            assert raw is not None and raw.header is not None
            first = Send.unchanged(raw, raw.header)
        merger.clear()
        return cast("Send | None", first)


def worthwhile(records: memoryview, below: int, stored: float) -> int:
    """Return the size, in bytes as stored, below which it is quicker to merge batches like the first of a response.

    :param below: the same of batches that are not compressed. To compress again takes the longer, the more is in them.
    :param stored: what batches of the response have on average; nothing is decompressed where that says it already.
    """
    raw = wire_batch.batch_at(records, 0)
    if raw is None or raw.header is None or raw.header.codec == codec.NONE:
        return below
    if raw.header.record_count * FRAME_BYTES > _JOINED_BYTES:
        return 0  # a small batch of very many records
    tiny = _TINY_GZIP if raw.header.codec == codec.GZIP else _TINY
    below = max(below // _SMALLER.get(raw.header.codec, 1), min(below, tiny))
    if stored >= below:
        return 0
    try:
        plain = codec.decompress(raw.header.codec, raw.view[wire_batch.HEADER_SIZE :])
    except ValueError:
        return below
    return below * len(raw.view) // (wire_batch.HEADER_SIZE + len(plain))


def joiner(below: int, max_bytes: int, *, dense: bool) -> Joiner:
    """Return the joiner of the heart that runs."""
    return (Joiner if heart.engine is None else CompiledJoiner)(below, max_bytes, dense=dense)


def _only_body(view: memoryview) -> memoryview | None:
    """Return the body of a batch's only record; None unless it is encoded as every producer encodes it.

    This is by far the most common tiny batch, and `packed.split`, which handles any payload, takes twice as long.
    """
    at, length, shift = wire_batch.HEADER_SIZE, 0, 0
    while True:
        if at + 4 > len(view) or shift > 28:
            return None
        byte = view[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    # The length is zig-zag encoded. Attributes and both deltas of a batch's only record are 0.
    if length & 1 or length >> 1 != len(view) - at or view[at] or view[at + 1] or view[at + 2]:
        return None
    return view[at + 3 :]
