"""How other threads reach the loop: their calls are made in the loop's thread, and wake its selector up."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Takes calls from any thread; :meth:`receive` makes them, in their order."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._calls: deque[Callable[[], None]] = deque()
        selector.register(self._wake_read, selectors.EVENT_READ, self)

    def post(self, call: Callable[[], None]) -> None:
        """Have ``call`` made by the loop. Never waits, also when nobody receives any more."""
        self._calls.append(call)
        try:
            self._wake_write.send(b".")
        except OSError:
            pass  # full: the loop wakes up anyway; or closed: it has ended

    def receive(self) -> None:
        """Make the calls that have arrived; one that raises leaves those behind it for the next time."""
        try:
            self._wake_read.recv(4096)
        except BlockingIOError:
            pass
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def close(self) -> None:
        """Wake nobody any more."""
        self._wake_read.close()
        self._wake_write.close()
