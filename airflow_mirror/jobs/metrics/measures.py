"""The values of a copy's figures, by partition and by topic: what `collector` gives names to. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from airflow_mirror.copy.delays import WINDOW_MS
from airflow_mirror.copy.phase import Phase
from airflow_mirror.jobs.progress.delay import Moment, headroom_s, lag_s
from airflow_mirror.jobs.progress.retained import Retained
from airflow_mirror.jobs.progress.table import Row

_RECENT_S = 2 * WINDOW_MS / 1000  # extremes of batches that were sent longer ago are not told any more


class Spread(NamedTuple):
    """Delays of batches. The extremes are of the last half to whole minute; None without batches in it."""

    batches: int
    sum_s: float
    min_s: float | None
    max_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One partition, or all of a topic, at one moment. None: unknown.

    :param topic: the target's name.
    :param partition: the source's number, which is the target's too unless records are partitioned by key.
    :param stopped: partitions whose copy has stopped with an error.
    :param lag_records: offsets still to copy.
    :param held: offsets behind an open transaction of the source; they are not in the lag.
    :param lag_bytes: estimate: that many offsets, each of the size of an average record that this job copied.
    :param lag_s: how old the oldest record is at most that the target lacks.
    :param headroom_records: by how many offsets the next one to copy lies above the source's log start.
    :param headroom_s: how long it is at least until the source deletes the next record to copy for its age.
    :param records: copied by this job; ``bytes`` likewise, as sent.
    :param age: from a record's timestamp to its arrival from the source, for the newest record of each batch.
    :param latency: to the target's answer, likewise.
    """

    topic: str
    partition: int | None
    stopped: int
    lag_records: float | None
    held: float | None
    lag_bytes: float | None
    lag_s: float | None
    headroom_records: float | None
    headroom_s: float | None
    records: float | None
    bytes: float | None
    age: Spread | None
    latency: Spread | None


def by_partition(rows: Iterable[Row], now: Moment, retained: Retained) -> list[Measure]:
    """Return a measure for each source partition, by topic.

    By key a source partition has a row for each target partition, and each reads all of it: the slowest one's lag counts.
    """
    measures = sorted((_of_row(row, now, retained) for row in rows), key=attrgetter("topic", "partition"))
    together = groupby(measures, key=attrgetter("topic", "partition"))
    slowest = {"lag_records": max, "held": max, "lag_bytes": max}
    return [_fold(list(several), partition, **slowest) for (_, partition), several in together]


def by_topic(measures: Sequence[Measure]) -> list[Measure]:
    """Return a measure for each topic from those of :func:`by_partition`."""
    return [_fold(list(several), None) for _, several in groupby(measures, key=attrgetter("topic"))]


def worth_listing(measures: Sequence[Measure], limit: int) -> Sequence[Measure]:
    """Return the partitions that get series of their own: all of up to ``limit``.

    Of more: those that stopped, then those with lag, largest or unknown first; at most ``limit``.
    """
    if len(measures) <= limit:
        return measures
    left = [m for m in measures if m.stopped or m.lag_records != 0]
    return sorted(left, key=lambda m: (not m.stopped, m.lag_records is not None, -(m.lag_records or 0)))[:limit]


def _of_row(row: Row, now: Moment, retained: Retained) -> Measure:
    counters, delays = row.counters, row.delays
    records, size = counters.get("records"), counters.get("bytes")
    behind_s, one = lag_s(row, now), row.range
    start = retained.starts.get(one.source)
    left = row.position is not None and row.state != Phase.DONE  # what is done can lose nothing
    recent = now.monotonic_s - row.measured_at < _RECENT_S
    return Measure(
        topic=row.range.target_topic,
        partition=row.range.partition,
        stopped=row.state == Phase.STOPPED,
        lag_records=row.lag,
        held=None if row.lag is None else row.held if row.waits(now.monotonic_s) else 0,
        lag_bytes=None if row.lag is None else _bytes_of(row.lag, records, size),
        lag_s=behind_s,
        headroom_records=max(row.position or 0, one.start_offset) - start if left and start is not None else None,
        headroom_s=headroom_s(row, behind_s, retained),
        records=records,
        bytes=size,
        age=_spread(delays.batches, delays.age_sum_ms, delays.age_min_ms, delays.age_max_ms, recent),
        latency=_spread(delays.batches, delays.latency_sum_ms, delays.latency_min_ms, delays.latency_max_ms, recent),
    )


def _bytes_of(offsets: int, records: int | None, size: int | None) -> float | None:
    if not offsets:
        return 0.0
    return offsets * size / records if records and size else None


def _spread(batches: int, sum_ms: int, min_ms: int, max_ms: int, recent: bool) -> Spread | None:
    if not batches:
        return None
    return Spread(batches, sum_ms / 1000, min_ms / 1000 if recent else None, max_ms / 1000 if recent else None)


def _together(spreads: Sequence[Spread]) -> Spread:
    least, most = _known(spreads, "min_s"), _known(spreads, "max_s")
    return Spread(
        sum(s.batches for s in spreads), sum(s.sum_s for s in spreads), min(least, default=None), max(most, default=None)
    )


_Fold = Callable[[Sequence[Any]], Any]
_FOLDS: Mapping[str, _Fold] = {
    "stopped": sum, "lag_records": sum, "held": sum, "lag_bytes": sum, "lag_s": max, "headroom_records": min,
    "headroom_s": min, "records": sum, "bytes": sum, "age": _together,
    "latency": _together,
}  # fmt: skip


def _fold(several: Sequence[Measure], partition: int | None, **otherwise: _Fold) -> Measure:
    """Return one measure for several of a topic; what is unknown is not in it.

    :param otherwise: how values come together, where not as in :data:`_FOLDS`.
    """
    if len(several) == 1 and partition is not None:
        return several[0]
    folds = {**_FOLDS, **otherwise}
    values: dict[str, Any] = {
        name: fold(known) if (known := _known(several, name)) else None for name, fold in folds.items()
    }
    return Measure(topic=several[0].topic, partition=partition, **values)


def _known(several: Iterable[Any], name: str) -> list[Any]:
    return [value for one in several if (value := getattr(one, name)) is not None]
