"""Where a source's log start lies on the target if offsets are mapped. No socket, no clock.

By the offset map as it is stored: what it lacks yet was copied within the last minutes, and is not about to go. The
partition is then judged in the target's offsets, by the rules for those that are kept: a map only rises, and so does what
it makes of a log start.

A target topic with a map may have other writers. Nobody knows how long their records have to stay, so none may lie below
the new log start. The copy leaves no hole there; so where more offsets lie than were copied, others have written. With
transactional delivery its own markers lie between, and look the same from here: such topics don't follow.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.sync.log_starts.deciding import Standing

OTHERS = "below {0} lie records of others, or of before the mirror began"
NO_MAP = "no offset map is stored yet"


def place(one: OffsetMap, start: int, there_start: int) -> int | str:
    """Return where a source's log start lies on the target, or why that is not followed.

    :param start: the source's log start offset. :param there_start: the target's.
    """
    goal = one.to_target(start).offset
    if goal <= there_start or _count(one, start, there_start) == goal - there_start:
        return goal
    return OTHERS.format(goal)


def at(now: Standing, goal: int) -> Standing:
    """Return a partition as if its offsets were kept.

    :param goal: see :func:`place`.
    """
    return replace(now, start=goal, end=now.there_end)


def _count(one: OffsetMap, start: int, there_start: int) -> int:
    """Return how many copied records lie from the target's log start up to what mirrors the source's."""
    first = one.to_source(there_start).offset
    return sum(segment.count for segment in one.segments(first, start))
