"""What mirrors' lag and rate have been, for as long as somebody has looked: the ledger keeps only what was said last.

It is this process's memory: gone with it, and another API server has its own. While nobody looks nothing is seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from airflow_mirror.common.chart import Axis, Chart, Line, Say, number, plot
from airflow_mirror.wording import duration, size

KEEP_S = 3 * 3600.0
EVERY_S = 15.0  # between two that are kept: 720 of a mirror, some 100 kB
_GAP_S = 60.0  # nobody has looked in between


class Seen(NamedTuple):
    """A mirror's figures at one moment, in seconds since 1970; None: not known."""

    at: float
    lag: float | None
    lag_s: float | None
    bytes_per_s: float | None


class Courses:
    """The courses of one target's mirrors. Belongs to one thread at a time; :meth:`of` may be asked by any."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[Seen]] = {}

    def see(self, rows: Iterable[Mapping[str, Any]], now: float) -> None:
        """Remember rows of the list as they are ``now`` (seconds since 1970); forget mirrors that are gone."""
        seen = {}
        for row in rows:
            name = row["mirror"]
            seen[name] = course = self._seen.get(name, deque())
            one = Seen(now, *(row[key] for key in Seen._fields[1:]))
            if any(value is not None for value in one[1:]) and (not course or now - course[-1].at >= EVERY_S):
                course.append(one)
            while course and now - course[0].at > KEEP_S:
                course.popleft()
        self._seen = seen

    def of(self, mirror: str) -> list[Seen]:
        """Return what was seen of a mirror, oldest first."""
        return list(self._seen.get(mirror, ()))


def charts(seen: Sequence[Seen]) -> list[Chart]:
    """Return lag and rate as lines, with a gap where nobody has looked; nothing for fewer than two looks."""
    if len(seen) < 2:
        return []
    in_time = any(one.lag_s is not None for one in seen)
    lag = _line(seen, "lag_s" if in_time else "lag", _seconds if in_time else number)
    lines = {"behind": lag, "rate": _line(seen, "bytes_per_s", lambda rate: f"{size(round(rate))}/s")}
    axis = Axis.of_seconds(
        seen[0].at, max(seen[-1].at, seen[0].at + 0.001), seen[-1].at, width=520.0, left=84.0, right=8.0
    )
    over = duration(seen[-1].at - seen[0].at)
    return [plot(title, _said(line, over), line, axis) for title, line in lines.items() if _values(line)]


def _line(seen: Sequence[Seen], key: str, say: Say) -> Line:
    points = [(seen[0].at, getattr(seen[0], key))]
    for before, one in pairwise(seen):
        if one.at - before.at >= _GAP_S:
            points.append((one.at, None))
        points.append((one.at, getattr(one, key)))
    return Line(points=points, say=say)


def _values(line: Line) -> list[float]:
    return [value for _, value in line.points if value is not None]


def _said(line: Line, over: str) -> str:
    values = _values(line)
    return f"{line.say(values[-1])} now, at most {line.say(max(values))} in {over}"


def _seconds(value: float) -> str:
    return "level" if value < 0.05 else f"{value:.1f} s" if value < 10 else duration(value)
