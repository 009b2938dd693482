"""Calls a person: a function of yours, such as one that pages whoever is on duty, named by its path.

The path comes from whoever starts a guard, on the host of that guard, and from nowhere else: in the target's ledger it
would let everybody run code who may write there. A function that fails or hangs keeps no fence up: each call has a
thread of its own, and what it raises is logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from airflow_mirror.common.dotted import function_at
from airflow_mirror.errors import InvalidField

_LOG = logging.getLogger("airflow_mirror.alarm")
_TURN_S = 10.0  # calls come in order, unless one hangs


def alarm_of(path: str) -> Callable[[str], object]:
    """Return the function that a path names: ``package.module.function``.

    :raises InvalidField: it can't be imported here, or can't be called.
    """
    try:
        # Imported by whoever starts a guard as well, before a fence is up: a path that is wrong is said then.
        return function_at(path)
    except ImportError as e:
        remedy = "Use package.module.function, of one that takes a text."
        raise InvalidField("alarm", path, f"can't be imported: {e}", remedy) from None


class Alarm:
    """Calls the function that a path names; nobody if that is ""."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._calls: list[threading.Thread] = []

    def call(self, text: str) -> None:
        """Call it with a text, and go on."""
        if not self._path:
            return
        self._calls = [one for one in self._calls if one.is_alive()]
        order = self._path, text, self._calls[-1] if self._calls else None
        # In a thread: a function that hangs must not keep a fence up. A guard that dies here has decided what it has
        # decided, and nobody was told: the tail's guard, if it sees the fence, tells in its turn.
        self._calls.append(threading.Thread(target=_call, args=order, name="alarm", daemon=True))
        self._calls[-1].start()

    def wait(self, timeout_s: float) -> None:
        """Return when every call has, at the latest after some seconds: before this process ends."""
        deadline = time.monotonic() + timeout_s
        for one in self._calls:
            # A guard that ends takes its threads with it: so it waits for a page that is on its way, but not for one
            # that hangs.
            one.join(max(0.0, deadline - time.monotonic()))


def _call(path: str, text: str, before: threading.Thread | None) -> None:
    if before is not None:
        # Not for ever: a call that hangs must not keep the next one back, which has something newer to say.
        before.join(_TURN_S)
    try:
        alarm_of(path)(text)
    except Exception:
        _LOG.exception("%s could not be called, so nobody was told: %s", path, text)
