"""Select the tier of each batch from its header alone, and turn fetched batches into actions.

Three tiers (design, section 2): *pass* the payload unchanged under a new header; *re-encode* the batch, keeping each
record's offset; *drop* it and leave a hole. The copier turns holes into padding, so that offsets stay equal.

Pure: no socket, no clock. The copier and the fingerprint check at start use the same functions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec as wire_codec
from airflow_mirror.wire import heart, legacy, packed
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import BatchHeader, RawBatch
from airflow_mirror.wire.packed import Packed

_OTHERWISE = wire_batch.CONTROL | wire_batch.LOG_APPEND_TIME


class Tier(Enum):
    """The tier of a batch."""

    PASS = "pass"
    REENCODE = "reencode"
    DROP = "drop"


class Encoded(NamedTuple):
    """Records, encoded anew and not yet compressed: room for a header, then the payload of one batch.

    ``spans``: as :meth:`Send.spans`.
    """

    batch: bytearray
    base_timestamp: int
    newest_timestamp: int
    last_timestamp: int
    spans: array[int]

    def records(self) -> Iterator[Packed]:
        """Yield the records under their source offsets."""
        firsts, counts = self.spans[::2], self.spans[1::2]
        count = sum(counts)
        header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, self.base_timestamp, self.newest_timestamp, -1, -1, -1, count)
        offsets = (at for first, count in zip(firsts, counts, strict=True) for at in range(first, first + count))
        for offset, record in zip(
            offsets, packed.split(memoryview(self.batch)[wire_batch.HEADER_SIZE :], header), strict=True
        ):
            yield record._replace(offset=offset)


class Send(NamedTuple):
    """Produce one batch: with identical offsets its first record must be stored at ``base_offset``.

    ``raw`` is signed and sent unchanged; without it, what was ``encoded`` is compressed with ``codec``. Offsets are
    consecutive unless they are mapped. ``size`` is exact for ``raw``, otherwise roughly the uncompressed size.
    ``merged`` is the number of source batches if several were merged, else 0. ``filler``: the batch fills a hole
    (`tombstones`).
    """

    base_offset: int
    record_count: int
    size: int
    codec: int
    next_source: int
    raw: RawBatch | None = None
    encoded: Encoded | None = None
    merged: int = 0
    filler: bool = False

    @classmethod
    def unchanged(cls, raw: RawBatch, header: BatchHeader) -> Send:
        """Send a batch unchanged."""
        return cls(header.base_offset, header.record_count, header.size, header.codec, header.next_offset, raw)

    def without_bytes(self) -> Send:
        """Return what is left to know of it once its bytes were sent and are given back: offsets and timestamps."""
        raw = self.raw and self.raw._replace(view=memoryview(b""))
        return self._replace(raw=raw, encoded=self.encoded and self.encoded._replace(batch=bytearray()))

    def signed(
        self, max_bytes: int, producer_id: int, epoch: int, sequence: int, transactional: bool = False
    ) -> memoryview:
        """Return the batch under the identity of our producer, as it is to be produced.

        :param max_bytes: what the target takes, as far as known; where compression makes it larger, it is left out.
        """
        if self.raw is not None and self.raw.header is not None:
            # In place, in the response's own buffer. The header as it was fetched is kept beside it: offsets, counts
            # and codec are asked of that one, whatever the bytes say by now. And once: behind a failure the bytes are
            # fetched again (`PartitionCopy.forget`), and signed with what that opening has found.
            wire_batch.resign(self.raw.view, self.raw.header, producer_id, epoch, sequence, transactional)
            return self.raw.view
        batch = self._compressed(self.codec, producer_id, epoch, sequence, transactional)
        # It was cut by its uncompressed size: that way the target takes it, unless one record alone is too large. Of that
        # one the target may take the shorter form.
        if len(batch) > max_bytes and self.codec != wire_codec.NONE:  # compression makes random bytes longer
            plain = self._compressed(wire_codec.NONE, producer_id, epoch, sequence, transactional)
            batch = min(batch, plain, key=len)
        return batch

    def _compressed(self, number: int, producer_id: int, epoch: int, sequence: int, transactional: bool) -> memoryview:
        assert self.encoded is not None
        batch, base, newest, _, _ = self.encoded
        view = memoryview(batch)
        if number != wire_codec.NONE:
            # What was one batch is compressed as well as its producer's default does it.
            payload = wire_codec.compress(number, view[wire_batch.HEADER_SIZE :], quick=self.merged > 0)
            view = memoryview(bytearray(wire_batch.HEADER_SIZE) + payload)
        attributes = number | (wire_batch.TRANSACTIONAL if transactional else 0)
        wire_batch.sign(view, attributes, self.record_count, base, newest, producer_id, epoch, sequence)
        return view

    @property
    def newest_timestamp(self) -> int:
        """The highest timestamp of its records, in ms."""
        if self.raw is not None and self.raw.header is not None:
            return self.raw.header.max_timestamp
        assert self.encoded is not None
        return self.encoded.newest_timestamp

    @property
    def last_timestamp(self) -> int:
        """The timestamp of its last record, or, for a batch that passes, of its newest; in ms. Costs nothing."""
        if self.raw is not None and self.raw.header is not None:
            return self.raw.header.max_timestamp
        assert self.encoded is not None
        return self.encoded.last_timestamp

    def spans(self) -> array[int]:
        """Return the runs of consecutive source offsets: first offset and count of each, one after the other."""
        return array("q", (self.base_offset, self.record_count)) if self.encoded is None else self.encoded.spans


class Corrupt(NamedTuple):
    """A batch with a broken checksum or payload: the copy of this partition must stop here."""

    start: int
    end: int
    cause: str


def tier_of(header: BatchHeader | None, start: int, end: int, max_bytes: int) -> Tier:
    """Return the tier of a batch of which offsets [start, end) are wanted; magic 0 and 1 have no header here.

    :param max_bytes: the target's ``max.message.bytes``; a larger batch is split by re-encoding.
    """
    if header is None:
        return Tier.REENCODE
    # A marker of the source means nothing on the target, where the records are no transaction's, or one of ours. An
    # empty batch is what the cleaner leaves so that a producer is not forgotten; a broker takes neither (LogValidator).
    if header.is_control or header.record_count <= 0:
        return Tier.DROP
    return Tier.PASS if passes(header, start, end, max_bytes) else Tier.REENCODE


def passes(header: BatchHeader, start: int, end: int, max_bytes: int) -> bool:
    """Return whether a batch passes unchanged: records only, wanted completely, dense, CreateTime and not too large.

    Called for each batch. A batch with an unreadable codec variant (:func:`has_linked_blocks`) is still re-encoded.
    """
    return (
        not header.attributes & _OTHERWISE
        and 0 < header.record_count == header.last_offset_delta + 1
        and start <= header.base_offset
        and header.base_offset + header.record_count <= end
        and header.length + wire_batch.LOG_OVERHEAD <= max_bytes
    )


def damage(raw: RawBatch, start: int) -> Corrupt | None:
    """Check the checksum of a batch of any magic.

    Call this before drawing conclusions from the batch: a corrupt header may claim that the batch is a marker or lies
    below our position, and the batch would be dropped. Re-signing a corrupt batch would hide bit rot forever.

    :param start: everything before it was seen; a legacy wrapper does not state its first offset.
    """
    cause = wire_records.damage(raw)
    if cause is None:
        return None
    first = raw.first_offset if raw.header else min(start, raw.first_offset)
    return Corrupt(first, max(raw.next_offset, first + 1), cause)  # the end is the one that the corrupt header claims


def actions(
    raw: RawBatch, tier: Tier, start: int, end: int, max_bytes: int, *, dense: bool = True,
    wanted: Callable[[bytes | None], bool] | None = None,
) -> Iterator[Send | Corrupt]:  # fmt: skip
    """Yield what must be sent for one intact batch (see :func:`damage`), restricted to offsets [start, end).

    Yields nothing for a dropped batch.

    :param dense: cut at holes, so that every record can keep its offset; otherwise records close up.
    :param wanted: take only records with these keys (key partitioning); needs the re-encode tier.
    """
    header = raw.header
    if tier is Tier.DROP:
        return
    if tier is Tier.PASS and header is not None and not has_linked_blocks(raw, header):
        yield Send.unchanged(raw, header)
        return
    at = max(start, header.base_offset) if header else min(start, raw.first_offset)
    number = header.codec if header else legacy.codec_of(raw.view)
    try:
        if header is None:
            records = wire_records.pack(raw)
        else:
            plain = wire_codec.decompress(number, raw.view[wire_batch.HEADER_SIZE :])
            if wire_batch.HEADER_SIZE + len(plain) > max_bytes:
                # A target that compresses what we send compares what comes of it once more, and random bytes get longer.
                max_bytes -= max_bytes >> 10
            if heart.engine is not None:
                cutter = heart.engine.Cutter(raw.view, plain, start, end, max_bytes, dense, wanted)
                for first, behind, count, size, encoded in cutter:
                    yield Send(first, count, size, number, behind, encoded=Encoded(*encoded))
                    at = start = behind
                if cutter.whole:
                    return
                # What is not as it should be is for Python to judge.
            records = packed.split(plain, header)
        for send in cut(_readable(records, start, end, wanted), number, max_bytes, dense=dense):
            yield send
            at = send.next_source
    except ValueError as e:
        # What was yielded before is sent first; the copy of this partition ends in front of what it can't tell.
        yield Corrupt(at, max(raw.next_offset, at + 1), str(e))


def _readable(
    records: Iterable[Packed], start: int, end: int, wanted: Callable[[bytes | None], bool] | None
) -> Iterator[Packed]:
    """Yield the records that are wanted, lazily: a small compressed batch may hold a million.

    :raises ValueError: at one whose fields can't be read. Nobody else would say which one it is: the target refuses the
        whole batch, or stores it for its readers to fail at.
    """
    for record in records:
        if start <= record.offset < end:
            key, *_ = packed.fields_of(record.body)
            if wanted is None or wanted(key):
                yield record


def has_linked_blocks(raw: RawBatch, header: BatchHeader) -> bool:
    """True for LZ4 that no Kafka broker can read (UNKNOWN_SERVER_ERROR), although other brokers store and serve it."""
    at = wire_batch.HEADER_SIZE + 4  # after the frame's magic number
    # The flag of independent blocks, bit 5 of the frame's first descriptor byte (LZ4 frame format). Without it the Java
    # client and brokers refuse the frame (Lz4BlockInputStream).
    return header.codec == wire_codec.LZ4 and len(raw.view) > at and not raw.view[at] & 0x20


def cut(records: Iterable[Packed], codec: int, max_bytes: int, *, dense: bool) -> Iterator[Send]:
    """Yield records as batches that the target accepts: cut where they grow too large; with ``dense`` also at holes."""
    part = Part()
    for record in records:
        is_behind_hole = dense and part.spans and record.offset != part.behind
        if is_behind_hole or not part.take(record, max_bytes):
            yield part.send(codec)
            part = Part()
            part.take(record, max_bytes)
    if part.spans:
        yield part.send(codec)


class Part:
    """The records of a batch that is encoded anew, in pure Python.

    :ivar behind: the source offset behind the last record. :ivar size: in bytes, uncompressed.
    """

    def __init__(self) -> None:
        self.spans = array("q")  # as of `Send.spans`
        self.size, self.behind = wire_batch.HEADER_SIZE, 0
        self._parts: list[bytes | memoryview] = [bytes(wire_batch.HEADER_SIZE)]
        self._timestamps: list[int] = []

    def take(self, record: Packed, max_bytes: int) -> bool:
        """Append a record; return False if the batch would be larger than that. The first one is taken, however large."""
        since = record.timestamp - self._timestamps[0] if self._timestamps else 0
        frame = packed.frame(since, len(self._timestamps), len(record.body))
        size = self.size + len(frame) + len(record.body)
        if self.spans and size > max_bytes:
            return False
        self._parts += (frame, record.body)
        self._timestamps.append(record.timestamp)
        self.size = size
        if self.spans and record.offset == self.behind:
            self.spans[-1] += 1
        else:
            self.spans.extend((record.offset, 1))
        self.behind = record.offset + 1
        return True

    def send(self, codec: int, merged: int = 0) -> Send:
        """Return the batch."""
        times = self._timestamps
        encoded = Encoded(bytearray().join(self._parts), times[0], max(times), times[-1], self.spans)
        return Send(self.spans[0], len(times), self.size, codec, self.behind, encoded=encoded, merged=merged)
