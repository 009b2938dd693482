"""What the benchmark says while it works, on stderr: a line for each run, and a moving one on a terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_QUIET_S = 10.0  # without a terminal, a run says something at most this often


class Progress:
    """Says where the benchmark is.

    :param steps: how many there will be.
    """

    def __init__(self, steps: int, to: TextIO | None = None) -> None:
        self._steps, self._to = steps, to or sys.stderr
        self._done = 0
        self._title = ""
        self._begun = self._step_begun = self._said = time.monotonic()

    def begin(self, title: str) -> None:
        """Start a step."""
        self._done += 1
        self._title = title
        self._step_begun = self._said = time.monotonic()
        self.note("")

    def note(self, text: str) -> None:
        """Say how far the step is: at once on a terminal, now and then in a log."""
        now = time.monotonic()
        line = f"{self._head()} {self._title}{': ' + text if text else ''} ({now - self._step_begun:.0f} s)"
        if self._to.isatty():
            self._print(f"\r\x1b[K{line[:118]}", "")
        elif now - self._said >= _QUIET_S:
            self._said = now
            self._print(line)

    def end(self, text: str) -> None:
        """Close the step with what came of it."""
        self._print(f"{self._clear()}{self._head()} {self._title}: {text} ({time.monotonic() - self._step_begun:.0f} s)")

    def say(self, text: str) -> None:
        """Say something that belongs to no step."""
        self._print(f"{self._clear()}{text}")

    def _head(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        return f"{minutes:3d}:{seconds:02d} [{self._done}/{self._steps}]"

    def _clear(self) -> str:
        return "\r\x1b[K" if self._to.isatty() else ""

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._to, flush=True)
