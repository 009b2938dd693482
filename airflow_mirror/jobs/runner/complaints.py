"""Warnings of what may fail many times a minute while the copy goes on: the first at once, then one a minute.

Of what may last for days: each change at once, then one an hour.
"""

from __future__ import annotations

import logging
import time

_EVERY_S, _SAME_EVERY_S = 60.0, 3600.0


class Complaints:
    """Belongs to one thread.

    :param text: what is logged, with ``%s`` for the error.
    :param each_change: of what may last for days.
    """

    def __init__(self, log: logging.Logger, text: str, *, each_change: bool = False) -> None:
        self._log, self._text, self._each_change = log, text, each_change
        self._said_at, self._said = float("-inf"), ""

    def of(self, error: Exception) -> None:
        """Warn, unless that was done a short time ago."""
        is_news = self._each_change and str(error) != self._said
        if is_news or time.monotonic() - self._said_at >= (_SAME_EVERY_S if self._each_change else _EVERY_S):
            self._said_at, self._said = time.monotonic(), str(error)
            self._log.warning(self._text, error)
