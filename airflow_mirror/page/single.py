"""A value that one thread reads at a time, however many ask for it.

Its threads are daemons, unlike an executor's: an API server that is to end does not wait for a cluster that is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class Threads:
    """As many readings as ``most`` at a time; the others wait."""

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)

    def submit(self, read: Callable[[], None]) -> Future[None]:
        """Return what will be done once ``read`` has returned, or raised."""
        future = Future[None]()

        def run() -> None:
            with self._free:
                try:
                    read()
                except BaseException as e:
                    future.set_exception(e)
                else:
                    future.set_result(None)

        threading.Thread(target=run, name="page-of-mirrors", daemon=True).start()
        return future


class Single(Generic[T]):
    """A value that is read again once it is asked for and older than ``fresh_s``; never twice at the same time.

    A reading that raised is fresh for nobody: the next one who asks begins another.

    :param read: reads it. :param threads: in which it is read.
    :param clock: monotonic, in seconds.
    :ivar last: what was read last; None: nothing yet. :ivar asked: when somebody asked last.
    """

    def __init__(
        self, read: Callable[[], T], fresh_s: float, threads: Threads, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._fresh_s, self._threads, self._clock = read, fresh_s, threads, clock
        self._lock = threading.Lock()
        self._reading: Future[None] | None = None
        self._read_at = 0.0
        self.last: T | None = None
        self.asked = clock()

    def begin(self, threads: Threads | None = None) -> Future[None]:
        """Return a reading that is done, or will be: one that is under way, or is fresh, or a new one.

        :param threads: in which a new one is read; None: its own.
        """
        with self._lock:
            self.asked = self._clock()
            if self._reading is None or (self._reading.done() and not self._is_fresh(self._reading)):
                self._reading = (threads or self._threads).submit(self._once)
            return self._reading

    def _is_fresh(self, reading: Future[None]) -> bool:
        return reading.exception() is None and self.asked - self._read_at < self._fresh_s

    def get(self, wait_s: float) -> T | None:
        """Return the value, or what was read before if it takes longer, or can't be read now.

        Raises what the reading raised if nothing was read before.
        """
        reading = self.begin()
        wait([reading], wait_s)
        if reading.done() and self.last is None:
            reading.result()
        return self.last

    @property
    def rests(self) -> bool:
        """Whether nobody reads it."""
        return self._reading is None or self._reading.done()

    def _once(self) -> None:
        self.last = self._read()
        self._read_at = self._clock()
