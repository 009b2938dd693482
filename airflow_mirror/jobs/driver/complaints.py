"""Warnings of what may fail many times a minute while the copy goes on: the first at once, then one a minute."""

from __future__ import annotations

import logging
import time

_EVERY_S = 60.0


class Complaints:
    """Belongs to one thread.

    :param text: what is logged, with ``%s`` for the error.
    """

    def __init__(self, log: logging.Logger, text: str) -> None:
        self._log, self._text = log, text
        self._said_at = float("-inf")

    def of(self, error: Exception) -> None:
        """Warn, unless that was done within the last minute."""
        if time.monotonic() - self._said_at >= _EVERY_S:
            self._said_at = time.monotonic()
            self._log.warning(self._text, error)
