"""The values of a copy's figures, by partition and by topic: what `collector` gives names to. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from airflow_mirror.copy.phase import Phase
from airflow_mirror.jobs.progress.table import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One partition, or all of a topic, at one moment. None: unknown.

    :param topic: the target's name.
    :param partition: the source's number, which is the target's too unless records are partitioned by key.
    :param stopped: partitions whose copy has stopped with an error.
    :param lag_records: offsets still to copy.
    :param lag_bytes: estimate: that many offsets, each of the size of an average record that this job copied.
    :param records: copied by this job; ``bytes`` likewise, as sent.
    """

    topic: str
    partition: int | None
    stopped: int
    lag_records: float | None
    lag_bytes: float | None
    records: float | None
    bytes: float | None


def by_partition(rows: Iterable[Row]) -> list[Measure]:
    """Return a measure for each source partition, by topic.

    By key a source partition has a row for each target partition, and each reads all of it: the slowest one's lag counts.
    """
    measures = sorted(map(_of_row, rows), key=attrgetter("topic", "partition"))
    together = groupby(measures, key=attrgetter("topic", "partition"))
    return [_fold(list(several), partition, max) for (_, partition), several in together]


def by_topic(measures: Sequence[Measure]) -> list[Measure]:
    """Return a measure for each topic from those of :func:`by_partition`."""
    return [_fold(list(several), None, sum) for _, several in groupby(measures, key=attrgetter("topic"))]


def worth_listing(measures: Sequence[Measure], limit: int) -> Sequence[Measure]:
    """Return the partitions that get series of their own: all of up to ``limit``.

    Of more: those that stopped, then those with lag, largest or unknown first; at most ``limit``.
    """
    if len(measures) <= limit:
        return measures
    left = [m for m in measures if m.stopped or m.lag_records != 0]
    return sorted(left, key=lambda m: (not m.stopped, m.lag_records is not None, -(m.lag_records or 0)))[:limit]


def _of_row(row: Row) -> Measure:
    counters = row.counters
    records, size = counters.get("records"), counters.get("bytes")
    return Measure(
        topic=row.range.target_topic,
        partition=row.range.partition,
        stopped=row.state == Phase.STOPPED,
        lag_records=row.lag,
        lag_bytes=None if row.lag is None else _bytes_of(row.lag, records, size),
        records=records,
        bytes=size,
    )


def _bytes_of(offsets: int, records: int | None, size: int | None) -> float | None:
    if not offsets:
        return 0.0
    return offsets * size / records if records and size else None


def _fold(several: list[Measure], partition: int | None, lag: Callable[[list[float]], float]) -> Measure:
    """Return one measure for several of a topic; what is unknown is not in it.

    :param lag: how lags add up.
    """
    first = several[0]
    if len(several) == 1 and partition is not None:
        return first
    lags, sizes = _known(several, "lag_records"), _known(several, "lag_bytes")
    counts = {name: sum(found) if (found := _known(several, name)) else None for name in ("records", "bytes")}
    return Measure(
        topic=first.topic,
        partition=partition,
        stopped=sum(m.stopped for m in several),
        lag_records=lag(lags) if lags else None,
        lag_bytes=lag(sizes) if sizes else None,
        **counts,
    )


def _known(several: Iterable[Measure], name: str) -> list[float]:
    return [value for m in several if (value := getattr(m, name)) is not None]
