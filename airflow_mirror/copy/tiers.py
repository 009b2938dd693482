"""Which batch goes which way, decided from its header alone, and how a fetched stretch becomes actions.

Three tiers (design, section 2): *pass* the payload as it is under a new header; *re-encode* the batch, keeping each
record's offset; *drop* it and leave a hole. The copier turns holes into padding, so that offsets stay equal.

Pure: no socket, no clock. The same functions are used by the copier and by the fingerprint check at start.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import BatchHeader, RawBatch
from airflow_mirror.wire.codec import ZSTD
from airflow_mirror.wire.records import Record

ABORT_MARKER = 0


class Tier(Enum):
    """What is done with a batch."""

    PASS = "pass"
    REENCODE = "reencode"
    DROP = "drop"


class Send(NamedTuple):
    """Produce one batch: its first record must land at ``base_offset``.

    ``raw`` is signed and sent as it is; without it, ``records`` (consecutive offsets) are encoded with ``codec``.
    ``next_source`` is where the source position stands once it is acknowledged.
    """

    base_offset: int
    record_count: int
    size: int
    raw: RawBatch | None
    records: list[Record]
    codec: int
    next_source: int


class Corrupt(NamedTuple):
    """A batch whose checksum or payload is broken: the copy of this partition must stop here."""

    start: int
    end: int
    cause: str


def tier_of(header: BatchHeader | None, start: int, end: int, max_bytes: int) -> Tier:
    """Return the tier of a batch of which offsets [start, end) are wanted; magic 0 and 1 have no header here.

    :param max_bytes: the target's ``max.message.bytes``; a larger batch is split by re-encoding.
    """
    if header is None:
        return Tier.REENCODE
    if header.is_control or header.record_count <= 0:
        return Tier.DROP
    whole = start <= header.base_offset and header.next_offset <= end
    passes = whole and header.is_dense and not header.attributes & wire_batch.LOG_APPEND_TIME and header.size <= max_bytes
    return Tier.PASS if passes else Tier.REENCODE


class AbortedFilter:
    """Tells which transactional batches of one fetch response were aborted (KIP-98, consumer's algorithm).

    A response lists every aborted transaction that overlaps it, so the state starts anew with each response.

    :param aborted: (producer id, first offset) pairs of the response.
    """

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._active: set[int] = set()

    def is_aborted(self, raw: RawBatch) -> bool:
        """Say whether ``raw`` is aborted data; batches must be shown in log order, markers too."""
        header = raw.header
        if header is None:
            return False
        while self._pending and self._pending[-1][1] < header.next_offset:
            self._active.add(self._pending.pop()[0])
        if header.is_control:
            if marker_type(raw) == ABORT_MARKER:
                self._active.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._active


def marker_type(raw: RawBatch) -> int | None:
    """Return a control batch's type (0 abort, 1 commit; others belong to KRaft), None when it was emptied."""
    for record in wire_records.decode(raw):
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4], "big")
    return None


def actions(raw: RawBatch, tier: Tier, start: int, end: int, max_bytes: int) -> Iterator[Send | Corrupt]:
    """Yield what must be sent for one batch, restricted to offsets [start, end). Nothing for a dropped one.

    The source's checksum is verified first: a re-signed batch would hide bit rot for ever.
    """
    header = raw.header
    if header is not None and not wire_batch.crc_is_valid(raw.view, header):
        yield Corrupt(header.base_offset, header.next_offset, "its CRC-32C does not fit its bytes")
        return
    if tier is Tier.DROP:
        return
    if tier is Tier.PASS and header is not None:
        yield Send(header.base_offset, header.record_count, header.size, raw, [], 0, header.next_offset)
        return
    try:
        records = [r for r in wire_records.decode(raw) if start <= r.offset < end]
    except ValueError as e:
        first = header.base_offset if header else start
        yield Corrupt(first, header.next_offset if header else first + 1, str(e))
        return
    codec = header.codec if header else ZSTD
    for run in wire_records.dense_runs(records):
        yield from _split(run, codec, max_bytes)


def _split(run: list[Record], codec: int, max_bytes: int) -> Iterator[Send]:
    """Yield a run as one batch, or as several when its records are too large for the target together."""
    part: list[Record] = []
    size = wire_batch.HEADER_SIZE
    for record in run:
        record_size = _encoded_size(record)
        if part and size + record_size > max_bytes:
            yield _send(part, size, codec)
            part, size = [], wire_batch.HEADER_SIZE
        part.append(record)
        size += record_size
    if part:
        yield _send(part, size, codec)


def _send(records: list[Record], size: int, codec: int) -> Send:
    return Send(records[0].offset, len(records), size, None, records, codec, records[-1].offset + 1)


def _encoded_size(record: Record) -> int:
    """Upper bound of a record's uncompressed size: 5 varints of at most 5 bytes, one varlong of 10, attributes."""
    headers = sum(10 + 4 * len(name) + len(value or b"") for name, value in record.headers)
    return 36 + len(record.key or b"") + len(record.value or b"") + headers
