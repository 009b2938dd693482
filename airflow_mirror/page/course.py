"""What mirrors' lag and rate have been, for as long as somebody has looked: the ledger keeps only what was said last.

It is this process's memory: gone with it, and another API server has its own. While nobody looks nothing is seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

KEEP_S = 3 * 3600.0
EVERY_S = 15.0  # between two that are kept: 720 of a mirror, some 100 kB


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
