"""Which checkpoints and offset-syncs are written. No socket, no clock.

**Checkpoints** are the positions that a consumer group would be given on the target (:mod:`..following.deciding`): exact,
never beyond the target's log, and none where a position has no place there.

**Offset-syncs** are samples of records on both sides, from which MirrorMaker 2 translates: from the newest sync at or
below a position it takes the offset itself at an equal one, else the next offset. So a pair of one and the same record
never leads beyond the right place, and a pair of two ends may: the next record of the source can be a marker's neighbour.
Written are, in rising order, because a step back makes readers forget all that they know:

- a partition's first record, so that every position has a sync below it;
- the record at each group's position, as far as it lies above the last sync: there its translation is exact;
- the last record: exact for a group that has read everything.

With every pass the last record becomes the past. A group that lags is translated from one of those, as by MirrorMaker 2:
too early, never too late. Who wants exact ones reads the checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Where
from airflow_mirror.sync.following.deciding import Standing, goal_of, is_beyond
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, OffsetSync, is_writable

MOST_SYNCS = 64  # of a partition in one pass: readers keep no more


def checkpoint_of(group: str, tp: TopicPartition, one: Standing) -> tuple[Checkpoint | None, str]:
    """Return where a group goes on in a target partition, or why that can't be told."""
    goal, why = goal_of(one)
    if goal is None:
        return None, why
    if not is_writable(group, goal.metadata):
        return None, "its metadata are longer than a checkpoint may hold"
    return Checkpoint(group, tp, one.position.offset, goal.offset, goal.metadata), ""


def is_news(one: Checkpoint, before: Checkpoint | None, standing: Standing, log_end: int | None) -> bool:
    """Return whether a checkpoint is to be written.

    A place that is held at the target's end may seem to go back for a moment: after a change of leader brokers report the
    end lower than it is. It has gone back if the log has.

    :param before: the one that stands there. :param log_end: the target partition's; None if it is not known.
    """
    if before is None or one.upstream < before.upstream:
        return True
    if one.downstream >= before.downstream or not is_beyond(standing):
        return one != before
    return log_end is not None and before.downstream > log_end


class Log(NamedTuple):
    """What both sides hold of one source partition.

    :ivar first: its first mirrored record, as its offsets on the source and on the target. :ivar last: the last one.
    """

    first: tuple[int, int]
    last: tuple[int, int]


def syncs_of(
    tp: TopicPartition, log: Log, standings: Iterable[Standing], before: OffsetSync | None, source_end: int
) -> list[OffsetSync]:
    """Return what is written for a source partition, in order.

    :param standings: of groups in it. :param before: the last sync that stands there.
    :param source_end: the source's log end: a sync beyond it is of a topic that was created again.
    """
    known = before.upstream if before is not None and before.upstream < source_end else None
    exact = {
        one.position.offset: one.found.offset
        for one in standings
        if one.found is not None and one.found.where is Where.RECORD
    }
    pairs = [
        (u, d) for u, d in sorted(exact.items()) if log.first[0] < u < log.last[0] and log.first[1] < d < log.last[1]
    ]
    wanted = dict([log.first, *pairs[2 - MOST_SYNCS :], log.last])
    return [OffsetSync(tp, u, d) for u, d in wanted.items() if known is None or u > known]
