"""The last drills, a chart for each figure: what :mod:`.page` draws. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from airflow_mirror.common.chart import Axis, Chart, Line, plot
from airflow_mirror.extras.drill.report import over
from airflow_mirror.extras.drill.store import Drill

MOST = 30  # drills in a chart; the newest
CHARTS = (("RPO", "rpo_s", "s"), ("RTO", "rto_s", "s"), ("Lost", "lost", "records"), ("Read again", "reread", "records"))
_WIDTH, _LEFT, _RIGHT = 520.0, 84.0, 30.0


def charts(drills: Sequence[Drill]) -> list[Chart]:
    """Return what to draw of the newest drills, oldest first; nothing for fewer than two that measured something.

    Drills stand at equal distances: one a week and five in an hour can be told apart on the same axis. One that measured
    nothing has a cross, and the line has a gap there.
    """
    shown = [one for one in drills if one.at_ms][-MOST:]
    if sum(bool(one.figures) for one in shown) < 2:
        return []
    ends = (0.0, _day(shown[0].at_ms)), (len(shown) - 1.0, _day(shown[-1].at_ms))
    axis = Axis(first=0, last=len(shown) - 1, ticks=ends, left=_LEFT, right=_RIGHT, width=_WIDTH)
    return [_chart(title, key, unit, shown, axis) for title, key, unit in CHARTS]


def _chart(title: str, key: str, unit: str, shown: Sequence[Drill], axis: Axis) -> Chart:
    wanted = shown[-1].wanted.get(key)
    values = [one.figures.get(key) for one in shown]
    dots = [
        "" if value is None else f"{_day(one.at_ms)}: {value:g} {unit}" for one, value in zip(shown, values, strict=True)
    ]
    line = Line(
        points=[(float(n), value) for n, value in enumerate(values)], say=lambda value: f"{value:g} {unit}",
        wanted=wanted, bad=[n for n, one in enumerate(shown) if key in over(one)], dots=dots,
    )  # fmt: skip
    head = f"{title} ({unit}{'' if wanted is None else '; dashed: the objective'})"
    return plot(head, "; ".join(dot or "nothing measured" for dot in dots), line, axis, height=110.0)


def _day(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at_ms / 1000))
