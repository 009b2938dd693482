"""The times that the engine waits by the wall clock, cut in one place: a driven broker is never slow.

Nothing here changes what is decided, only how long a wait takes. `SHORT` holds (module, constant, seconds). Besides,
every ``time.sleep`` of the engine's modules that are loaded takes a millisecond at most.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from airflow_mirror.copy.loop import loop, retries
from airflow_mirror.copy.writer import padding

if TYPE_CHECKING:
    import pytest

SHORT: tuple[tuple[object, str, object], ...] = (
    (retries, "BACKOFF_S", (0.001,)),
    (loop, "_IDLE_S", 0.002),  # also how soon a partition whose pause is over is opened again
    (padding, "_QUIET_S", 0.001),
    (padding, "_DOUBT_S", 0.001),
)
_ENGINE = ("airflow_mirror.copy.", "airflow_mirror.wire.")


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the waits for one test."""
    for module, name, value in SHORT:
        assert hasattr(module, name), f"{module} has no {name} any more"
        monkeypatch.setattr(module, name, value)
    quick = SimpleNamespace(
        time=time.time, monotonic=time.monotonic, thread_time=time.thread_time,
        sleep=lambda seconds: time.sleep(min(seconds, 0.001)),
        clock_gettime=time.clock_gettime, CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )  # fmt: skip
    for name, module in list(sys.modules.items()):
        if name.startswith(_ENGINE) and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", quick)
