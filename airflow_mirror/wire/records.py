"""Records of a batch as values, and back: the slow path, for batches that can't pass as they are.

The inner loop is aiokafka's C codec; compression and the header are ours (`codec`, `batch`), so that it is given plain
records only. Timestamps are what a consumer sees: for a LogAppendTime batch, every record has the batch's maxTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, legacy
from airflow_mirror.wire.batch import BatchHeader, RawBatch

_UNLIMITED = 2**31 - 1


class Record(NamedTuple):
    """A record as a consumer sees it. ``timestamp`` in ms; header values may be None, names may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode(raw: RawBatch) -> Iterator[Record]:
    """Yield the records of a batch of any magic, in order, each with its own offset.

    One at a time: a small compressed batch may hold a million of them.

    :raises ValueError: if the payload can't be decompressed or parsed.
    """
    if raw.header is None:
        yield from (Record(*message, []) for message in legacy.decode(raw.view))
        return
    plain = _uncompressed(raw.view, raw.header)
    try:
        for r in DefaultRecordBatch(plain):
            yield Record(r.offset, r.timestamp, r.key, r.value, r.headers)
    except Exception as e:  # the codec's own errors, index and type errors: all mean that the bytes are no records
        raise ValueError(f"payload of {len(plain)} bytes holds no {raw.header.record_count} records: {e!r}") from e


def uncompressed(raw: RawBatch, most: int) -> bytes | None:
    """Return a batch of magic 2 with its payload decompressed; None if that has more than ``most`` bytes.

    :raises ValueError: if the payload can't be decompressed.
    """
    assert raw.header is not None
    plain = _uncompressed(raw.view, raw.header)
    return plain if len(plain) <= most else None


def decode_plain(plain: bytes) -> list[Record]:
    """Return the records of a batch whose payload is not compressed, as the codec's own objects.

    They have a Record's fields and are made in C, in a third of the time; they are equal to nothing but themselves.

    :raises ValueError: if it can't be parsed.
    """
    try:
        return list(DefaultRecordBatch(plain))
    except Exception as e:  # the codec's own errors, index and type errors: all mean that the bytes are no records
        raise ValueError(f"payload of {len(plain)} bytes holds no records: {e!r}") from e


def damage(raw: RawBatch) -> str | None:
    """Return what is broken about a batch of any magic as its checksum tells, None when nothing is."""
    if raw.header is None:
        return None if legacy.crc_is_valid(raw.view) else "its CRC-32 does not fit its bytes"
    return None if wire_batch.crc_is_valid(raw.view, raw.header) else "its CRC-32C does not fit its bytes"


def encode(
    records: Sequence[Record], codec_number: int, producer_id: int, epoch: int, sequence: int, transactional: bool = False
) -> memoryview:
    """Encode records as one batch with consecutive offsets from base offset 0, ready to be produced."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=_UNLIMITED,
    )  # fmt: skip
    for delta, record in enumerate(records):
        builder.append(delta, record.timestamp, record.key, record.value, record.headers)
    payload = memoryview(builder.build())[wire_batch.HEADER_SIZE :]
    timestamps = [record.timestamp for record in records]
    return wire_batch.build(
        bytes(codec.compress(codec_number, payload)),
        codec_number | (wire_batch.TRANSACTIONAL if transactional else 0),
        len(records),
        timestamps[0],
        max(timestamps),
        producer_id,
        epoch,
        sequence,
    )


def _uncompressed(view: memoryview, header: BatchHeader) -> bytes:
    """Return the batch with its payload decompressed and the codec bits cleared; its CRC is not renewed."""
    if header.codec == codec.NONE:
        return bytes(view)
    payload = codec.decompress(header.codec, view[wire_batch.HEADER_SIZE :])
    plain = header._replace(
        length=wire_batch.HEADER_SIZE + len(payload) - wire_batch.LOG_OVERHEAD,
        attributes=header.attributes & ~wire_batch.CODEC_MASK,
    )
    return wire_batch.HEADER.pack(*plain) + payload
