"""The plot of the results: an SVG, drawn by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.measure import Run
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s
from benchmarks.systems import LIMIT, MM2, OURS, READING_LIMIT, TITLES

PLOT = Path(__file__).parents[1] / "docs" / "images" / "benchmarks.svg"
_COLOURS = {MM2: "#8c959f", OURS: "#0969da", LIMIT: "#bf8700", READING_LIMIT: "#eac54f"}
_INK, _DIM = "#1f2328", "#57606a"
_BAR, _GAP, _CASE_GAP = 14, 3, 34
_LEFT, _RIGHT, _WIDTH, _TOP = 24, 452, 860, 84
_BAR_WIDTH = 290


def draw(results: Results) -> str:
    """Return the plot: for each case its speed on the left, its speed per CPU second on the right.

    Cases differ by two orders of magnitude, so that each has a scale of its own: the longest bar is the same in all.
    """
    parts: list[str] = []
    y = _TOP
    for case in results.cases:
        parts.append(_text(_LEFT, y, case.title, weight=600))
        y += 8
        left = _bars(case, per_s, tuple(_COLOURS), _LEFT, y)
        right = _bars(case, per_cpu_s, (MM2, OURS), _RIGHT, y)
        parts += [*left, *right]
        y += len(_COLOURS) * (_BAR + _GAP) + _CASE_GAP
    return _page(results, "\n".join(parts), y)


def _bars(case: CaseResult, figure: Callable[[Run], float], systems: tuple[str, ...], x: int, y: int) -> list[str]:
    values = {system: case.median(system, figure) for system in systems}
    longest = max((value for value in values.values() if value), default=1.0)
    parts = []
    for system, value in values.items():
        if value is not None:
            width = max(1.0, _BAR_WIDTH * value / longest)
            parts.append(f'  <rect x="{x}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[system]}"/>')
            parts.append(_text(x + width + 6, y + _BAR - 3, _short(value), size=11))
        y += _BAR + _GAP
    return parts


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2g} M" if value < 1e7 else f"{value / 1e6:.0f} M"
    return f"{value / 1e3:.0f} k" if value >= 1e4 else f"{value / 1e3:.1f} k"


def _text(x: float, y: float, text: str, size: int = 13, weight: int = 400, fill: str = _INK) -> str:
    return f'  <text x="{x:.1f}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{fill}">{escape(text)}</text>'


def _page(results: Results, body: str, height: int) -> str:
    key, x = [], _LEFT
    for system, colour in _COLOURS.items():
        key.append(f'  <rect x="{x}" y="18" width="12" height="12" fill="{colour}"/>')
        key.append(_text(x + 18, 29, TITLES[system], size=12))
        x += 40 + 7 * len(TITLES[system])
    machine = f"{results.made}, {results.machine['cores']} cores shared with both clusters; each case has its own scale"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"
     role="img" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">
  <title>MirrorMaker 2 and airflow_mirror side by side</title>
  <desc>Bars for each benchmark case: records a second on the left, records per CPU second of the copier on the right.
  The same figures stand in the tables of docs/benchmarks.md.</desc>
  <rect x="1" y="1" width="{_WIDTH - 2}" height="{height - 2}" rx="10" fill="#ffffff" stroke="#d0d7de"/>
{chr(10).join(key)}
{_text(_LEFT, 54, "records a second", fill=_DIM)}
{_text(_RIGHT, 54, "records per CPU second of the copier", fill=_DIM)}
{body}
{_text(_LEFT, height - 14, machine, size=11, fill=_DIM)}
</svg>
"""
