"""Compare two logs batch by batch and record by record. Pure: batches in, verdict out; no socket, no clock.

Both sides are read once, in step, and only the current batch is decoded: memory does not grow with the topic.

- If both sides have a batch with the same frame and the same payload digest, the whole batch is equal, undecoded.
- Otherwise (the copy re-encoded it, compaction ran on one side, the window cuts it) records are compared one by one,
  until both sides are at a batch boundary again.

The first difference ends the comparison. Later differences are often one shift of all records, and would hide the
cause.

In a compacted topic, records that only one side has are no difference while a later one of their key follows
(:mod:`airflow_mirror.verify.compaction`).

With mapped offsets, each source record is compared with the target record that the offset map names. The map itself
proves nothing: a record that is missing there, or one that the map does not contain, is a difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import xxhash

from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.offsets.map import OffsetMap, Where
from airflow_mirror.verify.compaction import Gaps
from airflow_mirror.verify.result import Difference, Evidence, evidence
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.records import Record

# Consumers see only these two attributes; the others differ between a log and its copy by design.
_VISIBLE = wire_batch.CODEC_MASK | wire_batch.LOG_APPEND_TIME


class Tally(NamedTuple):
    """The equal part of two logs: number of ``records`` of the source, and ``bytes`` of its batches.

    ``fillers``: tombstones of the reserved key that the target holds in the holes of a compacted topic.
    ``expired``: records of one side that the other side's retention deleted during the comparison.
    ``gaps``: of a compacted topic, what only one side has and is still to be judged.
    """

    records: int
    bytes: int
    difference: Difference | None
    fillers: int = 0
    expired: int = 0
    gaps: Gaps | None = None


class Floor:
    """The first offset of a log that is compared. The reader raises it if retention deletes more records.

    :param log_start: asks where the log starts now; without it that is known from the reader alone.
    """

    def __init__(self, offset: int, log_start: Callable[[], int] | None = None) -> None:
        self.offset, self._log_start = offset, log_start
        self._begun = offset

    @property
    def has_risen(self) -> bool:
        """Whether the log now starts behind where its comparison began."""
        return self.offset > self._begun

    def rise(self, offset: int) -> None:
        """Record that the log now starts at ``offset``."""
        self.offset = max(self.offset, offset)

    def is_above(self, offset: int) -> bool:
        """Return whether the log starts behind ``offset`` by now, which its reader, far ahead, may not have met."""
        if self.offset <= offset and self._log_start is not None:
            self.rise(self._log_start())
        return self.offset > offset


class UnreadableBatch(ValueError):
    """A batch with a broken checksum or compression. ``side`` is source or target, ``offset`` its first offset."""

    def __init__(self, side: str, offset: int, cause: str) -> None:
        self.side, self.offset, self.cause = side, offset, cause
        super().__init__(f"{side}: batch at offset {offset}: {cause}")


class Cursor:
    """Reads one side: whole batches while they fit, single records otherwise. Fillers are skipped and counted.

    :param side: ``source`` or ``target``, for errors.
    :param batches: data batches in log order (no control batches, no aborted ones).
    :param floor: records below it are skipped.
    :param end: records at or above it are ignored.
    :param through: the offset map to the copies; records then get their copies' offsets.
    :param passes_over: returns for an offset whether a record there is not compared.
    """

    def __init__(
        self, side: str, batches: Iterable[RawBatch], floor: Floor, end: int, through: OffsetMap | None = None,
        passes_over: Callable[[int], bool] | None = None,
    ) -> None:  # fmt: skip
        self._side, self._through, self._passes_over = side, through, passes_over
        self._batches: Iterator[RawBatch] = iter(batches)
        self._floor, self._end = floor, end
        self._raw: RawBatch | None = None
        self._records: deque[Record] = deque()
        self.bytes = self.fillers = 0

    def whole(self) -> RawBatch | None:
        """Return the next batch if none of its records was taken and it lies completely in the window."""
        if self._records or not self._load():
            return None
        header = self._raw.header if self._raw else None
        inside = header is not None and self._floor.offset <= header.base_offset and header.next_offset <= self._end
        return self._raw if inside else None

    def take_whole(self) -> None:
        """Skip the batch that ``whole`` returned."""
        self._raw = None

    def place(self, header: wire_batch.BatchHeader) -> int:
        """Return the base offset that the batch's copy must have; -1 if its records don't stay together."""
        if self._through is None:
            return header.base_offset
        first, last = (self._through.to_target(at) for at in (header.base_offset, header.next_offset - 1))
        together = first.where is last.where is Where.RECORD
        together = together and last.offset - first.offset == header.next_offset - 1 - header.base_offset
        return first.offset if together else -1

    def peek(self, ahead: int = 0) -> Record | None:
        """Return the next record, or the one ``ahead`` records later; None at the end.

        :raises UnreadableBatch: the batch there is broken.
        """
        while len(self._records) <= ahead and self._load():
            self._records.extend(self._decoded())
        if len(self._records) <= ahead:
            return None
        record = self._records[ahead]
        return record if self._through is None else record._replace(offset=self._through.to_target(record.offset).offset)

    @property
    def begins(self) -> int:
        """The log's current start, in the offsets that ``peek`` returns."""
        return self._floor.offset if self._through is None else self._through.to_target(self._floor.offset).offset

    def own_offset(self) -> int:
        """Return the next record's offset in this log itself."""
        return self._records[0].offset

    def has_lost_next(self) -> bool:
        """Return whether the log has lost the next record since it was read."""
        return self._floor.is_above(self.own_offset())

    def take(self) -> None:
        """Skip the record that ``peek`` returned."""
        self._records.popleft()

    def _load(self) -> bool:
        while self._raw is None:
            raw = next(self._batches, None)
            if raw is None:
                return False
            self.bytes += len(raw.view)
            if cause := wire_records.damage(raw):
                raise UnreadableBatch(self._side, raw.first_offset, cause)
            if tombstones.is_filler(raw):
                self.fillers += max(0, min(raw.next_offset, self._end) - max(raw.first_offset, self._floor.offset))
            else:
                self._raw = raw
        return True

    def _decoded(self) -> list[Record]:
        raw, self._raw = self._raw, None
        assert raw is not None
        try:
            records = [r for r in wire_records.decode(raw) if self._floor.offset <= r.offset < self._end]
        except ValueError as e:
            raise UnreadableBatch(self._side, raw.first_offset, str(e)) from e
        if self._passes_over is not None:
            records = [r for r in records if not self._passes_over(r.offset)]
        # Fillers that the target's log cleaner left, or that a mirror of a mirror put into a batch with other records.
        kept = [r for r in records if not tombstones.is_filler_record(r)]
        self.fillers += len(records) - len(kept)
        return kept


def translated(window: tuple[int, int], through: OffsetMap | None) -> tuple[int, int]:
    """Return the target's part of a window of the source. :param through: the offset map; None: offsets are identical."""
    start, end = window
    return window if through is None else (through.to_target(start).offset, through.to_target(end).offset)


def compare(
    source: Iterable[RawBatch], target: Iterable[RawBatch], window: tuple[int, int], *, by_batch: bool = False,
    through: OffsetMap | None = None, floors: tuple[Floor, Floor] | None = None, held: bool = False,
    cleaned_on: Collection[str] = (),
) -> Tally:  # fmt: skip
    """Compare the records of two logs whose offsets on the source are in a window, from its start to before its end.

    :param source: data batches of the source in log order; the first may begin before it.
    :param target: data batches of the target in log order.
    :param by_batch: treat batches with equal frame and payload digest as equal without decoding them.
    :param through: the offset map, with mapped offsets. A difference then names both offsets.
    :param floors: first offsets of both sides, if their log starts may move meanwhile; default: where it begins.
    :param held: the target's retention is off, so a record that it no longer has is a difference, unless the source has
        lost it, too.
    :param cleaned_on: the sides, ``source`` and ``target``, on which a log cleaner may have taken records.
    """
    gaps = Gaps(cleaned_on) if cleaned_on else None
    start, end = window
    target_start, target_end = translated(window, through)
    source_floor, target_floor = floors or (Floor(start), Floor(target_start))
    left = Cursor("source", source, source_floor, end, through)
    # What another tool had written before this mirror adopted its copies may hold some of them twice.
    adopted = through.passes_over if through is not None and through.adopted_until else None
    right = Cursor("target", target, target_floor, target_end, passes_over=adopted)
    equal, expired, difference = 0, 0, None
    try:
        while True:
            if by_batch and not gaps and (count := _same_batch(left, right)):
                left.take_whole()
                right.take_whole()
                equal += count
                continue
            a, b = left.peek(), right.peek()
            if a != b:
                if _is_expired(b, a, left):
                    right.take()
                    expired += 1
                    continue
                # A held target follows its source's log start: what it no longer has, the source has lost before it.
                if _is_expired(a, b, right) and (not held or left.has_lost_next()):
                    left.take()
                    expired += 1
                    continue
                if gaps is not None and _is_gap(a, b, gaps, left, right):
                    continue
                difference = _difference(a, b, left, right)
                if through is not None:
                    difference = _on_both_sides(difference, left.own_offset() if a is not None else None, through)
            if difference is not None or a is None:
                break
            if gaps:
                gaps.seen(a)
            left.take()
            right.take()
            equal += 1
    except UnreadableBatch as e:
        broken: Evidence = {"batch": e.cause}
        on_source = e.side == "source"
        difference = Difference(
            offset=e.offset, kind="corrupt", source=broken if on_source else None, target=None if on_source else broken
        )
        if through is not None:
            there = through.to_target(e.offset).offset if on_source else e.offset
            difference = _on_both_sides(replace(difference, offset=there), e.offset if on_source else None, through)
    return Tally(equal, left.bytes, difference, right.fillers, expired, gaps)


def _is_gap(a: Record | None, b: Record | None, gaps: Gaps, left: Cursor, right: Cursor) -> bool:
    """Pass over a record that only one side has, if a cleaner may have taken it on the other one."""
    if a is not None and (b is None or a.offset < b.offset):
        found = gaps.lone(a, left.own_offset())
        if found:
            left.take()
        return found
    if b is not None and (a is None or b.offset < a.offset):
        found = gaps.lone(b, None)
        if found:
            right.take()
        return found
    return False


def _is_expired(only_here: Record | None, next_there: Record | None, there: Cursor) -> bool:
    """Return whether the other side lacks a record because its log now starts after it."""
    if only_here is None or only_here.offset >= there.begins:
        return False
    return next_there is None or next_there.offset > only_here.offset


def _on_both_sides(found: Difference, source_offset: int | None, through: OffsetMap) -> Difference:
    """Add the source's offset to a difference, which so far names target offsets only.

    :param source_offset: offset of the source's record; None if only the target has one.
    """
    here = through.to_source(found.offset).offset if source_offset is None else source_offset
    shown = found.source and {**found.source, **({"offset": here} if "offset" in found.source else {})}
    return replace(found, offset=here, source=shown, target_offset=found.offset)


def _same_batch(left: Cursor, right: Cursor) -> int:
    """Return the record count of two batches that are the same for a consumer; 0 if their headers don't show that."""
    a, b = left.whole(), right.whole()
    if a is None or b is None or a.header is None or b.header is None:
        return 0
    if left.place(a.header) != b.header.base_offset or _frame(a.header) != _frame(b.header):
        return 0
    # Digests rather than ==, which compares memoryviews element by element and is some 100 times slower.
    size = wire_batch.HEADER_SIZE
    same = xxhash.xxh3_128_digest(a.view[size:]) == xxhash.xxh3_128_digest(b.view[size:])
    return a.header.record_count if same else 0


def _frame(h: wire_batch.BatchHeader) -> tuple[int, ...]:
    # With LogAppendTime the batch's maxTimestamp is every record's timestamp; otherwise brokers derive it from them.
    shown_time = h.max_timestamp if h.attributes & wire_batch.LOG_APPEND_TIME else 0
    return (
        h.last_offset_delta,
        h.record_count,
        h.attributes & _VISIBLE,
        h.base_timestamp,
        shown_time,
        h.size,
    )


def _difference(a: Record | None, b: Record | None, left: Cursor, right: Cursor) -> Difference:
    """Describe the difference between two unequal records; looks one record ahead to tell loss from change."""
    if b is None or a is None:
        found = a or b
        assert found is not None
        return Difference(
            offset=found.offset, kind="missing" if b is None else "extra", source=evidence(a), target=evidence(b)
        )
    if a.offset != b.offset:
        if a[1:] == b[1:]:
            return Difference(offset=a.offset, kind="offset", source=evidence(a), target=evidence(b))
        if a.offset < b.offset:
            return Difference(offset=a.offset, kind="missing", source=evidence(a), target=None)
        return Difference(offset=b.offset, kind="extra", source=None, target=evidence(b))
    # A record that is lost (or inserted) without a hole shifts all that follow, which the next record shows.
    if _holds(left, a, b):
        return Difference(offset=a.offset, kind="missing", source=evidence(a), target=None)
    if _holds(right, b, a):
        return Difference(offset=b.offset, kind="extra", source=None, target=evidence(b))
    return Difference(offset=a.offset, kind=_field(a, b), source=evidence(a), target=evidence(b))


def _holds(cursor: Cursor, here: Record, other: Record) -> bool:
    """Return whether the record after ``here`` equals ``other`` except for its offset."""
    try:
        following = cursor.peek(1)
    except UnreadableBatch:
        return False
    return following is not None and following[1:] == other[1:] and here[1:] != other[1:]


def _field(a: Record, b: Record) -> str:
    for field in ("key", "value", "headers"):
        if getattr(a, field) != getattr(b, field):
            return field
    return "timestamp"
