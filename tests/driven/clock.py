"""The time of a driven cluster: it stands still until a test moves it."""

from __future__ import annotations

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class Clock:
    """Milliseconds since 1970. Move it by :meth:`DrivenCluster.advance`, which also lets time-outs happen."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.now_ms += round(seconds * 1000)
