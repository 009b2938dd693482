"""What the page of a cutover draws: the fence with its steps, lag and rate beside it, and partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from airflow_mirror.common.chart import Axis, Chart, Fold, Line, Span, folded, number, plot, spans
from airflow_mirror.cutover.report import CutoverReport, StepRecord
from airflow_mirror.wording import size

_BEFORE_S = 60.0  # what was seen earlier is none of the fence's picture

Rows = Sequence[Mapping[str, Any]]


def fence_axis(report: CutoverReport) -> Axis | None:
    """Return the axis of the fence, in seconds from its beginning, or from the first step; None: nothing was begun.

    It begins with what was looked at right before. :ivar Axis.limit: ``max_fence_s``.
    """
    steps = _steps(report)
    if not steps:
        return None
    fence = report.fence
    zero = fence.requested if fence is not None else steps[0].started
    seen = [row["at"] for row in report.lags if zero - _BEFORE_S <= row["at"]]
    first, last = min(zero, steps[0].started, *seen[:1]), _last(report, steps)
    return Axis.of_seconds(
        first, first + max(last - first, 0.001) * 1.04, zero,
        shade=None if fence is None else (zero, last),
        limit=zero + report.max_fence_s if fence is not None and report.max_fence_s else None,
    )  # fmt: skip


def fence_charts(report: CutoverReport) -> list[Chart]:
    """Return the time line of the fence, and lag and rate above the same axis; nothing if nothing was begun."""
    axis, steps = fence_axis(report), _steps(report)
    if axis is None:
        return []
    last = _last(report, steps)
    rows = [_span(step, last) for step in steps]
    limit = "" if not report.max_fence_s else f"; at most {report.max_fence_s:g} s"
    said = "; ".join(f"{row.name} {row.said}" for row in rows)
    seen = [row for row in report.lags if axis.first <= row["at"] <= last]
    return [spans("Time line of the fence", f"{said}{limit}", rows, axis), *_pace("around the fence", seen, axis)]


def catch_up_charts(report: CutoverReport) -> list[Chart]:
    """Return lag and rate while the mirror caught up, as far as whoever waited for it has handed them over."""
    rows = report.course
    if len(rows) < 2:
        return []
    first, last = rows[0]["at"], rows[-1]["at"]
    return _pace("while the mirror caught up", rows, Axis.of_seconds(first, max(last, first + 0.001), first))


def partition_charts(report: CutoverReport) -> list[Chart]:
    """Return which partitions took longest to drain, and which were the largest to compare behind the fence."""
    compared = Fold.of((f"{row['source_topic']}-{row['partition']}", row["bytes"]) for row in report.verification)
    shown = folded("Drained last", "partition", Fold(**report.drained), lambda s: f"{s:g} s") if report.drained else []
    if compared.peak:
        differ = {f"{row['source_topic']}-{row['partition']}" for row in report.verification if not row["equal"]}
        shown += folded("Compared behind the fence", "partition", compared, lambda b: size(round(b)), differ.__contains__)
    return shown


def _steps(report: CutoverReport) -> list[StepRecord]:
    """Return the steps up to the end of the fence: a comparison days later is none of it."""
    end = None if report.fence is None else report.fence.ended
    return [s for s in report.steps if end is None or s.started <= end]


def _last(report: CutoverReport, steps: Sequence[StepRecord]) -> float:
    end = None if report.fence is None else report.fence.ended
    return end if end is not None else max(report.updated, *(s.started + s.seconds for s in steps))


def _span(step: StepRecord, last: float) -> Span:
    took = step.seconds if step.status != "running" else max(0.0, last - step.started)
    said = f"{took:.2f} s" + (f", {step.status}" if step.status != "done" else "")
    return Span(name=step.name, start=step.started, end=step.started + took, said=said, kind=step.status)


def _pace(when: str, rows: Rows, axis: Axis) -> list[Chart]:
    """Return the lag, and the rate at which offsets were copied, as far as rows tell."""
    lags = [(row["at"], float(row["lag"])) for row in rows]
    found, peak = list[Chart](), max((lag for _, lag in lags), default=0.0)
    if peak:
        text = f"at most {number(peak)}, at last {number(lags[-1][1])}, seen {len(lags)} times"
        line = Line(points=lags, say=number, steps=True)
        found.append(plot(f"Lag in offsets {when}", text, line, axis))
    looks = [
        (after["at"], after["at"] - before["at"], max(0.0, after["copied"] - before["copied"]))
        for before, after in pairwise([row for row in rows if row.get("copied") is not None])
        if after["at"] > before["at"]
    ]
    rates = [(at, copied / took) for at, took, copied in looks]
    if top := max((rate for _, rate in rates), default=0.0):
        # By time: looks are far apart before the fence, and a second apart behind it.
        mean = sum(copied for *_, copied in looks) / sum(took for _, took, _ in looks)
        text = f"at most {number(top)}/s, {number(round(mean))}/s on average"
        line = Line(points=rates, say=lambda rate: f"{number(round(rate))}/s")
        found.append(plot(f"Offsets copied per second {when}", text, line, axis))
    return found
