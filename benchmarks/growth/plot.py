"""Four panels of an SVG: dots and a line each, both axes logarithmic. Knows nothing of what they mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Place = tuple[float, float]
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 420, 240, 64, 44, 16, 36  # of one panel
_DOT, _LINE, _INK, _DIM, _GRID = "#0969da", "#bf8700", "#1f2328", "#57606a", "#d8dee4"


@dataclass(frozen=True)
class Curve:
    """What was measured, and what the model says; by rising x."""

    dots: Sequence[Place]
    line: Sequence[Place]


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    curve: Curve


def number(value: float) -> str:
    """Three digits are more than shared cores are good for."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def draw(panels: Sequence[Panel], below: str) -> str:
    """Return the SVG: two panels beside each other, and a line of text below."""
    parts = [_panel(panel, at % 2 * _WIDTH, at // 2 * _HEIGHT) for at, panel in enumerate(panels)]
    height = -(-len(panels) // 2) * _HEIGHT + 28
    about = "; ".join(panel.title for panel in panels)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {height}" width="{2 * _WIDTH}"
     height="{height}" role="img" font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">
  <title>What a copy costs as it grows</title>
  <desc>{escape(about)}. The same figures stand in the tables of docs/benchmarks.md.</desc>
  <rect x="1" y="1" width="{2 * _WIDTH - 2}" height="{height - 2}" rx="10" fill="#ffffff" stroke="#d0d7de"/>
{chr(10).join(parts)}
{_text(_LEFT, height - 12, below, "start", 11, _DIM)}
</svg>
"""


class _Scale:
    """A logarithmic axis from the smallest value to the largest, in pixels.

    :param span: it spans at least this factor: a tenth more or less must not look like a trend.
    """

    def __init__(self, values: Sequence[float], begin: float, end: float, span: float = 1.2) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        margin = max((high - low) * 0.08, (math.log10(span) - (high - low)) / 2)
        self._low, self._high, self._begin, self._end = low - margin, high + margin, begin, end

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Return round values, at most five."""
        for steps in ((1, 2, 5), (1, 3), (1,)):
            powers = range(math.floor(self._low), math.ceil(self._high) + 1)
            found = [s * 10.0**p for p in powers for s in steps if self._low <= math.log10(s * 10.0**p) <= self._high]
            if len(found) <= 5:
                break
        return found


def _panel(panel: Panel, x: float, y: float) -> str:
    dots, line = panel.curve.dots, panel.curve.line
    across = _Scale([at for at, _ in dots], x + _LEFT, x + _WIDTH - _RIGHT)
    up = _Scale([value for _, value in (*dots, *line)], y + _HEIGHT - _BOTTOM, y + _TOP, span=8.0)
    parts = [_text(x + _LEFT, y + 28, panel.title, "start", 13, _INK)]
    for value in up.ticks():
        at, ends = f"{up(value):.1f}", (x + _LEFT, x + _WIDTH - _RIGHT)
        parts.append(f'  <line x1="{ends[0]}" y1="{at}" x2="{ends[1]}" y2="{at}" stroke="{_GRID}"/>')
        parts.append(_text(x + _LEFT - 6, up(value) + 4, number(value), "end", 11, _DIM))
    parts += [_text(across(value), y + _HEIGHT - 18, number(value), "middle", 11, _DIM) for value in across.ticks()]
    path = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in line)
    parts.append(f'  <polyline points="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>')
    parts += [f'  <circle cx="{across(at):.1f}" cy="{up(value):.1f}" r="4" fill="{_DOT}"/>' for at, value in dots]
    return "\n".join(parts)


def _text(x: float, y: float, text: str, anchor: str, size: int, fill: str) -> str:
    return (
        f'  <text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )
