"""What the code of a scenario asks the machine for instead of its scheduler: time, names, chance, threads.

Two runs of one story may differ by each of them, and a real sleep stops a schedule for as long. Some do no harm (the
claim of a decision is a name that nobody compares with another run's), so this is a list for people, not a finding.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from tests.explore.deviations import Told
from tests.explore.scenario import Scenario, run
from tests.explore.scheduler import Scheduler

_PACKAGE = "/airflow_mirror/"
_BUILT_IN = ("time", "random", "_random")  # of functions in C: their modules
_IN_PYTHON = ("uuid", "random", "threading", "subprocess", "socket")  # modules of the library


def strays(scenario: Scenario, *events: Told) -> dict[str, int]:
    """Return each place and what it asks for, with how often, in one schedule: ``wire/retry.py:16 time.monotonic``."""
    found: dict[str, int] = {}

    def note(caller: FrameType | None, what: str) -> None:
        if caller is not None and _PACKAGE in caller.f_code.co_filename:
            place = f"{caller.f_code.co_filename.rpartition(_PACKAGE)[2]}:{caller.f_lineno} {what}"
            found[place] = found.get(place, 0) + 1

    def look(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            module = getattr(arg, "__module__", None) or type(getattr(arg, "__self__", None)).__module__
            if module in _BUILT_IN:
                note(frame, f"{module.lstrip('_')}.{arg.__name__}")
        elif event == "call":
            module = frame.f_globals.get("__name__", "")
            if module in _IN_PYTHON and frame.f_code.co_name != "hex":
                note(frame.f_back, f"{module}.{frame.f_code.co_name}")

    def build(scheduler: Scheduler) -> Any:
        world = scenario.build(scheduler)
        scheduler.entering = lambda _: sys.setprofile(look)
        return world

    run(Scenario(scenario.name, build, scenario.invariants), events)
    return dict(sorted(found.items()))
