"""Warnings of what may fail many times a minute while the copy goes on: the first at once, then one a minute.

Of what may last for days: each change at once, then one an hour.
"""

from __future__ import annotations

import logging
import time

_EVERY_S = 60.0
SAY_AGAIN_S = 3600.0


class Complaints:
    """Belongs to one thread.

    :param text: what is logged, with ``%s`` for the error.
    :param every_s: seconds between two warnings of the same; with :data:`SAY_AGAIN_S` another error is said at once.
    """

    def __init__(self, log: logging.Logger, text: str, every_s: float = _EVERY_S) -> None:
        self._log, self._text, self._every_s = log, text, every_s
        self._said_at, self._said = float("-inf"), ""

    def of(self, error: Exception) -> None:
        """Warn, unless that was done a short time ago."""
        is_news = self._every_s == SAY_AGAIN_S and str(error) != self._said
        if is_news or time.monotonic() - self._said_at >= self._every_s:
            self._said_at, self._said = time.monotonic(), str(error)
            self._log.warning(self._text, error)
