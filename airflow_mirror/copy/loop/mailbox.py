"""Calls from other threads to the loop: they wake its selector and run in the loop's thread."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Accepts calls from any thread; :meth:`receive` runs them in order."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._calls: deque[Callable[[], None]] = deque()
        selector.register(self._wake_read, selectors.EVENT_READ, self)

    def post(self, call: Callable[[], None]) -> None:
        """Have the loop run ``call``. Never blocks, even if nobody receives any more."""
        # Queued first, then the loop is woken: the other way round it could wake up, find nothing, and sleep on it.
        self._calls.append(call)
        try:
            self._wake_write.send(b".")
        except OSError:
            pass  # full: the loop wakes up anyway; closed: it has ended

    def receive(self) -> None:
        """Run the calls that have arrived. If one raises, the calls after it stay queued."""
        try:
            # The bytes first, then the calls: a call that arrives in between has its own byte, which wakes the loop
            # once more.
            self._wake_read.recv(4096)
        except BlockingIOError:
            pass
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def close(self) -> None:
        """Stop waking the loop."""
        self._wake_read.close()
        self._wake_write.close()
