"""Read, check and re-sign the 61-byte header of a record batch. Bytes in, values out; nothing here blocks.

The rules below are enforced here; breaking one loses data (class names are Kafka's):

- ``last_offset_delta`` is never edited. A batch whose count differs from ``last_offset_delta + 1`` has holes. If only
  its header were edited, a broker would accept an uncompressed one and silently corrupt the log (LogValidator.
  assignOffsetsNonCompressed does not compare inner offset deltas). Such a batch goes through the re-encoder.
- The CRC-32C covers bytes 21 to the end and is checked *before* a header is re-signed; otherwise bit rot on the source
  would get a valid checksum on the target. The compiled heart derives the new one from the one that was checked, without
  another look at the records: what changes in memory in between doesn't fit it either, and the target refuses it.
- Bits 0x08 (LogAppendTime), 0x40 (delete horizon) and 0x10 (transactional) are cleared: on the target the batch is an
  ordinary one of our own producer id. A kept 0x40 would make the target's log cleaner drop tombstones early.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import crc32c

from airflow_mirror.wire import heart

# Base offset 0, length 8, leader epoch 12, magic 16, CRC 17, attributes 21, last offset delta 23, base timestamp 27,
# max timestamp 35, producer id 43, its epoch 51, base sequence 53, record count 57, records 61 (DefaultRecordBatch,
# KIP-98).
HEADER = struct.Struct(">qiibIhiqqqhii")  # all 61 bytes of a magic 2 batch
HEADER_SIZE = HEADER.size
_PREFIX = struct.Struct(">qiib")  # base offset, length, (leader epoch | crc), magic: common to every magic
_SIGNED = struct.Struct(">hiqqqhi")  # attributes .. base sequence, at byte 21
_CRC_AT, _SIGNED_AT, _MAGIC_AT = 17, 21, 16
LOG_OVERHEAD = 12  # base offset and length precede the bytes that the length counts
_SHORTEST = {0: 26, 1: 34, 2: HEADER_SIZE}  # bytes of the smallest batch of each magic

# The attributes. LogAppendTime: KIP-32; transactional, control: KIP-98; delete horizon (base timestamp is the time from
# which the cleaner may drop tombstones): KIP-534.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
MAX_SEQUENCE = 2**31  # sequences wrap to 0 after 2^31 - 1


class BatchHeader(NamedTuple):
    """The header of a magic 2 batch, field by field (KIP-98)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.length + LOG_OVERHEAD

    @property
    def next_offset(self) -> int:
        """The offset after the batch. Advance by it, never by the last record, which compaction may have removed."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        """True for a batch that holds a transaction marker."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True for data written in a transaction, and for transaction markers."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_dense(self) -> bool:
        """True if every offset of the batch holds a record."""
        return self.record_count == self.last_offset_delta + 1


class RawBatch(NamedTuple):
    """One whole batch inside a buffer. ``header`` is None for magic 0 and 1, which have a different layout."""

    view: memoryview
    magic: int
    header: BatchHeader | None

    @property
    def first_offset(self) -> int:
        """The base offset. For a wrapper of magic 0 or 1 this field holds the *last* offset instead."""
        return int.from_bytes(self.view[:8], "big", signed=True)

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.header.next_offset if self.header is not None else self.first_offset + 1


class BrokenFrame(ValueError):
    """The bytes where a batch should begin are not a batch: the length or the magic is impossible.

    :ivar offset: the base offset in those bytes.
    """

    def __init__(self, offset: int, size: int, magic: int) -> None:
        self.offset = offset
        super().__init__(f"no batch begins where one should (it would have magic {magic} and {size} bytes)")


def iter_batches(records: memoryview) -> Iterator[RawBatch]:
    """Yield the complete batches of a fetched ``records`` field; a truncated last batch is skipped (KIP-74).

    :raises BrokenFrame: the bytes are not a batch; the intact batches before it have been yielded.
    """
    at = 0
    while (raw := batch_at(records, at)) is not None:
        yield raw
        at += len(raw.view)


def batch_at(records: memoryview, at: int) -> RawBatch | None:
    """Return the batch that begins at byte ``at``; None if it is truncated, or at the end.

    :raises BrokenFrame: as :func:`iter_batches`.
    """
    frame = _frame(records, at)
    if frame is None:
        return None
    stop, magic = frame
    return RawBatch(records[at:stop], magic, BatchHeader._make(HEADER.unpack_from(records, at)) if magic == 2 else None)


def _frame(records: memoryview, at: int) -> tuple[int, int] | None:
    """Return where the batch at byte ``at`` ends, and its magic; None if it is truncated, or at the end."""
    end = len(records)
    if end - at <= LOG_OVERHEAD + 5:
        return None
    offset, length, _, magic = _PREFIX.unpack_from(records, at)
    stop = at + LOG_OVERHEAD + length
    # Also where the batch is cut off: a length that is too small would have the same bytes read for ever.
    if stop - at < _SHORTEST.get(magic, 1 << 40):
        raise BrokenFrame(offset, stop - at, magic)
    return (stop, magic) if stop <= end else None


def scan(records: memoryview) -> tuple[int, int]:
    """Return the number of complete batches and the offset after them (0 without any), from their frames.

    :raises BrokenFrame: as :func:`iter_batches`.
    """
    counted: tuple[int, int] | None = None if heart.engine is None else heart.engine.scan(records)
    if counted is not None:
        return counted
    count, last, at = 0, 0, 0
    while (frame := _frame(records, at)) is not None:
        count, last, at = count + 1, at, frame[0]
    return (count, next(iter_batches(records[last:])).next_offset) if count else (0, 0)


def follows(records: memoryview, at: int) -> int | None:
    """Return the base offset of the batch at byte ``at``; None if there is none or the bytes can't be one."""
    if len(records) - at <= LOG_OVERHEAD + 5:
        return None
    offset, length, _, magic = _PREFIX.unpack_from(records, at)
    return int(offset) if LOG_OVERHEAD + length >= _SHORTEST.get(magic, 1 << 40) else None


def crc_is_valid(view: memoryview, header: BatchHeader) -> bool:
    """Return whether the stored CRC-32C matches the bytes."""
    return crc32c.crc32c(view[_SIGNED_AT:]) == header.crc


def resign(
    view: memoryview, header: BatchHeader, producer_id: int, epoch: int, sequence: int, transactional: bool = False
) -> None:
    """Make a dense batch ours, in place: base offset 0, our producer identity, a new CRC. The payload is unchanged.

    :param view: writable view of exactly this batch, whose CRC was found to be right.
    :param sequence: sequence of the first record, in [0, 2^31).
    :param transactional: the batch is sent in one of our transactions.
    :raises ValueError: the batch must not pass unchanged (holes, control, LogAppendTime).
    """
    if not header.is_dense or header.attributes & (CONTROL | LOG_APPEND_TIME) or header.magic != 2:
        raise ValueError(f"batch at offset {header.base_offset} must not pass through: {header}")
    # A broker refuses any other base offset from a producer (INVALID_RECORD, measured), and writes the log's own.
    struct.pack_into(">q", view, 0, 0)
    struct.pack_into(">i", view, LOG_OVERHEAD, -1)  # leader epoch: the broker writes its own
    signed = bytes(view[_SIGNED_AT:HEADER_SIZE])
    # Never under the source's producer, whose sequences a broker would compare: a mirror has not all of them.
    _SIGNED.pack_into(
        view,
        _SIGNED_AT,
        header.attributes & CODEC_MASK | (TRANSACTIONAL if transactional else 0),
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        producer_id,
        epoch,
        sequence,
    )
    if heart.engine is None:
        crc = crc32c.crc32c(view[_SIGNED_AT:])
    else:  # not `header.crc`: an earlier signature of ours may stand there
        (crc,) = struct.unpack_from(">I", view, _CRC_AT)
        following = len(view) - HEADER_SIZE
        crc = heart.engine.crc_with_another_begin(crc, signed, view[_SIGNED_AT:HEADER_SIZE], following)
    struct.pack_into(">I", view, _CRC_AT, crc)


def build(
    payload: bytes,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    epoch: int,
    sequence: int,
) -> memoryview:
    """Prepend a signed header with base offset 0 to an encoded, dense payload of ``count`` records.

    :param attributes: the codec, plus TRANSACTIONAL in a transaction.
    """
    view = memoryview(bytearray(HEADER_SIZE + len(payload)))
    view[HEADER_SIZE:] = payload
    sign(view, attributes, count, base_timestamp, max_timestamp, producer_id, epoch, sequence)
    return view


def sign(
    view: memoryview,
    attributes: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    epoch: int,
    sequence: int,
) -> None:
    """Write a header as :func:`build` does, in front of a payload that is in its place already."""
    HEADER.pack_into(
        view, 0, 0, len(view) - LOG_OVERHEAD, -1, 2, 0, attributes, count - 1, base_timestamp, max_timestamp,
        producer_id, epoch, sequence, count,
    )  # fmt: skip
    struct.pack_into(">I", view, _CRC_AT, crc32c.crc32c(view[_SIGNED_AT:]))


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence after ``count`` records from ``sequence`` (DefaultRecordBatch.incrementSequence)."""
    # A broker compares the next batch's with this: one that is lower is a repetition, or refused; one that is higher
    # shows that a batch is missing. Only of a producer that it has forgotten it takes any.
    return (sequence + count) % MAX_SEQUENCE
