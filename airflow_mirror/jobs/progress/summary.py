"""The figures of a running copy at one moment: a row for each partition and a summary.

Position and end are source offsets. Rates are smoothed over some seconds (`rates`). None means: unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.copy.loop.partition import COUNTERS
from airflow_mirror.copy.phase import Phase, phase_of
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.progress.rates import Window, eta_s
from airflow_mirror.jobs.progress.reports import Key, Told, key_of

MAX_ROWS = 1000  # in status.json, about 350 bytes each
TIERS = tuple(name for name in COUNTERS if name not in ("records", "bytes", "batches"))
_NAMED = 3  # how many of the slowest and of the stopped partitions a summary names


@dataclass(frozen=True)
class Where:
    """Position and end of a partition, read from the clusters."""

    position: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One partition at one moment.

    :param start: first offset of the range.
    :param state: a :class:`~airflow_mirror.copy.phase.Phase`.
    :param advances_per_s: by how many offsets the position moves.
    :param shrinks_per_s: by how many offsets the lag shrinks; negative while it grows.
    """

    key: Key
    start: int
    position: int | None
    end: int | None
    state: str
    error: str | None = None
    counters: Mapping[str, int] | None = None
    bytes_per_s: float | None = None
    records_per_s: float | None = None
    advances_per_s: float = 0.0
    shrinks_per_s: float = 0.0

    @property
    def lag(self) -> int | None:
        """Offsets still to copy."""
        return _lag(self.start, self.position, self.end)

    @property
    def eta_s(self) -> int | None:
        """Seconds until the lag is gone at the present rate; None when it does not shrink or is unknown."""
        if self.lag is None or self.state == Phase.STOPPED:
            return None
        return eta_s(self.lag, self.shrinks_per_s, self.advances_per_s)

    @property
    def name(self) -> str:
        """The partition's name for people, with the target partition when that is another one."""
        there = "" if self.key.target_partition == self.key.partition else f" to {self.key.target_partition}"
        return f"{self.key.topic}-{self.key.partition}{there}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row of status.json."""
        unknown = dict.fromkeys(COUNTERS)
        return {
            "topic": self.key.topic, "partition": self.key.partition, "target_partition": self.key.target_partition,
            "state": self.state, "position": self.position, "end": self.end, "lag": self.lag, "eta_s": self.eta_s,
            "bytes_per_s": _rounded(self.bytes_per_s), "records_per_s": _rounded(self.records_per_s),
            **(self.counters or unknown), "error": self.error,
        }  # fmt: skip


@dataclass
class Course:
    """The figures of one job over time; :meth:`look` is called every second or two."""

    # By partition and whether its task has reported yet: the time before it began must not count as slow.
    _windows: dict[tuple[Key, bool], Window] = field(default_factory=dict)

    def look(
        self, ranges: Sequence[CopyRange], told: Mapping[Key, Told], seen: Mapping[Key, Where], now: float
    ) -> tuple[list[Row], dict[str, Any]]:
        """Return a row for each range, and the summary.

        :param told: reported by tasks.
        :param seen: read from the clusters; for partitions that no task reports on at the moment.
        """
        keys = [key_of(one) for one in ranges]
        rows = [self._row(key, one, told.get(key), seen.get(key), now) for key, one in zip(keys, ranges, strict=True)]
        for gone in self._windows.keys() - {(row.key, row.counters is not None) for row in rows}:
            del self._windows[gone]
        bounded = all(one.end_offset is not None for one in ranges)
        return rows, _summary(rows, sum(max(0, (r.end or 0) - r.start) for r in rows) if bounded else None)

    def _row(self, key: Key, one: CopyRange, told: Told | None, seen: Where | None, now: float) -> Row:
        end: int | None
        if seen is not None:
            position, end = seen.position, seen.end
        elif told is not None:
            position, end = told.position, one.end_offset if told.end is None else told.end
        else:
            return Row(key=key, start=one.start_offset, position=None, end=one.end_offset, state=Phase.OPENING)
        state = _state(one, position, end, told, seen)
        window = self._windows.get((key, told is not None))
        if window is None:
            window = self._windows[key, told is not None] = Window()
        lag = _lag(one.start_offset, position, end) or 0
        if told is None:
            window.add(now, 0, 0, position, -lag)
        else:
            window.add(now, told.totals.get("bytes", 0), told.totals.get("records", 0), position, -lag)
        bytes_per_s, records_per_s, advances_per_s, shrinks_per_s = window.per_s
        return Row(
            key=key, start=one.start_offset, position=position, end=end, state=state,
            error=None if told is None else told.error,
            counters=None if told is None else told.totals,
            bytes_per_s=None if told is None else max(0.0, bytes_per_s),
            records_per_s=None if told is None else max(0.0, records_per_s),
            advances_per_s=advances_per_s, shrinks_per_s=shrinks_per_s,
        )  # fmt: skip


def _lag(start: int, position: int | None, end: int | None) -> int | None:
    return None if end is None else max(0, end - max(position or 0, start))


def _state(one: CopyRange, position: int, end: int | None, told: Told | None, seen: Where | None) -> str:
    if told is not None and (seen is None or told.state == Phase.STOPPED):
        return told.state
    arrived = end is not None and position >= end
    return phase_of(
        stopped=False, done=arrived and one.end_offset is not None, at_end=arrived,
        opening=not arrived and position <= one.start_offset,
    )  # fmt: skip


def _summary(rows: Sequence[Row], offsets: int | None) -> dict[str, Any]:
    sums = {name: sum((row.counters or {}).get(name, 0) for row in rows) for name in COUNTERS}
    unknown = sum(row.lag is None for row in rows)
    moving = [row for row in rows if row.lag and row.state != Phase.STOPPED]
    going = [row for row in rows if row.state != Phase.STOPPED]
    shrinks_per_s, advances_per_s = sum(r.shrinks_per_s for r in moving), sum(r.advances_per_s for r in going)
    return {
        "partitions": len(rows),
        "states": dict(Counter(row.state for row in rows)),
        "offsets": offsets,  # of all ranges together; None for a tail
        "lag": sum(row.lag or 0 for row in rows) if unknown < len(rows) else None,
        "unknown": unknown,  # partitions whose lag is unknown, and not in the sum
        "eta_s": None if unknown else eta_s(sum(row.lag or 0 for row in moving), shrinks_per_s, advances_per_s),
        "bytes_per_s": round(sum(row.bytes_per_s or 0 for row in rows)),
        "records_per_s": round(sum(row.records_per_s or 0 for row in rows)),
        "offsets_per_s": max(0, round(advances_per_s)),
        "records": sums["records"],
        "bytes": sums["bytes"],
        "tiers": {name: sums[name] for name in TIERS},
        "slowest": [_named(row) for row in sorted(moving, key=_slowness, reverse=True)[:_NAMED]],
        "stopped": [f"{row.name}: {row.error}" for row in rows if row.state == Phase.STOPPED][:_NAMED],
    }


def _slowness(row: Row) -> tuple[bool, bool, int, int]:
    """Sort partitions that began and do not advance first, then those whose lag grows, then by the time left."""
    begun = row.state == Phase.COPYING
    return begun and row.advances_per_s <= 0, begun and row.eta_s is None, row.eta_s or 0, row.lag or 0


def _named(row: Row) -> dict[str, Any]:
    return {
        "partition": row.name,
        "state": row.state,
        "lag": row.lag,
        "eta_s": row.eta_s,
        "advances": row.advances_per_s > 0,
    }


def worth_listing(rows: Sequence[Row], limit: int = MAX_ROWS) -> tuple[list[Row], int]:
    """Return the rows for status.json and how many are left out.

    Up to ``limit`` partitions are all listed. Of more, the first of those that are :func:`unfinished`.
    """
    if len(rows) <= limit:
        return list(rows), 0
    listed = unfinished(rows)[:limit]
    return listed, len(rows) - len(listed)


def unfinished(rows: Sequence[Row]) -> list[Row]:
    """Return the partitions to show: stopped ones first, then those with the most left to do."""
    left = [row for row in rows if row.state == Phase.STOPPED or row.lag != 0]
    return sorted(left, key=lambda row: (row.state != Phase.STOPPED, row.state == Phase.OPENING, -(row.lag or 0)))


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
