"""Smoothed rates: the change of a number over the last seconds. The clock is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

WINDOW_S = 10.0  # long enough to smooth the gaps between batches and turns, short enough to show a stall while it lasts

KEEPS_UP_S = 2.0


class Window:
    """Samples of a few numbers over the last :data:`WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque()

    def add(self, now: float, *values: int) -> None:
        """Add the numbers at ``now`` (seconds, monotonic)."""
        self._samples.append((now, values))
        # The oldest sample that is kept is the youngest one that is at least as old as the window.
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    @property
    def per_s(self) -> Sequence[float]:
        """Change of each number per second; zeros until there are two samples."""
        (then, first), (now, last) = self._samples[0], self._samples[-1]
        seconds = now - then
        return [(b - a) / seconds if seconds > 0 else 0.0 for a, b in zip(first, last, strict=True)]


def eta_s(lag: int, shrinks_per_s: float, advances_per_s: float) -> int | None:
    """Return the seconds until a lag is gone; None when it does not shrink.

    A tail that keeps up always has a small lag, which neither shrinks nor grows: it is copied at the rate at which the
    position advances.
    """
    if lag <= 0:
        return 0
    if lag <= advances_per_s * KEEPS_UP_S:
        return round(lag / advances_per_s)
    return round(lag / shrinks_per_s) if shrinks_per_s > 0 else None
