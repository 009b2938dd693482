"""Logs as a source may have them, written byte for byte: what a test needs is never left to a client's timing."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from tests.driven import records
from tests.driven.log import PartitionLog
from tests.driven.records import Row

TIME_MS = 1_700_000_000_000  # 2023: older than any producer is remembered


def row(offset: int, size: int = 20) -> Row:
    """Return a record that is like no other: its time is no monotonic function of its offset, keys come again."""
    key = None if offset % 7 == 3 else b"key-%d" % (offset % 5)
    value = None if offset % 11 == 4 else b"%d:" % offset + bytes([offset % 251]) * size
    headers = (("h", None), ("h", b"%d" % offset)) if offset % 3 == 0 else ()
    return Row(offset, TIME_MS + (offset * 7919) % 10_007, key, value, headers)


class Writer:
    """Appends to a log as brokers have it, from ``log.end`` on.

    :param key: give every record a key, as a compacted topic demands.
    """

    def __init__(self, log: PartitionLog, *, keyed: bool = False) -> None:
        self._log, self._keyed = log, keyed
        self._sequences: dict[int, int] = {}

    def plain(self, count: int, codec_number: int = codec.NONE, size: int = 20) -> None:
        """A batch of an ordinary producer."""
        self._lay(self._rows(count, size), codec_number=codec_number)

    def holed(self, kept: Sequence[int], span: int, codec_number: int = codec.NONE) -> None:
        """A batch of ``span`` offsets of which the cleaner kept some, counted from 0; none: an empty batch."""
        base = self._log.end
        rows = [self._row(base + delta, 20) for delta in kept]
        self._lay(rows, codec_number=codec_number, base_offset=base, last_offset=base + span - 1)

    def append_time(self, count: int, timestamp: int) -> None:
        """A batch that the broker stamped."""
        content = records.encode(self._rows(count, 20), attributes=wire_batch.LOG_APPEND_TIME)
        self._log.lay(records.changed(content, max_timestamp=timestamp, leader_epoch=self._log.epoch))

    def in_transaction(self, producer_id: int, count: int, epoch: int = 0, codec_number: int = codec.NONE) -> None:
        """A batch inside a transaction."""
        self._numbered(producer_id, count, epoch, codec_number, attributes=wire_batch.TRANSACTIONAL)

    def idempotent(self, producer_id: int, count: int, codec_number: int = codec.NONE) -> None:
        """A batch of a producer that numbers its batches."""
        self._numbered(producer_id, count, 0, codec_number, attributes=0)

    def end(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        """A transaction's marker."""
        self._log.append_marker(producer_id, epoch, commit=commit, coordinator_epoch=0)

    def skip(self, count: int) -> None:
        """Offsets at which there is nothing at all: the cleaner took whole batches."""
        self._log.end += count

    def _numbered(self, producer_id: int, count: int, epoch: int, codec_number: int, attributes: int) -> None:
        self._lay(
            self._rows(count, 20), codec_number=codec_number, producer_id=producer_id, epoch=epoch,
            sequence=self._sequences.get(producer_id, 0), attributes=attributes,
        )  # fmt: skip
        self._sequences[producer_id] = self._sequences.get(producer_id, 0) + count

    def _rows(self, count: int, size: int) -> list[Row]:
        return [self._row(self._log.end + i, size) for i in range(count)]

    def _row(self, offset: int, size: int) -> Row:
        made = row(offset, size)
        return made._replace(key=b"none") if self._keyed and made.key is None else made

    def _lay(self, rows: Sequence[Row], **settings: int) -> None:
        self._log.lay(records.encode(rows, leader_epoch=self._log.epoch, **settings))


def lose(log: PartitionLog, offset: int) -> None:
    """Let the cleaner take one record: its batch keeps its offsets."""
    (number,) = (i for i, one in enumerate(log.batches) if one.base_offset <= offset < one.next_offset)
    stored = log.batches[number]
    rows = [row for row in records.decode(stored.content) if row.offset != offset]
    content = records.encode(rows, base_offset=stored.base_offset, last_offset=stored.next_offset - 1)
    log.batches[number] = stored._replace(content=content, header=records.header_of(content))


def hostile(log: PartitionLog) -> None:
    """Fill a log with what is hard to copy, in few batches: a start above 0, holes, producers, all codecs."""
    log.begin_at(50)
    writer = Writer(log)
    writer.plain(6, codec.LZ4)
    log.begin_at(52)  # inside of a batch
    writer.plain(3)
    writer.holed((0, 2, 5), 9, log.release.newest_codec)
    writer.holed((), 4)
    writer.append_time(3, TIME_MS - 5)
    writer.in_transaction(7, 3, codec_number=codec.GZIP)
    writer.in_transaction(8, 2)
    writer.end(7, commit=True)
    writer.in_transaction(8, 2)
    writer.end(8, commit=False)
    writer.skip(5)
    writer.plain(4, codec.SNAPPY)
    writer.idempotent(9, 3)
    writer.idempotent(9, 2, codec.LZ4)
    writer.in_transaction(7, 2)
    writer.end(7, commit=True)
