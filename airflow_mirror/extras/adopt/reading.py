"""Read a log as digests: eight bytes for each record, in a temporary file, whatever the records hold.

One batch is decoded at a time. The digests are mapped into memory, so a log of any length needs little of it.
"""

from __future__ import annotations

import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import IO

import numpy as np

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded, number_of
from airflow_mirror.errors import BrokerError
from airflow_mirror.extras.adopt.alignment import Digests, Span
from airflow_mirror.verify.result import LogBounds
from airflow_mirror.wire.aborted import told_apart
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches

_TRIES = 5  # how often retention may delete what is about to be read first


@dataclass
class Offsets:
    """The offsets of a log's records by their index: rising by one, but where markers or nothing lie between two."""

    count: int = 0
    _indexes: array[int] = field(default_factory=lambda: array("q"))
    _offsets: array[int] = field(default_factory=lambda: array("q"))

    def append(self, offset: int) -> None:
        """Append the offset of the next record."""
        if not self.count or offset != self[self.count - 1] + 1:
            self._indexes.append(self.count)
            self._offsets.append(offset)
        self.count += 1

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        run = bisect_right(self._indexes, index) - 1
        return self._offsets[run] + index - self._indexes[run]

    def dense(self, start: int, end: int) -> Iterator[Span]:
        """Yield the indexes [start, end) in spans whose offsets have no gap."""
        run = bisect_right(self._indexes, start)
        while start < end:
            stop = min(end, self._indexes[run]) if run < len(self._indexes) else end
            yield Span(start, stop)
            start, run = stop, run + 1


@dataclass(frozen=True, kw_only=True)
class Log:
    """The data records of a log, by their index.

    :param aborted: records of aborted transactions. :param undecided: those that may still become one of these.
    """

    bounds: LogBounds
    digests: Digests
    offsets: Offsets
    aborted: list[Span]
    undecided: list[Span]


def bounds_of(cluster: WireCluster, tp: TopicPartition) -> LogBounds:
    """Return where a log begins and ends now. The end first: behind it nothing counts as held by a transaction."""
    end, stable = cluster.high_watermarks([tp])[tp], cluster.last_stable([tp])[tp]
    return LogBounds(min(cluster.log_starts([tp])[tp], end), min(stable, end), end)


def read_log(cluster: WireCluster, tp: TopicPartition, bounds: LogBounds, *, committed: bool, timed: bool) -> Log:
    """Read the records of a log.

    :param committed: only those that a read_committed consumer gets; otherwise all, and which of them were aborted.
    :param timed: timestamps count. :raises CorruptBatch: a batch is broken.
    """
    for _ in range(_TRIES):
        try:
            return _read(cluster, tp, bounds, committed=committed, timed=timed)
        except BrokerError as e:
            if e.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            bounds = bounds_of(cluster, tp)  # retention was faster
    return _read(cluster, tp, bounds, committed=committed, timed=timed)


def _read(cluster: WireCluster, tp: TopicPartition, bounds: LogBounds, *, committed: bool, timed: bool) -> Log:
    offsets, aborted, undecided = Offsets(), list[Span](), list[Span]()
    with tempfile.TemporaryFile() as file:
        for raw, is_aborted in _batches(cluster, tp, bounds, committed=committed):
            if committed and is_aborted:
                continue
            first = offsets.count
            _take(raw, tp, cluster.role, bounds, file, offsets, timed=timed)
            span = Span(first, offsets.count)
            is_open = raw.header is not None and raw.header.is_transactional and raw.first_offset >= bounds.stable
            if (is_aborted or is_open) and span.end > span.start:
                (aborted if is_aborted else undecided).append(span)
        digests = _mapped(file, offsets.count)
        return Log(bounds=bounds, digests=digests, offsets=offsets, aborted=aborted, undecided=undecided)


def _batches(
    cluster: WireCluster, tp: TopicPartition, bounds: LogBounds, *, committed: bool
) -> Iterator[tuple[RawBatch, bool]]:
    stable = told_apart(read_batches(cluster, tp, bounds.start, bounds.stable, isolation=READ_COMMITTED))
    if committed:
        return stable
    rest = read_batches(cluster, tp, bounds.stable, bounds.end, isolation=READ_UNCOMMITTED)
    return chain(stable, told_apart(rest))


def _take(
    raw: RawBatch, tp: TopicPartition, role: str, bounds: LogBounds, file: IO[bytes], offsets: Offsets, *, timed: bool
) -> None:
    digests = array("Q")
    for record in decoded(raw, tp, role):
        if bounds.start <= record.offset < bounds.end:
            digests.append(number_of(record, timed=timed))
            offsets.append(record.offset)
    digests.tofile(file)


def _mapped(file: IO[bytes], count: int) -> Digests:
    file.flush()
    if not count:
        return np.empty(0, dtype=np.uint64)
    found: Digests = np.memmap(file, dtype=np.uint64, mode="r", shape=(count,))
    return found
