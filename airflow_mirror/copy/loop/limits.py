"""Limits of a task's memory and byte rate. They are checked before work begins, never enforced afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable


class Memory:
    """Bytes of fetch responses that a task holds. A response's buffer lives until the last partition is done with it.

    :param limit: bytes; a single batch larger than that is still taken, alone.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def free(self) -> int:
        """Bytes that may still be asked for."""
        return max(0, self.limit - self.used)


class Buffer:
    """The bytes of one response, counted from its arrival until every taker has given it back."""

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory, self.size, self._takers = memory, size, 0

    def take(self) -> None:
        """Use a part of it."""
        if self._takers == 0:
            self._memory.used += self.size
        self._takers += 1

    def give_back(self) -> None:
        """Be done with a part of it."""
        self._takers -= 1
        if self._takers == 0:
            self._memory.used -= self.size


class Pace:
    """Holds an average rate: what was written above it must be waited for.

    :param bytes_per_s: None for no limit.
    :param clock: seconds, monotonic.
    """

    BURST_S = 0.5  # unused time is saved up for this long only, so that a pause is not followed by a flood

    def __init__(self, bytes_per_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = bytes_per_s, clock
        self._due = clock()  # when everything written so far is paid for

    @property
    def wait_s(self) -> float:
        """Seconds until the next write may be sent; 0 when it may now."""
        return 0.0 if self._rate is None else max(0.0, self._due - self._clock())

    @property
    def portion(self) -> int | None:
        """Bytes that make a request of reasonable size at this rate; None for no limit."""
        return None if self._rate is None else max(1, int(self._rate * self.BURST_S))

    def spend(self, size: int) -> None:
        """Take note of ``size`` bytes that are sent."""
        if self._rate is not None:
            self._due = max(self._due, self._clock() - self.BURST_S) + size / self._rate
