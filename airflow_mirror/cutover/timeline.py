"""The time line of a fence, and of the lag behind it, as coordinates: what :mod:`.html` draws. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from airflow_mirror.cutover.report import CutoverReport, StepRecord

# Of the drawing, in its own units; a browser scales it to the page.
WIDTH, LEFT, RIGHT, ROW, AXIS, LAG = 1000.0, 130.0, 70.0, 20.0, 18.0, 60.0
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
_MOST_TICKS = 10


def timeline(report: CutoverReport) -> dict[str, Any] | None:
    """Return what to draw: ``bars``, ``fence``, ``limit``, ``ticks``, ``lag`` and heights; None if nothing was begun.

    Seconds are counted from the fence's beginning, or from the first step where none was raised.
    """
    fence = report.fence
    end = None if fence is None else fence.ended
    steps = [s for s in report.steps if end is None or s.started <= end]  # a comparison days later is none of it
    if not steps:
        return None
    zero = fence.requested if fence is not None else steps[0].started
    last = end if end is not None else max(report.updated, *(s.started + s.seconds for s in steps))
    first = min(zero, steps[0].started)
    lags = [row for row in report.lags if row["at"] <= last]
    span = max(last - first, 0.001) * 1.04
    factor = (WIDTH - LEFT - RIGHT) / span

    def x(moment: float) -> float:
        return round(LEFT + (max(moment, first) - first) * factor, 2)

    height = ROW * len(steps)
    limit = zero + report.max_fence_s if fence is not None and report.max_fence_s else None
    return {
        "width": WIDTH, "height": height + AXIS, "rows": height, "left": LEFT,
        "bars": [_bar(n, step, x, last) for n, step in enumerate(steps)],
        "fence": fence and {"x": x(zero), "width": round(x(last) - x(zero), 2), "ended": end is not None},
        "limit": x(limit) if limit is not None and limit <= first + span else None,
        "ticks": [{"x": x(zero + s), "label": f"{s:g} s"} for s in _ticks(first + span - zero)],
        "lag": _lag(lags, x),
    }  # fmt: skip


def _bar(number: int, step: StepRecord, x: Callable[[float], float], last: float) -> dict[str, Any]:
    seconds = step.seconds if step.status != "running" else max(0.0, last - step.started)
    start, end = x(step.started), x(step.started + seconds)
    return {
        "name": step.name, "status": step.status, "x": start, "y": number * ROW, "width": max(1.5, round(end - start, 2)),
        "seconds": f"{seconds:.2f} s", "after": max(end, start + 1.5) + 5,
    }  # fmt: skip


def _ticks(seconds: float) -> list[float]:
    every = next((step for step in _TICKS if seconds / step <= _MOST_TICKS), seconds / _MOST_TICKS)
    return [round(n * every, 6) for n in range(int(seconds / every) + 1)]


def _lag(rows: list[dict[str, Any]], x: Callable[[float], float]) -> dict[str, Any] | None:
    """Return the lag as a line of steps: between two looks nobody knows better than what was seen."""
    peak = max((int(row["lag"]) for row in rows), default=0)
    if not peak:
        return None

    def y(lag: float) -> float:
        return round(LAG - lag / peak * (LAG - 8), 2)

    points = [(x(rows[0]["at"]), y(rows[0]["lag"]))]
    for before, row in pairwise(rows):
        points += [(x(row["at"]), y(before["lag"])), (x(row["at"]), y(row["lag"]))]
    line = " ".join(f"{a},{b}" for a, b in points)
    return {
        "line": line, "area": f"{points[0][0]},{LAG} {line} {points[-1][0]},{LAG}", "height": LAG, "peak": peak,
        "last": rows[-1]["lag"], "samples": len(rows),
    }  # fmt: skip
