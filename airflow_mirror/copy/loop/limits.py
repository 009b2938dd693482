"""Limits of a task's memory and byte rate. They are checked before work starts, never enforced afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable


class Memory:
    """Bytes of fetch responses that a task holds. A response's buffer lives until its last partition is done with it.

    :param limit: in bytes; a single batch larger than that is still accepted, alone.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def free(self) -> int:
        """Bytes that may still be requested."""
        return max(0, self.limit - self.used)


class Buffer:
    """The bytes of one response, counted from its arrival until every user has released it.

    :param arrived_ms: when it arrived, in ms since 1970.
    """

    def __init__(self, memory: Memory, size: int, arrived_ms: int) -> None:
        self._memory, self.size, self.arrived_ms, self._takers = memory, size, arrived_ms, 0

    def take(self) -> None:
        """Add a user of the buffer."""
        if self._takers == 0:
            self._memory.used += self.size
        self._takers += 1

    def give_back(self) -> None:
        """Remove a user of the buffer."""
        self._takers -= 1
        if self._takers == 0:
            # Of the whole response at once: its bytes are one buffer, which can't be given back in parts.
            self._memory.used -= self.size


class Throttle:
    """What the brokers of one side last said of a quota: how long they don't read from a connection (KIP-219).

    :param clock: monotonic, in seconds.
    """

    LASTS_S = 10.0  # from one request to the next

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._ms, self._until = clock, 0, 0.0

    def told(self, ms: int) -> float:
        """Note what a response said; return until when nothing may be sent there."""
        now = self._clock()
        # A broker tells it with each answer, and 0 with most: without a while in which the longest one lasts, whoever
        # looks once a second would see it by chance.
        if ms and (ms >= self._ms or now > self._until):
            self._ms, self._until = ms, now + max(ms / 1000, self.LASTS_S)
        return now + ms / 1000

    @property
    def ms(self) -> int:
        """The longest time that holds or was told lately; 0: no quota was exceeded."""
        return self._ms if self._clock() < self._until else 0


class Portions:
    """How many bytes a broker is asked for at a time, where a quota has it hold its answers back.

    Such a broker counts what it gives before it sends it. An answer that is given up for its silence is asked for again,
    counted again, and held back for as long.

    :param most: as long as nothing is held back for long. :param least: in any case.
    """

    LONG_MS = 10_000

    def __init__(self, most: int, least: int) -> None:
        self._most, self._least = most, least
        self._portions: dict[int, int] = {}  # by broker

    def of(self, node_id: int) -> int:
        """Return how much to ask a broker for."""
        return self._portions.get(node_id, self._most)

    def given_up(self, node_id: int, asked: int) -> None:
        """Ask for less from now on than was asked for in vain."""
        # A quarter, as a partition is given up when some four requests in a row came to nothing (`retries`). Not of what
        # another connection has brought it down to meanwhile: both were silent for what they had asked for together.
        self._portions[node_id] = max(min(self.of(node_id), asked // 4), self._least)

    def answered(self, node_id: int, size: int, held_ms: int) -> None:
        """Ask for less if an answer was held back for long, and for more again if a full one came at once."""
        # A quota holds for what came in the last ten seconds. So twice of what fitted is held back for twenty seconds at
        # most; but others, whose answers count with this one, may ask for more at the same time.
        portion = self.of(node_id)
        if held_ms > self.LONG_MS:
            self._portions[node_id] = max(portion // 2, self._least)
        elif not held_ms and 2 * size > portion:
            self._portions[node_id] = min(2 * portion, self._most)


class Pace:
    """Holds an average rate: a write above it has to wait.

    :param bytes_per_s: None for no limit.
    :param clock: monotonic, in seconds.
    """

    BURST_S = 0.5  # unused time accrues for this long only, so that no burst follows a pause

    def __init__(self, bytes_per_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = bytes_per_s, clock
        self._due = clock()  # when the bytes written so far fit the rate

    @property
    def wait_s(self) -> float:
        """Seconds until the next write may be sent; 0 if it may be sent now."""
        return 0.0 if self._rate is None else max(0.0, self._due - self._clock())

    @property
    def portion(self) -> int | None:
        """Bytes for a request of reasonable size at this rate; None for no limit."""
        return None if self._rate is None else max(1, int(self._rate * self.BURST_S))

    def spend(self, size: int) -> None:
        """Account for ``size`` bytes that were sent."""
        if self._rate is not None:
            # Counted when the bytes went out, not when they were answered: an answer that is lost has used the network
            # all the same.
            self._due = max(self._due, self._clock() - self.BURST_S) + size / self._rate
