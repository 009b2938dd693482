"""Decode the records of a batch, and encode records as one: what a comparison and the ledger do.

A copy handles records as bytes (`packed`). The inner loop of :func:`decode` is aiokafka's C codec; compression and the
header are handled here, so the codec only sees plain records. Where it would not be exact, records are handled as bytes.
Timestamps are those that a consumer sees: in a LogAppendTime batch, every record has the batch's maxTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, legacy, packed
from airflow_mirror.wire.batch import BatchHeader, RawBatch
from airflow_mirror.wire.packed import Packed


class Record(NamedTuple):
    """A record as a consumer sees it. ``timestamp`` in ms; header names are arbitrary bytes and may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


def decode(raw: RawBatch) -> Iterator[Record]:
    """Yield the records of a batch of any magic in order, each with its own offset.

    One at a time, because a small compressed batch may hold a million of them.

    :raises ValueError: the payload can't be decompressed or parsed.
    """
    if raw.header is None:
        yield from (Record(*message, []) for message in legacy.decode(raw.view))
        return
    plain = _uncompressed(raw.view, raw.header)
    done = 0
    try:
        # Its checksum is not looked at here, and does not fit any more where the payload was decompressed: see
        # `damage`.
        for r in DefaultRecordBatch(plain):
            headers = r.headers
            if headers:
                headers = [(name.encode(), value) for name, value in headers]
            yield Record(r.offset, r.timestamp, r.key, r.value, headers)
            done += 1
        return
    except UnicodeDecodeError:
        pass  # a header name is not UTF-8; brokers accept it, and so do we
    except Exception as e:  # codec errors, index and type errors all mean invalid records
        raise _no_records(plain, raw.header.record_count, e) from e
    for record in islice(packed.split(memoryview(plain)[wire_batch.HEADER_SIZE :], raw.header), done, None):
        yield Record(record.offset, record.timestamp, *packed.fields_of(record.body))


def pack(raw: RawBatch) -> Iterator[Packed]:
    """Yield the records of a batch of any magic as bytes, in order.

    :raises ValueError: as :func:`decode`; the records before the first invalid one have been yielded.
    """
    if raw.header is None:
        for m in legacy.decode(raw.view):
            yield Packed(m.offset, m.timestamp, packed.body_of(m.key, m.value, ()))
        return
    payload = codec.decompress(raw.header.codec, raw.view[wire_batch.HEADER_SIZE :])
    yield from packed.split(payload, raw.header)


def damage(raw: RawBatch) -> str | None:
    """Return why a batch of any magic fails its checksum; None if it does not."""
    if raw.header is None:
        return None if legacy.crc_is_valid(raw.view) else "its CRC-32 does not fit its bytes"
    # Before the header is changed, and before it is believed: signing computes a new one, which fits whatever is there.
    return None if wire_batch.crc_is_valid(raw.view, raw.header) else "its CRC-32C does not fit its bytes"


def encode(
    records: Sequence[Record], codec_number: int, producer_id: int, epoch: int, sequence: int, transactional: bool = False
) -> memoryview:
    """Encode records as one batch with consecutive offsets from base offset 0, ready to be produced."""
    exact = [Packed(r.offset, r.timestamp, packed.body_of(r.key, r.value, r.headers)) for r in records]
    return wire_batch.build(
        bytes(codec.compress(codec_number, packed.join(exact))),
        codec_number | (wire_batch.TRANSACTIONAL if transactional else 0),
        len(records),
        records[0].timestamp,
        max(record.timestamp for record in records),
        producer_id,
        epoch,
        sequence,
    )


def _no_records(plain: bytes, count: int, cause: Exception) -> ValueError:
    return ValueError(f"payload of {len(plain)} bytes holds no {count} records: {cause!r}")


def _uncompressed(view: memoryview, header: BatchHeader) -> bytes:
    """Return the batch with its payload decompressed and the codec bits cleared; the CRC is not updated."""
    if header.codec == codec.NONE:
        return bytes(view)
    payload = codec.decompress(header.codec, view[wire_batch.HEADER_SIZE :])
    plain = header._replace(
        length=wire_batch.HEADER_SIZE + len(payload) - wire_batch.LOG_OVERHEAD,
        attributes=header.attributes & ~wire_batch.CODEC_MASK,
    )
    return wire_batch.HEADER.pack(*plain) + payload
