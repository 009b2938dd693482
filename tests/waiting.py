"""How tests wait for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(question: Callable[[], bool], what: str, timeout_s: float = 240.0, poll_s: float = 0.02) -> None:
    """Poll ``question`` until it is true. So long, because a machine may stand still for a minute."""
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(poll_s)
