"""Compare records of both sides by a digest of everything that a consumer sees. Errors never contain payload."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import xxhash

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.batches import tiers, tombstones
from airflow_mirror.copy.batches.tiers import Corrupt
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import CorruptBatch
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.single import read_batches

# Usually one batch is compared, which a broker sends whole, however large; fetching more bytes would be wasted.
GLANCE_BYTES = 1 << 17
_HEAD = struct.Struct("<qii")  # timestamp, and lengths of key and value, -1 for none


def committed_records(
    cluster: WireCluster, tp: TopicPartition, start: int, end: int, isolation: int
) -> dict[int, Record]:
    """Return the records in [start, end) that a consumer with this isolation would see, by offset."""
    records: dict[int, Record] = {}
    fetched = read_batches(cluster, tp, start, end, isolation=isolation, max_bytes=GLANCE_BYTES)
    for raw in data_batches(fetched, committed=isolation == READ_COMMITTED):
        records.update((r.offset, r) for r in decoded(raw, tp, cluster.role) if start <= r.offset < end)
    return records


def decoded(raw: RawBatch, tp: TopicPartition, side: str) -> list[Record]:
    """Return the records of a batch that was copied earlier.

    :raises CorruptBatch: it was damaged since, so nothing can be compared with it.
    """
    # Before it is compared: bytes that have rotted would look like another writer's, whose remedy is to delete the topic.
    corrupt = tiers.damage(raw, raw.first_offset)
    if corrupt is None:
        try:
            return list(wire_records.decode(raw))
        except ValueError as e:
            corrupt = Corrupt(raw.first_offset, raw.next_offset, str(e))
    raise CorruptBatch(
        tp.topic, tp.partition, corrupt.start, corrupt.end,
        f"the {side}'s batch with which the copy would be compared is broken: {corrupt.cause}",
        f"Nothing was written. Restore it from another replica of the {side}.",
    )  # fmt: skip


def digest(record: Record) -> str:
    """Return a short digest of timestamp, key, value and headers."""
    return xxhash.xxh3_64_hexdigest(repr((record.timestamp, record.key, record.value, record.headers)).encode())


def number_of(record: Record, *, timed: bool = True) -> int:
    """Return the digest as a number of 64 bits, several times as fast.

    :param timed: the timestamp counts, too.
    """
    key, value = record.key, record.value
    lengths = (-1 if part is None else len(part) for part in (key, value))
    head = _HEAD.pack(record.timestamp if timed else 0, *lengths)
    headers = repr(record.headers).encode() if record.headers else b""
    return xxhash.xxh3_64_intdigest(b"".join((head, key or b"", value or b"", headers)))


def first_foreign(
    copy_range: CopyRange, ours: RawBatch, theirs: Sequence[RawBatch], log_start: int
) -> tuple[int, str] | None:
    """Compare a batch of the target with the source at the same offsets; return the first difference and what it is.

    If the source lacks a record, the source's log at that offset decides:

    - A marker: no record was ever stored there, so the target's record is foreign.
    - Nothing: only the log cleaner removes offsets, and it may have removed the record since. That proves nothing,
      whoever wrote the record (after a failback it was not this mirror).

    :param theirs: every batch of the source that overlaps ``ours``, including markers and aborted batches.
    :param log_start: log start offset of the source; records below it prove nothing.
    :raises CorruptBatch: one of the batches can't be read, and they are not the same byte for byte.
    """
    # First, because it needs no decoding: a batch that nobody can read is the same if its bytes are.
    if wire_records.damage(ours) is None and any(_same_bytes(ours, raw) for raw in theirs):
        return None
    originals: dict[int, Record] = {}
    markers: list[range] = []
    for raw in theirs:
        if raw.header is not None and raw.header.is_control:
            markers.append(range(raw.header.base_offset, raw.header.next_offset))
        else:
            originals.update((r.offset, r) for r in decoded(raw, copy_range.source, "source"))
    for record in decoded(ours, copy_range.target, "target"):
        other = originals.get(record.offset)
        if record.offset < log_start:
            continue
        is_filler = tombstones.is_filler_record(record)  # one that the cleaner left of a batch
        if other is None and not is_filler and any(record.offset in marker for marker in markers):
            return record.offset, f"a control marker on the source, the record {digest(record)} on the target"
        if other is not None and digest(other) != digest(record):
            return record.offset, f"source {digest(other)}, target {digest(record)}"
    return None


def _same_bytes(a: RawBatch, b: RawBatch) -> bool:
    """Return whether two batches are the same for a consumer, without decoding them: they may be unreadable."""
    if a.header is None or b.header is None or (a.header.attributes | b.header.attributes) & LOG_APPEND_TIME:
        return False
    return _frame(a.header) == _frame(b.header) and bytes(a.view[HEADER_SIZE:]) == bytes(b.view[HEADER_SIZE:])


def _frame(h: BatchHeader) -> tuple[int, ...]:
    return h.base_offset, h.last_offset_delta, h.record_count, h.base_timestamp, h.codec
