"""Records of a batch as values, and back: the slow path, for batches that can't pass as they are.

The inner loop is aiokafka's C codec; compression and the header are ours (`codec`, `batch`), so that it is given plain
records only. Timestamps are what a consumer sees: for a LogAppendTime batch, every record has the batch's maxTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire.batch import BatchHeader, RawBatch

_UNLIMITED = 2**31 - 1


class Record(NamedTuple):
    """A record as a consumer sees it. ``timestamp`` in ms; header values may be None, names may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode(raw: RawBatch) -> list[Record]:
    """Return the records of a batch of any magic, in order, each with its own offset.

    :raises ValueError: if the payload can't be decompressed or parsed.
    """
    if raw.header is None:
        return _decode_legacy(raw.view)
    plain = _uncompressed(raw.view, raw.header)
    return [Record(r.offset, r.timestamp, r.key, r.value, r.headers) for r in DefaultRecordBatch(plain)]


def encode(records: Sequence[Record], codec_number: int, producer_id: int, epoch: int, sequence: int) -> memoryview:
    """Encode records with consecutive offsets as one batch with base offset 0, ready to be produced."""
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
        codec_number,
        len(records),
        timestamps[0],
        max(timestamps),
        producer_id,
        epoch,
        sequence,
    )


def dense_runs(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Cut records at every hole between their offsets: each run can be one batch."""
    run: list[Record] = []
    for record in records:
        if run and record.offset != run[-1].offset + 1:
            yield run
            run = []
        run.append(record)
    if run:
        yield run


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


def _decode_legacy(view: memoryview) -> list[Record]:
    """Magic 0 and 1 message sets: offsets inside a compressed wrapper are absolute (0) or relative (1)."""
    records: list[Record] = []
    batches = MemoryRecords(bytes(view))
    while (legacy := batches.next_batch()) is not None:
        for r in legacy:
            # Magic 0 has no timestamp; -1 is what Kafka's own consumer shows (RecordBatch.NO_TIMESTAMP).
            timestamp = -1 if r.timestamp is None else r.timestamp
            records.append(Record(r.offset, timestamp, r.key, r.value, []))
    return records
