"""Pictures of pages, as marks of inline SVG: lines, spans of time, and bars. The macro ``draw`` of a page writes them.

Values in, coordinates out: nothing here knows a report, a clock or a browser, and no library draws better what has to be
one file without a script. Colours are the page's own (``page.html.jinja``), which has them for light, dark and paper;
what a colour says, a text or a dash says as well. Ten thousand values become the largest few and a histogram.
"""

from __future__ import annotations

import heapq
import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.names import pieces

Point = tuple[float, float | None]
Say = Callable[[float], str]

WIDTH, ROW, FOOT = 1000.0, 20.0, 18.0  # of a drawing, in its own units; a browser scales it to the page
MOST_BARS, _MOST_CLASSES = 12, 16
_MOST_POINTS = 400  # of a line: more are no pixels
_MOST_TICKS = 10
_LETTER, _LETTERS = 6.7, 44  # of a name in the page's monospaced letters: wide, and on one line
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True)
class Mark:
    """One element of a drawing. :param text: inside of it; of a shape, what is said when it is pointed at."""

    tag: str
    at: Mapping[str, Any]
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A drawing.

    :param title: above it. :param text: what it shows, in words, for who can't see it.
    """

    title: str
    text: str
    height: float
    marks: Sequence[Mark]
    width: float = WIDTH

    @property
    def id(self) -> str:
        """Its name in the page, which has one drawing of each title."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What runs from left to right, shared by drawings that stand above each other.

    :param first: value at the left end; ``last`` at the right one.
    :param ticks: value and text of each. :param shade: from and to. :param limit: a dashed line.
    :param left: margin for what stands beside the rows; ``right`` likewise.
    """

    first: float
    last: float
    ticks: Sequence[tuple[float, str]] = ()
    shade: tuple[float, float] | None = None
    limit: float | None = None
    left: float = 130.0
    right: float = 120.0  # "123.40 s, running" behind a bar that ends there
    width: float = WIDTH

    @classmethod
    def of_seconds(cls, first: float, last: float, zero: float, **more: Any) -> Axis:
        """Return an axis of moments in seconds, with a tick for each round number of seconds from ``zero``."""
        every = next((step for step in _STEPS if (last - first) / step <= _MOST_TICKS), (last - first) / _MOST_TICKS)
        begin, end = -int((zero - first) / every), int((last - zero) / every)
        ticks = [(zero + n * every, seconds(round(n * every, 6), every)) for n in range(begin, end + 1)]
        return cls(first=first, last=last, ticks=ticks, **more)

    def x(self, value: float) -> float:
        """Return where a value stands; one outside stands at the end."""
        share = (min(max(value, self.first), self.last) - self.first) / max(self.last - self.first, 1e-9)
        return round(self.left + share * (self.width - self.left - self.right), 2)

    def marks(self, height: float) -> list[Mark]:
        """Return shade, ticks and limit of a drawing of that height without its foot."""
        found = []
        if self.shade is not None:
            start, end = map(self.x, self.shade)
            shade = {"class": "shade", "x": start, "y": 0, "width": round(end - start, 2), "height": height}
            found.append(Mark("rect", shade))
        for value, text in self.ticks:
            found.append(Mark("line", {"class": "grid"} | _line(self.x(value), 0, self.x(value), height)))
            anchor = "end" if self.x(value) + len(text) * _LETTER / 2 > self.width else "middle"
            found.append(_text(self.x(value), height + 14, text, "dim", anchor))
        if self.limit is not None and self.first <= self.limit <= self.last:
            found.append(Mark("line", {"class": "limit"} | _line(self.x(self.limit), 0, self.x(self.limit), height)))
        return found


@dataclass(frozen=True, kw_only=True)
class Span:
    """A bar of a time line. :param kind: its class; :param said: behind it."""

    name: str
    start: float
    end: float
    said: str
    kind: str = "done"


def spans(title: str, text: str, rows: Sequence[Span], axis: Axis) -> Chart:
    """Return a row for each span, on the axis."""
    height, marks = ROW * len(rows), axis.marks(ROW * len(rows))
    for number, one in enumerate(rows):
        start, y = axis.x(one.start), number * ROW
        width = max(1.5, round(axis.x(one.end) - start, 2))
        marks.append(_text(axis.left - 8, y + 14, one.name, "", "end"))
        bar = {"class": f"bar {one.kind}", "x": start, "y": y + 4, "width": width, "height": 12, "rx": 2}
        marks += [Mark("rect", bar), _text(start + width + 5, y + 14, one.said, "dim")]
    return Chart(title=title, text=text, width=axis.width, height=height + FOOT, marks=marks)


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a plot shows.

    :param points: in order; one without a value is a gap. :param say: a value in words.
    :param steps: a value holds until the next one, because between two looks nobody knows better.
    :param wanted: a dashed line. :param bad: numbers of points that are marked, each with its text in ``dots``.
    :param dots: texts of all points, if they are few enough to be shown one by one.
    """

    points: Sequence[Point]
    say: Say
    steps: bool = False
    wanted: float | None = None
    bad: Sequence[int] = ()
    dots: Sequence[str] = ()


def plot(title: str, text: str, line: Line, axis: Axis, height: float = 80.0) -> Chart:
    """Return a line over the axis, from 0 to its peak; both are said beside it."""
    points = line.points if line.dots else thinned(line.points)
    known = [value for _, value in points if value is not None]
    most, top = max([*known, line.wanted or 0.0]) or 1.0, 10.0

    def y(value: float) -> float:
        return round(height - value / most * (height - top), 2)

    marks = axis.marks(height)
    marks.append(Mark("line", {"class": "grid"} | _line(axis.left, height, axis.width - axis.right, height)))
    if line.wanted is not None:
        marks.append(
            Mark("line", {"class": "limit"} | _line(axis.left, y(line.wanted), axis.width - axis.right, y(line.wanted)))
        )
    for stretch in _stretches(points, line.steps):
        drawn = " ".join(f"{axis.x(at)},{y(value)}" for at, value in stretch)
        start, end = axis.x(stretch[0][0]), axis.x(stretch[-1][0])
        marks.append(Mark("polygon", {"class": "area", "points": f"{start},{height} {drawn} {end},{height}"}))
        marks.append(Mark("polyline", {"class": "line", "points": drawn}))
    for number, ((at, value), said) in enumerate(zip(points, line.dots, strict=False)):
        if value is None:
            marks.append(_text(axis.x(at), height - 3, "×", "dim", "middle"))
        else:
            kind = "bad" if number in line.bad else ""
            marks.append(Mark("circle", {"class": kind, "cx": axis.x(at), "cy": y(value), "r": 3}, said))
    marks += [
        _text(axis.left - 6, top + 4, line.say(most), "dim", "end"),
        _text(axis.left - 6, height, "0", "dim", "end"),
    ]
    return Chart(title=title, text=text, width=axis.width, height=height + FOOT, marks=marks)


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> Sequence[Point]:
    """Return at most so many of the points: of neighbours the highest, so that no peak is lost, and the last one."""
    if len(points) <= most:
        return points
    every = -(-len(points) // (most - 1))
    heads = points[:-1]
    kept = [max(heads[n : n + every], key=lambda one: one[1] or 0.0) for n in range(0, len(heads), every)]
    return [*kept, points[-1]]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A value with a name, which may be as long as a topic's. :param said: behind it, in words."""

    name: str
    value: float
    said: str
    bad: bool = False


def bars(title: str, text: str, rows: Sequence[Bar]) -> Chart:
    """Return a bar for each row; a long name goes on in the next line, at a separator."""
    names = [list(_lines(row.name)) for row in rows]
    left = max((len(line) for lines in names for line in lines), default=0) * _LETTER + 12
    most, marks, y = max((row.value for row in rows), default=0) or 1.0, list[Mark](), 0.0
    for row, lines in zip(rows, names, strict=True):
        width = max(1.5, round(row.value / most * (WIDTH - left - 160), 2))
        for number, line in enumerate(lines):
            marks.append(_text(round(left - 8, 2), y + 14 + 13 * number, line, "name", "end"))
        kind = "bar failed" if row.bad else "bar"
        marks.append(
            Mark("rect", {"class": kind, "x": round(left, 2), "y": y + 4, "width": width, "height": 12, "rx": 2})
        )
        marks.append(_text(round(left + width + 5, 2), y + 14, row.said, "dim"))
        y += ROW + 13 * (len(lines) - 1)
    return Chart(title=title, text=text, height=y, marks=marks)


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Many named values, of which a report keeps few.

    :param top: the first few with their values, the largest first, or the smallest.
    :param spread: upper bound (inclusive) and number of values of each class, ascending; empty: ``top`` has all.
    """

    total: int = 0
    top: Sequence[tuple[str, float]] = ()
    spread: Sequence[tuple[float, int]] = field(default=())

    @classmethod
    def of(cls, values: Iterable[tuple[str, float]], *, most: int = MOST_BARS, smallest: bool = False) -> Fold:
        """Fold values; those with the same value keep their order."""
        every = list(values)
        pick = heapq.nsmallest if smallest else heapq.nlargest
        top = pick(most, every, key=lambda one: one[1])
        return cls(total=len(every), top=top, spread=_spread([v for _, v in every]) if len(every) > most else ())

    @property
    def peak(self) -> float:
        """The first value; 0: there is none."""
        return self.top[0][1] if self.top else 0.0


def folded(title: str, of: str, fold: Fold, say: Say, bad: Callable[[str], bool] = lambda _: False) -> list[Chart]:
    """Return the bars of what is at the top, and how all are spread if that is not all; nothing of nothing.

    :param of: the noun of one value, as ``partition``.
    """
    if not fold.top:
        return []
    name, value = fold.top[0]
    text = f"{fold.total:,} {of}(s); first {name} with {say(value)}"
    head = title if not fold.spread else f"{title}: the first {len(fold.top)} of {fold.total:,} {of}s"
    found = [bars(head, text, [Bar(name=n, value=v, said=say(v), bad=bad(n)) for n, v in fold.top])]
    if fold.spread:
        rows = [Bar(name=_up_to(say, top), value=n, said=f"{n:,} {of}{'' if n == 1 else 's'}") for top, n in fold.spread]
        found.append(bars(f"{title}: all of them", f"{text}; {'; '.join(f'{r.name}: {r.said}' for r in rows)}", rows))
    return found


def number(value: float) -> str:
    """Return a number for people: ``12,345``, ``0.25``."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def seconds(value: float, every: float = 0.1) -> str:
    """Return seconds for people, in the largest unit of which ``every`` is a multiple: ``0.5 s``, ``3 min``, ``2 h``."""
    unit, factor = next(((unit, factor) for unit, factor in _UNITS if every % factor == 0), ("s", 1))
    return f"{value / factor:g} {unit}"


def _spread(values: Iterable[float]) -> list[tuple[float, int]]:
    """Return the classes of a histogram: 0, and up to 1, 2, 5, 10 and so on; only powers of ten where those are many."""
    rest, found = sorted(values), list[tuple[float, int]]()
    for factors in ((1, 2, 5), (1,)):
        bounds = [0.0, *(float(f"{factor}e{power}") for power in range(-3, 19) for factor in factors)]
        ends = [bisect_right(rest, bound) for bound in bounds]
        found = [(bound, end - start) for bound, start, end in zip(bounds, [0, *ends], ends, strict=False)]
        used = [n for n, (_, its) in enumerate(found) if its and n]
        found = found[: bool(found[0][1])] + (found[used[0] : used[-1] + 1] if used else [])
        if len(found) <= _MOST_CLASSES:
            break
    return found


def _up_to(say: Say, bound: float) -> str:
    return say(0) if not bound else f"up to {say(bound)}"


def _stretches(points: Sequence[Point], steps: bool) -> Iterable[list[tuple[float, float]]]:
    """Yield each stretch of points without a gap; a point alone is no line."""
    for known, group in itertools.groupby(points, key=lambda one: one[1] is not None):
        stretch = [(at, value) for at, value in group if value is not None]
        if known and steps:
            corners = ((after, value) for (_, value), (after, _) in itertools.pairwise(stretch))
            stretch = [stretch[0], *itertools.chain.from_iterable(zip(corners, stretch[1:], strict=True))]
        if len(stretch) > 1:
            yield stretch


def _lines(name: str) -> Iterable[str]:
    """Yield a name in lines that fit, each ending behind a separator if there is one."""
    line = ""
    for piece in pieces(name, _LETTERS):
        if line and len(line) + len(piece) > _LETTERS:
            yield line
            line = ""
        line += piece
    yield line


def _line(x1: float, y1: float, x2: float, y2: float) -> dict[str, float]:
    return {"x1": x1, "y1": y1, "x2": x2, "y2": y2}


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> Mark:
    at = {"x": x, "y": y} | ({"class": kind} if kind else {}) | ({"text-anchor": anchor} if anchor != "start" else {})
    return Mark("text", at, text)
