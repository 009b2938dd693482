"""How tests wait for what others do, and let time pass without waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(
    question: Callable[[], Answer], what: str = "what it asks for", timeout_s: float = 240.0, poll_s: float = 0.02
) -> Answer:
    """Poll ``question`` until its answer counts as true, and return that. So long, because a machine may stand still."""
    deadline = time.monotonic() + timeout_s
    while not (answer := question()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(poll_s)
    return answer


class Elapsing(threading.Event):
    """An event for which nobody waits: a clock goes on by so much instead. For code that runs in the test's thread.

    :ivar now: monotonic, in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now, self._ends_at = 1000.0, float("inf")

    def ends_in(self, seconds: float) -> None:
        """Have it be set by then."""
        self.clear()
        self._ends_at = self.now + seconds

    def clock(self) -> float:
        """Return the time by now."""
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        """Let so much time pass, unless it is set."""
        assert timeout is not None, "nobody would set it"
        if not self.is_set():
            self.now += timeout
        if self.now >= self._ends_at:
            self.set()
        return self.is_set()
