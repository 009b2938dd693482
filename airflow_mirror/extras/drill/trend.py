"""The last drills as coordinates, a chart for each figure: what :mod:`.page` draws. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow_mirror.extras.drill.report import over
from airflow_mirror.extras.drill.store import Drill

MOST = 30  # drills in a chart; the newest
# Of one drawing, in its own units; a browser scales it to the page.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, AXIS = 520.0, 120.0, 46.0, 12.0, 10.0, 20.0
CHARTS = (("RPO", "rpo_s", "s"), ("RTO", "rto_s", "s"), ("Lost", "lost", "records"), ("Read again", "reread", "records"))


def charts(drills: Sequence[Drill]) -> list[dict[str, Any]]:
    """Return what to draw of the newest drills, oldest first; nothing for fewer than two that measured something.

    Drills stand at equal distances: one a week and five in an hour can be told apart on the same axis. One that measured
    nothing has no point, and the line has a gap there.
    """
    shown = [one for one in drills if one.at_ms][-MOST:]
    if sum(bool(one.figures) for one in shown) < 2:
        return []
    return [_chart(title, key, unit, shown) for title, key, unit in CHARTS]


def _chart(title: str, key: str, unit: str, shown: Sequence[Drill]) -> dict[str, Any]:
    wanted = shown[-1].wanted.get(key)
    values = [one.figures.get(key) for one in shown]
    most = max([value for value in values if value is not None] + [wanted or 0]) or 1

    def x(number: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * number / (len(shown) - 1), 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP) * (1 - value / most), 1)

    points = [
        {"x": x(n), "y": y(value), "bad": key in over(one), "text": f"{_day(one.at_ms)}: {value:g} {unit}"}
        for n, (one, value) in enumerate(zip(shown, values, strict=True))
        if value is not None
    ]
    return {
        "title": title, "unit": unit, "width": WIDTH, "height": HEIGHT + AXIS, "left": LEFT, "right": WIDTH - RIGHT,
        "top": TOP, "bottom": HEIGHT, "most": f"{most:g}", "points": points, "lines": _lines(values, x, y),
        "wanted": None if wanted is None else y(wanted), "first": _day(shown[0].at_ms), "last": _day(shown[-1].at_ms),
        "missing": [x(n) for n, value in enumerate(values) if value is None],
    }  # fmt: skip


def _lines(values: Sequence[float | None], x: Any, y: Any) -> list[str]:
    """Return a line for each stretch of drills that measured something."""
    stretches: list[list[str]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            stretches.append([])
        else:
            stretches[-1].append(f"{x(n)},{y(value)}")
    return [" ".join(stretch) for stretch in stretches if len(stretch) > 1]


def _day(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at_ms / 1000))
