"""Time, for who waits: a value that is handed down, so that tests let it pass."""

from __future__ import annotations

import time
from typing import Protocol


def since_boot_s() -> float:
    """Return seconds from a clock that also advances while the machine is suspended, unlike CLOCK_MONOTONIC.

    It does not count a hypervisor's pause (a snapshot, a live migration), behind which what is old looks fresh.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock(Protocol):
    """Time, and waiting for it."""

    def time(self) -> float:
        """Return seconds since the epoch, for people and for ages."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class SystemClock:
    """The machine's. Its monotonic one goes on while the machine sleeps: that time others have had."""

    time, monotonic, sleep = staticmethod(time.time), staticmethod(since_boot_s), staticmethod(time.sleep)


SYSTEM = SystemClock()
