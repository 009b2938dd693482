"""How tests wait for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(
    question: Callable[[], Answer], what: str = "what it asks for", timeout_s: float = 240.0, poll_s: float = 0.02
) -> Answer:
    """Poll ``question`` until its answer counts as true, and return that. So long, because a machine may stand still."""
    deadline = time.monotonic() + timeout_s
    while not (answer := question()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(poll_s)
    return answer
