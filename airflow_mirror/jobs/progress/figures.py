"""The figures of a running copy: rates of each partition, smoothed over some seconds, and a summary of all."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.phase import Phase
from airflow_mirror.copy.ranges import total_offsets
from airflow_mirror.jobs.progress.table import Key, Row
from airflow_mirror.kafka.held import held_text

WINDOW_S = 10.0  # long enough to smooth the gaps between batches and turns, short enough to show a stall while it lasts
KEEPS_UP_S = 2.0
MAX_ROWS = 1000  # in status.json, about 350 bytes each
TIERS = tuple(name for name in COUNTERS if name not in ("records", "bytes", "batches"))
_NAMED = 3  # how many of the slowest and of the stopped partitions a summary names

_Measured = tuple[Key, bool, bool]


def eta_s(lag: int, shrinks_per_s: float, advances_per_s: float) -> int | None:
    """Return the seconds until a lag is gone; None when it does not shrink.

    A tail that keeps up always has a small lag, which neither shrinks nor grows: it is copied at the rate at which the
    position advances.
    """
    if lag <= 0:
        return 0
    if lag <= advances_per_s * KEEPS_UP_S:
        return round(lag / advances_per_s)
    return round(lag / shrinks_per_s) if shrinks_per_s > 0 else None


class Course:
    """The course of one job; :meth:`look` is called every second or two."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[_Measured, tuple[int, int, int, int]]]] = deque()

    def look(self, rows: Iterable[Row], now: float) -> list[Row]:
        """Return the rows of the table at ``now`` (seconds, monotonic), with their rates over :data:`WINDOW_S`."""
        # By what is known of a partition, too: the time before its task began must not count as slow, nor a jump as fast.
        known = {(row.key, row.position is None, bool(row.counters)): row for row in rows}
        self._looks.append((now, {measured: _numbers(row) for measured, row in known.items()}))
        # The oldest look that is kept is the youngest one that is at least as old as the window.
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW_S:
            self._looks.popleft()
        return [self._with_rates(row, measured) for measured, row in known.items()]

    def _with_rates(self, row: Row, measured: _Measured) -> Row:
        then, first = next((then, numbers[measured]) for then, numbers in self._looks if measured in numbers)
        now, numbers = self._looks[-1]
        seconds = now - then or 1.0  # its first look: nothing has changed
        changes = zip(first, numbers[measured], strict=True)
        bytes_per_s, records_per_s, advances_per_s, shrinks_per_s = [(b - a) / seconds for a, b in changes]
        unknown = row.lag is None or row.state == Phase.STOPPED
        return replace(
            row, bytes_per_s=max(0.0, bytes_per_s) if row.counters else None,
            records_per_s=max(0.0, records_per_s) if row.counters else None,
            advances_per_s=advances_per_s, shrinks_per_s=shrinks_per_s,
            eta_s=None if unknown else eta_s(row.lag or 0, shrinks_per_s, advances_per_s),
        )  # fmt: skip


def _numbers(row: Row) -> tuple[int, int, int, int]:
    return row.counters.get("bytes", 0), row.counters.get("records", 0), row.position or 0, -(row.lag or 0)


def summary_of(rows: Sequence[Row], now: float = math.inf) -> dict[str, Any]:
    """Return the summary of status.json from rows with rates.

    :param now: monotonic; see :meth:`.Row.waits`.
    """
    sums = {name: sum(row.counters[name] for row in rows if row.counters) for name in COUNTERS}
    unknown = sum(row.lag is None for row in rows)
    lag = sum(row.lag or 0 for row in rows)
    going = [row for row in rows if row.state != Phase.STOPPED]
    moving = [row for row in going if row.lag]
    shrinks_per_s, advances_per_s = sum(r.shrinks_per_s for r in moving), sum(r.advances_per_s for r in going)
    ranges = [row.range for row in rows]
    # By key, each target partition has a row for the same source partition.
    held = list({row.key[:2]: row for row in rows if row.waits(now)}.values())
    return {
        "partitions": len(rows),
        "states": dict(Counter(row.state for row in rows)),
        # Of all ranges together; None for a tail.
        "offsets": None if any(one.end_offset is None for one in ranges) else total_offsets(ranges),
        "lag": lag if unknown < len(rows) else None,
        "held": sum(row.held for row in held),  # behind open transactions, and not in the lag
        "open_transactions": [f"{row.range.source}: {held_text(row.held, row.end or 0)}" for row in held[:_NAMED]],
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
        "partition": row.name, "state": row.state, "lag": row.lag, "eta_s": row.eta_s,
        "advances": row.advances_per_s > 0,
    }  # fmt: skip


def worth_listing(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows for status.json: all of up to :data:`MAX_ROWS`; of more, the first that are unfinished."""
    return rows if len(rows) <= MAX_ROWS else unfinished(rows)[:MAX_ROWS]


def unfinished(rows: Sequence[Row]) -> list[Row]:
    """Return the partitions to show: stopped ones first, then those with the most left to do."""
    left = [row for row in rows if row.state == Phase.STOPPED or row.lag != 0]
    return sorted(left, key=lambda row: (row.state != Phase.STOPPED, row.state == Phase.OPENING, -(row.lag or 0)))
