"""How far a copy is behind in time, and how long the source still keeps what it lacks. No clock, no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from airflow_mirror.copy.phase import Phase
from airflow_mirror.jobs.progress.retained import Retained
from airflow_mirror.jobs.progress.table import PATIENCE_S, Row

_SILENT_S = 2 * PATIENCE_S  # after that neither its task nor the clusters have said anything of a partition


class Moment(NamedTuple):
    """When something is measured: by a monotonic clock, and since 1970."""

    monotonic_s: float
    wall_s: float


def lag_s(row: Row, now: Moment) -> float | None:
    """Return how old the oldest record that the target lacks can be, in seconds; 0 if it lacks none, None if unknown.

    Two bounds, of which the lower one holds. It came after the last moment at which nothing was left to copy. And it is
    not older than the last record that was copied, if timestamps grow along the log; those in the future say nothing.
    """
    if row.lag is None:
        return None
    if row.is_level:
        silent_s = now.monotonic_s - max(row.seen_at, row.run.heard_at)
        return 0.0 if row.state == Phase.DONE or silent_s < _SILENT_S else silent_s
    bounds = [now.monotonic_s - row.level_at, now.wall_s - row.timestamp_ms / 1000 if row.timestamp_ms else math.inf]
    return min((bound for bound in bounds if 0 <= bound < math.inf), default=None)


def headroom_s(row: Row, behind_s: float | None, retained: Retained) -> float | None:
    """Return how long it is at least until the source deletes the next record to copy for its age.

    :param behind_s: see :func:`lag_s`. :return: in seconds; None: it is not known, or never.
    """
    kept_s = retained.kept_s.get(row.range.source_topic)
    left = row.position is not None and row.state != Phase.DONE  # what is done can lose nothing
    return kept_s - behind_s if left and kept_s is not None and behind_s is not None else None


def behind(rows: Iterable[Row], now: Moment, retained: Retained) -> dict[str, Any]:
    """Return the lag of the partition that is behind most, and the least headroom, for a summary; None: not known.

    One that is behind by an unknown time makes it so: at the start of a copy the few that are level would speak for all.
    """
    lags = [(row, lag_s(row, now)) for row in rows]
    unknown = [row.range.source_topic for row, its in lags if its is None and row.lag]
    headrooms = [headroom_s(row, its, retained) for row, its in lags]
    lag = None if unknown else max((its for _, its in lags if its is not None), default=None)
    known = (one for one in headrooms if one is not None)
    least = None if retained.kept_s.keys() & set(unknown) else min(known, default=None)
    return {
        "lag_s": None if lag is None else round(lag, 1), "headroom_s": None if least is None else round(least),
    }  # fmt: skip
