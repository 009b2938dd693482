"""Retry deadline and pauses."""

from __future__ import annotations

import random
import time


class Backoff:
    """A deadline with growing pauses. Jitter keeps a hundred tasks from retrying in step after a broker's restart."""

    def __init__(self, timeout_s: float, first_s: float = 0.02, longest_s: float = 1.0) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._next_s, self._longest_s = first_s, longest_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 if it has passed."""
        return max(self._deadline - time.monotonic(), 0.0)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._deadline

    def put_off(self, seconds: float) -> None:
        """Move the deadline: so long a broker wants no request, which says nothing about whether it answers."""
        self._deadline += seconds

    def pause(self) -> None:
        """Sleep, longer each time, but not beyond the deadline."""
        # Never beyond the deadline, so that a last try follows it, and its answer is the error that is told.
        time.sleep(min(self._next_s * random.uniform(0.7, 1.3), self.left_s))
        self._next_s = min(self._next_s * 2, self._longest_s)
