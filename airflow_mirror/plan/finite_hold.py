"""A hold that ends: ``retention.ms`` of target topics is finite while the mirror writes, because the target refuses -1.

Brokers delete a segment once its newest record is that old, and from the front of the log only. So the first record that
is copied, if it is younger, keeps all that follow; what the source still has may not be deleted on the target. The
target rolls its segments elsewhere than the source: a record that the source keeps, because a younger one is in its
segment, may lie in a segment of its own there. Hence the rule counts records, not the source's retention.

A plan blocks at nine tenths of the hold, and a tail ends at nineteen twentieths, while the records are still there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import HoldTooShort, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.plan.model import Plan
from airflow_mirror.wire.errors import UnknownTopic

TO_BEGIN, TO_GO_ON = 0.9, 0.95  # shares of the hold: how old the first record may be
EVERY_S = 30.0  # between two looks of a tail; a twentieth of the shortest hold is three minutes


def older(source: ClusterAdmin, positions: Mapping[TopicPartition, int], than_ms: int) -> set[TopicPartition]:
    """Return the partitions whose first record at or after a position has a time before ``than_ms``.

    Or that have no record there; ask only where there is one. Timestamps are taken to grow along the log.
    """
    if than_ms < 0 or not positions:  # nothing is that old, and ListOffsets takes negative times for something else
        return set()
    young = source.offsets(positions, than_ms)  # -1: all of them are older
    return {tp for tp, position in positions.items() if young[tp] < 0 or position < young[tp]}


def too_old(
    source: ClusterAdmin, begins: Mapping[TopicPartition, int], hold_ms: int, share: float, now_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose first record to copy is older than ``share`` of the hold, sorted.

    Records without a time don't count: brokers go by the time of their file.

    :param begins: where the copy of each partition begins, or began.
    """
    suspects = set(begins)
    for _ in range(2):  # what the source deletes, or gets, between two requests looks the same once
        if not suspects:
            break
        first, ends = source.offsets(suspects, 0), source.offsets(suspects)
        there = {tp: max(first[tp], begins[tp]) for tp in suspects if first[tp] >= 0 and begins[tp] < ends[tp]}
        suspects = older(source, there, now_ms - int(hold_ms * share))
    return sorted(suspects)


class FiniteHold:
    """Watches, for a tail, that no record gets as old as the hold. Does nothing if the hold has no end. For one thread.

    :param clock: monotonic, in seconds. :param now_s: seconds since the epoch.
    """

    def __init__(
        self, plan: Plan, source: ClusterAdmin, clock: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._source, self._clock, self._now_s, self._looked = source, clock, now_s, float("-inf")
        self.follow(plan)

    def follow(self, plan: Plan) -> None:
        """Watch the topics of this plan from now on."""
        self._hold_ms = plan.mirror.hold_retention_ms
        self._begins = {TopicPartition(t.source_topic, p): start for t in plan.topics for p, start in t.starts.items()}
        self._by_name = {t.source_topic: t.source_topic_id for t in plan.topics}

    def look_in_turn(self) -> None:
        """Look if it is time.

        :raises HoldTooShort: the target's brokers would soon delete what the source still has.
        """
        if self._hold_ms is None or self._clock() - self._looked < EVERY_S:
            return
        self._looked = self._clock()
        # What became of a topic that was deleted, or created again, is told by the task that copies it; also if that
        # happens between two requests here.
        try:
            infos = self._source.topics(self._by_name)
            same = {name for name, info in infos.items() if same_topic(self._by_name[name], info.topic_id)}
            begins = {tp: start for tp, start in self._begins.items() if tp.topic in same}
            old = too_old(self._source, begins, self._hold_ms, TO_GO_ON, int(self._now_s() * 1000))
        except (TryAgain, UnknownTopic):  # the copy itself says that the source is away
            return
        if old:
            raise HoldTooShort([str(tp) for tp in old], self._hold_ms)
