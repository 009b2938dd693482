"""Compaction comes back on the target once a topic's backlog has arrived. No socket, no clock.

While history arrives, a compacted topic is on hold with ``delete``: a record of before the topic was compacted may have
no key, and a broker refuses that where it compacts. After that it is held as ``compact,delete``, without retention:

- A cleaner takes what the target's own log has a later record for. So whatever the copy lacks yet, no last value goes.
- It leaves the active segment, and so the log's end: the journal of the copy.
- With ``delete`` beside it, records can still be deleted by offset, which priming and following log starts need.

Only with identical offsets: a map is completed by counting records, and a cleaner changes their number.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.plan.configs import HELD_COMPACTED, HELD_OPEN, may_compact, same_value
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.sync.log_starts.deciding import Standing

POLICY = "cleanup.policy"


def is_level(partitions: int, standings: Mapping[TopicPartition, Standing], before: Mapping[TopicPartition, int]) -> bool:
    """Return whether the target has everything of a topic that the source had a pass ago.

    :param partitions: how many the source's topic has.
    :param standings: of the topic's partitions.
    :param before: where the source's logs ended in the last pass, by target partition.
    """
    arrived = [tp for tp, now in standings.items() if tp in before and now.there_end >= before[tp]]
    return len(arrived) == len(standings) == partitions


def policy(t: TopicPlan, level: bool, source: str, target: str) -> str | None:
    """Return the ``cleanup.policy`` that a target topic gets now; None if it stays as it is.

    :param level: see :func:`is_level`. A topic that falls behind later stays compacted.
    :param source: the source topic's.
    :param target: its own. Another one than those on hold is the affair of :class:`airflow_mirror.sync.hold.HoldWatch`.
    """
    if not may_compact(t) or not any(same_value(target, one) for one in (HELD_OPEN[POLICY], HELD_COMPACTED)):
        return None
    compacts = "compact" in source and (level or same_value(target, HELD_COMPACTED))
    wanted = HELD_COMPACTED if compacts else HELD_OPEN[POLICY]
    return None if same_value(target, wanted) else wanted
