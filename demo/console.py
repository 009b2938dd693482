"""What the demo says while it works: one line for each step, a moving one on a terminal, seconds for the table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console as RichConsole

if TYPE_CHECKING:
    from rich.status import Status

QUIET_S = 10.0
"""Without a terminal, a running step says something at most this often (seconds)."""

LOG_WIDTH = 120
"""Columns, where there is no terminal to ask."""


class Step:
    """One running step. ``note`` says how far it is."""

    def __init__(self, title: str, rich: RichConsole, status: Status | None) -> None:
        self.title, self._rich, self._status = title, rich, status
        self.started = self._said = time.monotonic()
        self.summary = ""

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.started

    def note(self, text: str) -> None:
        """Show ``text`` next to the title: at once on a terminal, every few seconds in a log."""
        if self._status is not None:
            self._status.update(f"{self.title}: {text}  [dim]{self.seconds:.0f} s[/dim]")
        elif time.monotonic() - self._said >= QUIET_S:
            self._said = time.monotonic()
            self._rich.print(f"  {self.title}: {text} ({self.seconds:.0f} s)", markup=False, highlight=False)

    def bar(self, done: float, total: float, unit: str) -> None:
        """Show a bar of ``done`` out of ``total``."""
        share = min(1.0, done / total) if total else 1.0
        filled = round(20 * share)
        self.note(f"{'█' * filled}{'░' * (20 - filled)} {done:,.0f} of {total:,.0f} {unit}")


class Console:
    """Says what happens and keeps the seconds of every step, in order, in ``seconds``."""

    def __init__(self, rich: RichConsole | None = None) -> None:
        self.rich = rich or RichConsole(highlight=False)
        if not self.rich.is_terminal:
            self.rich.width = LOG_WIDTH
        self.seconds: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Print one line."""
        self.rich.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Run a step; prints its title with what it did and how long it took."""
        with self._open(title) as step:
            yield step
        self.seconds[title] = step.seconds
        self.say(f"✓ {title}{': ' + step.summary if step.summary else ''} ({step.seconds:.1f} s)")

    @contextmanager
    def _open(self, title: str) -> Iterator[Step]:
        if not self.rich.is_terminal:
            yield Step(title, self.rich, None)
            return
        with self.rich.status(title) as status:
            yield Step(title, self.rich, status)
