"""The phase of a copy, in one readable word."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a partition's copy."""

    OPENING = "opening"  # not started, or the target's end is being read
    COPYING = "copying"
    FOLLOWING = "following"  # at the end of the source's log, waiting for more
    DONE = "done"  # at the end of a bounded range
    STOPPED = "stopped"  # with an error


def phase_of(*, stopped: bool, done: bool, opening: bool, at_end: bool) -> Phase:
    """Return the phase; the first one that applies wins.

    :param at_end: everything on the source is copied, and the range has no end at which it would be done.
    """
    if stopped:
        return Phase.STOPPED
    if done:
        return Phase.DONE
    if opening:
        return Phase.OPENING
    return Phase.FOLLOWING if at_end else Phase.COPYING
