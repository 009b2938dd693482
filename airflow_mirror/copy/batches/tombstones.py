"""Fillers: records with a reserved key and a null value, which take the offsets of a hole in a compacted topic.

Markers stay in a log forever; fillers do not. The target's log cleaner keeps at most the last record of a key, and not
even that one if its value is null. Until it has run, consumers see the fillers. Their advantages:

- They are ordinary data: same producer id, next sequence. So two copiers can only repeat each other, and the log end
  stays the journal. They need no right that records don't need.
- They are small: 100,000 in a batch of 180 KB, 3 million per second.
- They carry the timestamp of the record before them. A search for any timestamp finds that record first, so it returns
  the same as on the source; and retention treats them like that record.

They use gzip, because every client can read it. Pure: no socket, no clock.
"""

from __future__ import annotations

from functools import lru_cache

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.varint import zigzag

KEY = b"airflow-mirror.filler"
MOST = 100_000  # per batch: 3 MB uncompressed
_FEW = 1_000  # most holes are smaller, and need no template of 3 MB
_SMALLEST, _PER_RECORD = 150, 3  # upper bound of a batch in bytes; measured: 109 for one record, 1.8 per record for many


def filler(start: int, end: int, timestamp_ms: int, max_bytes: int) -> Send:
    """Return a batch that fills the hole [start, end), or as much of its start as fits into one batch.

    :param timestamp_ms: timestamp of the record before the hole.
    :param max_bytes: largest batch that the target accepts.
    """
    # As much as one batch takes. Each is a write of its own: a death between two leaves a shorter hole, at whose start
    # the next opening finds the log's end.
    count = max(1, min(end - start, MOST, (max_bytes - _SMALLEST) // _PER_RECORD))
    # Not signed yet: the loop signs it like a batch that passes unchanged.
    view = wire_batch.build(_compressed(count), codec.GZIP, count, timestamp_ms, timestamp_ms, -1, -1, -1)
    raw = next(wire_batch.iter_batches(view))
    return Send(start, count, len(view), codec.GZIP, start + count, raw, filler=True)


def is_filler(raw: RawBatch) -> bool:
    """Return whether a batch holds only fillers. Decompresses only batches that look like it."""
    header = raw.header
    if header is None or header.codec != codec.GZIP or header.is_control or not header.is_dense:
        return False
    count = header.record_count
    if not 0 < count <= MOST or header.size > _SMALLEST + _PER_RECORD * count:
        return False
    try:
        # Every byte: a record that looked like a filler and was none would be passed over when both logs are compared.
        return bytes(codec.decompress(codec.GZIP, raw.view[wire_batch.HEADER_SIZE :])) == _records(count)
    except ValueError:
        return False


def is_filler_record(record: Record) -> bool:
    """Return whether a record is a filler: the log cleaner may have left one of a batch."""
    return record.key == KEY and record.value is None


@lru_cache(maxsize=64)
def _compressed(count: int) -> bytes:
    return bytes(codec.compress(codec.GZIP, _records(count)))


def _records(count: int) -> bytes:
    """Return ``count`` encoded fillers: a prefix of the longest possible sequence of them."""
    return _template(_FEW if count <= _FEW else MOST)[: _length(count)]


@lru_cache(maxsize=2)
def _template(count: int) -> bytes:
    tail = zigzag(len(KEY)) + KEY + b"\x01\x00"  # key, null value, no headers
    bodies = (b"\0\0" + zigzag(delta) + tail for delta in range(count))  # attributes, timestamp delta 0, offset delta
    return b"".join(zigzag(len(body)) + body for body in bodies)


def _length(count: int) -> int:
    """Return the size in bytes of ``count`` fillers; only the varint of the offset delta grows, at 64 and at 8192."""
    one = len(KEY) + 7
    return one * count + max(0, count - 64) + max(0, count - 8192)
