"""Resolve a time window to offsets, once.

Timestamps in a log may go backwards. A window [t0, t1) is nevertheless one offset range of each partition, because
offsets are kept:

- It **begins** at the first record of t0 or later, as the broker reports it.
- It **ends** at the first record of t1 or later. If records of the window follow that one, it ends after the last of
  them that precedes the first record of t1 + ``late_s``. Later ones are left to the next window, whose copy continues
  at the target's log end offset.

So the range has every record of the window that arrived at most ``late_s`` late, by the log's own timestamps. Other
records in the range are copied with it, and counted.

Windows that are adjacent in time **tile** the log: one begins where the other ends, whatever arrived late, so that each
record belongs to exactly one window. The book holds the windows that were resolved before.

Markers have timestamps too, but are not records: a transaction of old records ends with a marker of today, which a
broker's search by timestamp would find.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.errors import BrokerError, CorruptBatch, InvalidField
from airflow_mirror.jobs.request import LATE_S
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import WINDOW
from airflow_mirror.ledger.state import State
from airflow_mirror.mirror import time_ms
from airflow_mirror.wire.aborted import data_batches
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches

log = logging.getLogger(__name__)

_FETCH_BYTES = 256 << 10  # one batch is usually enough, and there may be 10,000 partitions
KEEP = 200  # windows of a mirror; older ones are needed only for the next window
_COUNT_BYTES = 64 << 20  # per partition, to count older records; the search for the end has no limit


@dataclass(frozen=True, kw_only=True)
class Window:
    """Offsets [start, end) of one partition, and its out-of-order records.

    :param late: records of the window that follow the first record at or after the window's end time.
    :param newer: records at or after the window's end time that precede the last late one, and are copied with it.
    :param older: records from before the window that follow its first record, within ``late_s``.
    """

    start: int
    end: int
    late: int = 0
    newer: int = 0
    older: int = 0


@dataclass(frozen=True)
class Span:
    """A window of time in ms since the epoch, [start, end); ``start`` is None if it has no beginning."""

    start: int | None
    end: int
    late_s: float = LATE_S

    @classmethod
    def of(cls, start: str, end: str, late_s: float) -> Span:
        """Parse ISO 8601 times; a ``start`` that is not a time (``earliest``, ``latest``) means: no beginning.

        :raises InvalidField: one has no time zone, or is no time; or the window holds no time.
        """
        span = cls(None if start in ("earliest", "latest") else time_ms("start", start), time_ms("end", end), late_s)
        if span.start is not None and span.end <= span.start:
            # It would copy nothing, and an empty target would begin there: no earlier window could be copied any more.
            raise InvalidField(
                "end",
                end,
                f"not after the start, {start}",
                "Give a later time. A cron string alone gives a DAG intervals of no length: see kafka_window_backfill.",
            )
        return span

    @property
    def name(self) -> str:
        """Its name in the book; windows of one name are the same."""
        return f"{self.start}_{self.end}_{self.late_s:g}"

    @property
    def _late_ms(self) -> int:
        return round(self.late_s * 1000)

    @property
    def end_of_late(self) -> int:
        """A record with this timestamp or a later one ends the search for late records."""
        return self.end + self._late_ms

    @property
    def end_of_older(self) -> int | None:
        """A record with this timestamp or a later one ends the search for older records."""
        return None if self.start is None else self.start + self._late_ms

    def holds(self, timestamp: int) -> bool:
        """Return whether a record with this timestamp belongs to the window."""
        return (self.start is None or timestamp >= self.start) and timestamp < self.end


def resolve(
    source: WireCluster, span: Span, starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int],
    committed_only: bool,
) -> dict[TopicPartition, Window]:  # fmt: skip
    """Resolve a window for the partitions in ``starts``.

    :param latest: end of each partition's log for this isolation.
    """
    from_broker = source.offsets_for_time(starts, span.end)
    return {
        tp: _resolve_one(source, tp, span, start, from_broker[tp], latest[tp], committed_only)
        for tp, start in starts.items()
    }


def _resolve_one(
    source: WireCluster, tp: TopicPartition, span: Span, start: int, found: int, latest: int, committed_only: bool
) -> Window:
    if found < 0:  # no record and no marker is that recent
        end, late, newer = latest, 0, 0
    else:
        try:
            end, late, newer = _search_end(_batches(source, tp, max(start, found), latest, committed_only), span, latest)
        except (CorruptBatch, ValueError) as e:  # the copy will stop there and report it; others are resolved
            log.warning("%s: its window ends at %d, because timestamps can't be read further: %s", tp, latest, e)
            end, late, newer = latest, 0, 0
    end = max(end, start)
    try:
        older = _count_older(_batches(source, tp, start, end, committed_only), span)
    except (CorruptBatch, ValueError, BrokerError):  # a mere count, and retention goes on
        older = 0
    return Window(start=start, end=end, late=late, newer=newer, older=older)


def _search_end(batches: Iterable[_Times], span: Span, latest: int) -> tuple[int, int, int]:
    """Return (end, late records, newer records) of a window whose end is in ``batches`` or after them."""
    first: int | None = None  # offset of the first record at or after the window's end time
    end, late, newer, waiting = latest, 0, 0, 0
    for batch in batches:
        if first is None and batch.newest < span.end:
            continue
        for offset, timestamp in batch.times():
            if first is None:
                if timestamp < span.end:
                    continue
                first = end = offset
            if timestamp >= span.end_of_late:
                return end, late, newer
            if span.holds(timestamp):
                end, late, newer, waiting = offset + 1, late + 1, newer + waiting, 0
            else:
                waiting += 1
    return end, late, newer


def _count_older(batches: Iterable[_Times], span: Span) -> int:
    if span.start is None or span.end_of_older is None:
        return 0
    older = size = 0
    for batch in batches:
        size += batch.size
        if batch.newest < span.start:
            older += batch.count
        else:
            for _, timestamp in batch.times():
                if timestamp >= span.end_of_older:
                    return older
                older += timestamp < span.start
        if size > _COUNT_BYTES:
            break
    return older


class _Times:
    """The timestamps of a batch; its records are decoded only if the header is not enough."""

    def __init__(self, raw: RawBatch, tp: TopicPartition, start: int, end: int) -> None:
        self._raw, self._tp, self._start, self._end = raw, tp, start, end
        self.size = len(raw.view)

    @property
    def newest(self) -> int:
        header = self._raw.header
        return header.max_timestamp if header is not None else max((t for _, t in self.times()), default=-1)

    @property
    def count(self) -> int:
        header = self._raw.header
        if header is not None and self._start <= header.base_offset and header.next_offset <= self._end:
            return header.record_count
        return sum(1 for _ in self.times())

    def times(self) -> Iterator[tuple[int, int]]:
        """Yield (offset, timestamp) of each record.

        :raises CorruptBatch: the batch is corrupt.
        """
        for record in decoded(self._raw, self._tp, "source"):
            if self._start <= record.offset < self._end:
                yield record.offset, record.timestamp


def _batches(source: WireCluster, tp: TopicPartition, start: int, end: int, committed_only: bool) -> Iterator[_Times]:
    """Yield the batches of records that overlap [start, end), as a consumer with this isolation would read them."""
    isolation = READ_COMMITTED if committed_only else READ_UNCOMMITTED
    fetched = read_batches(source, tp, start, end, isolation=isolation, max_bytes=_FETCH_BYTES)
    for raw in data_batches(fetched, committed=committed_only):
        yield _Times(raw, tp, start, end)


class WindowBook:
    """Stores resolved windows on the target, so that copy, comparison and repetition use the same offsets on any host.

    :param state: of the keys of its windows; None stores nothing. :param keep: how many of them.
    """

    def __init__(self, state: State | None, mirror: str, keep: int = KEEP) -> None:
        self._state, self._mirror, self._keep = state, mirror, keep

    def load(self, span: Span, topic_ids: Mapping[str, str]) -> dict[TopicPartition, Window]:
        """Return the stored windows, without topics that were re-created since."""
        return dict(self._rows(span.name, topic_ids))

    def before(self, span: Span, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Return the ends of windows whose end time is this one's start time: records below belong to them."""
        ends: dict[TopicPartition, int] = {}
        for name in self._names():
            if name.split("_")[1] == str(span.start):
                for tp, window in self._rows(name, topic_ids):
                    ends[tp] = max(window.end, ends.get(tp, 0))
        return ends

    def after(self, span: Span, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Return the starts of windows whose start time is this one's end time: records above belong to them."""
        starts: dict[TopicPartition, int] = {}
        for name in self._names():
            if name.split("_")[0] == str(span.end):
                for tp, window in self._rows(name, topic_ids):
                    starts[tp] = min(window.start, starts.get(tp, window.start))
        return starts

    def save(self, span: Span, windows: Mapping[TopicPartition, Window], topic_ids: Mapping[str, str]) -> None:
        """Store ``windows``; replaces what was stored for this window.

        :raises TryAgain: they are not known to be stored; nothing may be copied then.
        :raises LedgerNewer: a newer version of the package has stored it.
        """
        if self._state is None:
            return
        dict(self._rows(span.name, topic_ids))  # raises if a newer version stored it
        rows = [
            {"topic": tp.topic, "partition": tp.partition, "topic_id": topic_ids[tp.topic], "window": asdict(window)}
            for tp, window in sorted(windows.items())
        ]
        pieces = WINDOW.put({"partitions": rows}, self._mirror, span.name)
        before = WINDOW.below(self._mirror, span.name)
        replaced = [old for old in self._state.read() if old.startswith(before) and old not in pieces]
        self._state.write({**pieces, **dict.fromkeys(replaced)})
        too_old = tuple(WINDOW.below(self._mirror, name) for name in self._names()[: -self._keep])
        self._state.write(dict.fromkeys(key for key in self._state.read() if key.startswith(too_old)))

    def _names(self) -> list[str]:
        """Return the names of all windows, the one that was stored last at the end."""
        return WINDOW.under(self._state.read() if self._state is not None else (), self._mirror)

    def _rows(self, name: str, topic_ids: Mapping[str, str]) -> Iterator[tuple[TopicPartition, Window]]:
        """Yield the entries of one window, without topics that were re-created since."""
        found = None if self._state is None else WINDOW.load(_windows, self._state.read(), self._mirror, name)
        for tp, topic_id, window in found or ():
            if topic_ids.get(tp.topic) == topic_id:
                yield tp, window


def _windows(found: Mapping[str, Any]) -> list[tuple[TopicPartition, str, Window]]:
    rows = found["partitions"]
    return [(TopicPartition(r["topic"], r["partition"]), r["topic_id"], known(Window)(r["window"])) for r in rows]


def summed(windows: Iterable[Window]) -> dict[str, Any]:
    """Return the counts over all partitions, for a job's summary."""
    rows = list(windows)
    return {name: sum(getattr(w, name) for w in rows) for name in ("late", "newer", "older")}
