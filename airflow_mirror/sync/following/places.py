"""Where positions lie on the target: the same offset, or by the offset map."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.partition import TopicPartition

ToTarget = Callable[[TopicPartition, int], Translated]  # by the offset map


def same(tp: TopicPartition, offset: int) -> Translated:
    """Return the place of an offset in a topic whose offsets are kept."""
    return Translated(offset, Where.RECORD)


def places(tp: TopicPartition, offsets: Iterable[int], to_target: ToTarget) -> dict[int, Translated]:
    """Return where offsets of one source partition lie on the target.

    In rising order: what lies beyond the map makes it read both logs, and everything after it lies beyond, too.
    """
    found: dict[int, Translated] = {}
    last: Translated | None = None
    for offset in sorted(set(offsets)):
        if last is None or last.where is not Where.BEYOND:
            last = to_target(tp, offset)
        found[offset] = last
    return found
