"""The phase of a copy, in one word for people."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a partition's copy."""

    OPENING = "opening"  # not begun, or the target's end is being read
    COPYING = "copying"
    FOLLOWING = "following"  # at the end of the source's log, waiting for more
    DONE = "done"  # at the end of a bounded range
    STOPPED = "stopped"  # with an error


def phase_of(*, stopped: bool, done: bool, opening: bool, at_end: bool) -> Phase:
    """Return the phase; what comes first holds.

    :param at_end: it has all that the source has, and there is no end at which it would be done.
    """
    if stopped:
        return Phase.STOPPED
    if done:
        return Phase.DONE
    if opening:
        return Phase.OPENING
    return Phase.FOLLOWING if at_end else Phase.COPYING
