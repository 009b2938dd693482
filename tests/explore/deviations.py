"""What may happen to an actor before one of its operations, and how that is written down.

A *story* is a list of events, each with what happens there: who is about to do what, for which time, and the deviation.

    ("A", "create DENY WRITE on orders,payments", 1, freeze()),

An event is named, not numbered, so that a story which is kept as a test survives changes of the code around it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

REST = math.inf  # until everybody else rests


@dataclass(frozen=True)
class Deviation:
    """What happens at an event; use the functions below.

    :param other: who goes on (switch), or the cluster that is out of reach afterwards (freeze).
    """

    kind: str
    seconds: float = REST
    other: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether more happens than that somebody is slow."""
        return self.kind != "switch"

    def __str__(self) -> str:
        given = [] if self.seconds == REST else [f"{self.seconds:g}"]
        if self.other:
            given.append(f"cut={self.other!r}" if self.kind == "freeze" else f"{self.other!r}")
        return f"{self.kind}({', '.join(given)})"


def switch(other: str) -> Deviation:
    """Let the actor be slow; another one goes on. One that stands still thaws, one that was to come later begins."""
    return Deviation("switch", other=other)


def kill() -> Deviation:
    """End the actor's process: nothing that it still tries has an effect, in `finally` neither."""
    return Deviation("kill")


def freeze(seconds: float = REST, cut: str = "") -> Deviation:
    """Let the actor's process stand still, without signs of life.

    :param cut: the cluster that it can't reach any more once it goes on.
    """
    return Deviation("freeze", seconds, cut)


def hang(seconds: float = REST) -> Deviation:
    """Let the actor stand still; other threads of its process go on, so do its signs of life."""
    return Deviation("hang", seconds)


def lost() -> Deviation:
    """Let the operation be done, and its answer be lost."""
    return Deviation("lost")


def late(seconds: float = REST) -> Deviation:
    """Let the answer be lost, and the operation be done only later: a request that a proxy holds."""
    return Deviation("late", seconds)


def stop() -> Deviation:
    """Ask the actor to stop."""
    return Deviation("stop")


def around(*limits_s: float) -> tuple[float, ...]:
    """Return how long somebody may stand still so that no two limits of the code hide each other.

    That is one length shorter than all limits, one between each two neighbours, and :data:`REST`.
    """
    limits = sorted({0.0, *limits_s})
    return (*((shorter + longer) / 2 for shorter, longer in pairwise(limits)), REST)


Event = tuple[str, str, int]  # actor, operation, for which time
Told = tuple[str, str, int, Deviation]
KINDS = (switch, kill, freeze, hang, lost, late, stop)


def written(events: list[Told] | tuple[Told, ...], scenario: str) -> str:
    """Return a story as it is pasted into a test."""
    lines = "".join(f"\n    ({actor!r}, {what!r}, {nth}, {deviation})," for actor, what, nth, deviation in events)
    return f"story(\n    {scenario!r},{lines}\n)"


def read(text: str) -> list[Told]:
    """Return the events of a story that is written as above, with or without the call around it."""
    return _evaluated(text)[1]


def scenario_of(text: str) -> str:
    """Return the scenario of a story that is written as above; "" without the call."""
    return _evaluated(text)[0]


def _evaluated(text: str) -> tuple[str, list[Told]]:
    names = {one.__name__: one for one in KINDS}
    given: dict[str, Any] = {"__builtins__": {}, "story": lambda scenario, *events: [scenario, *events], **names}
    found = eval(text.strip() or "()", given)  # typed by who looks for the cause
    if isinstance(found, list):
        return found[0], found[1:]
    return "", [found] if found and isinstance(found[0], str) else list(found)
