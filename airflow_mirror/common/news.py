"""What a log of weeks is told: each thing when it changes, and once an hour while it does not."""

from __future__ import annotations

_SAME_EVERY_S = 3600.0


class News:
    """What was said last, and when. Belongs to one thread.

    :ivar said_s: by the caller's clock; minus infinity before the first line.
    """

    def __init__(self) -> None:
        self.said_s, self._line = float("-inf"), ""

    def has(self, line: str, now_s: float) -> bool:
        """Return whether a line is to be said now: it is another one than the last, or that one is an hour old."""
        if line == self._line and now_s - self.said_s < _SAME_EVERY_S:
            return False
        self.said_s, self._line = now_s, line
        return True
