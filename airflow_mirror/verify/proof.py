"""Store verified ranges, so that the cutover need not compare them again while producers wait.

A proof is a range [start, end) of source offsets of one partition, at one level. It holds for the topics that were
compared, by their ids on both sides, and proves nothing about earlier offsets: two ranges are joined only if they are
adjacent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import LedgerNewer
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.ledger.kinds import MOST_BYTES
from airflow_mirror.ledger.records import PROOF
from airflow_mirror.ledger.state import State, Values, state_of
from airflow_mirror.plan.configs import cleaned_unplanned
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.verify.result import LEVELS, check_level

log = logging.getLogger(__name__)

Range = tuple[int, int]  # [start, end)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same offsets as the fewest ranges, ascending. Empty ranges prove nothing and are omitted."""
    found: list[Range] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def reach(ranges: Iterable[Range], start: int) -> int | None:
    """Return the offset up to which everything from ``start`` on is proven; None if ``start`` itself is not."""
    return next((end for begin, end in merged(ranges) if begin <= start < end), None)


def standing(
    proven: Mapping[TopicPartition, int], plan: Plan, target: Mapping[str, Mapping[str, ConfigEntry]]
) -> dict[TopicPartition, int]:
    """Return what is still proven, without topics of which a log cleaner may have taken records since.

    It moves neither start nor end of a log. Where the plan has a topic compacted, what it takes is no difference.

    :param proven: as :meth:`Proofs.ends` returns it. :param target: the target topics' settings as they are.
    """
    cleaned = cleaned_unplanned(plan, target)
    for topic in sorted(cleaned & {tp.topic for tp in proven}):
        log.warning("%s: its target is compacted, which is not planned: what was proven is compared again", topic)
    return {tp: end for tp, end in proven.items() if tp.topic not in cleaned}


class Proofs:
    """The proofs of one mirror, on its target: a cutover on any worker knows them.

    Two comparisons that end at the same moment may lose one of their proofs; its range is then compared again.

    :param state: of its keys.
    """

    def __init__(self, state: State, mirror: str) -> None:
        self._state, self._mirror = state, mirror

    @classmethod
    def on(cls, target: ClusterAdmin, mirror: str) -> Proofs:
        """Return those that a target keeps of a mirror."""
        return cls(state_of(target, PROOF.below(mirror)), mirror)

    def add(self, plan: Plan, target_ids: Mapping[str, str], level: str, ranges: Mapping[TopicPartition, Range]) -> None:
        """Add ranges that a comparison found equal.

        :param target_ids: ids of the target topics at the time of the comparison, by name.
        :param level: level of the comparison; ``offsets`` compares no record and proves nothing.
        :param ranges: ranges by source partition.
        :raises TryAgain: they are not known to be stored.
        """
        by_topic: dict[str, dict[int, Range]] = {}
        for tp, proven in ranges.items() if level != "offsets" else ():
            by_topic.setdefault(tp.topic, {})[tp.partition] = proven
        known, changed = self._state.read(), dict[str, bytes]()
        for t in plan.topics:
            rows = by_topic.get(t.source_topic)
            if not rows or t.target_topic not in target_ids:
                continue
            there = self._topic(known, t)
            if there is None and self._is_newer(known, t):
                log.warning("%s: a newer version of airflow-mirror wrote its proof, which stays as it is", t.target_topic)
                continue
            one = self._with(there, self._identity(plan, t, target_ids), level, rows)
            value = PROOF.put(one, self._mirror, t.target_topic)
            if sum(map(len, value.values())) > MOST_BYTES:
                log.warning("%s: its proof is too large to be stored; a cutover compares it again", t.target_topic)
                continue
            changed |= value
        self._state.write(changed)

    def ends(self, plan: Plan, target_ids: Mapping[str, str], level: str) -> dict[TopicPartition, int]:
        """Return the source offset (exclusive) up to which everything from the plan's start is proven, by partition.

        :param target_ids: current ids of the target topics.
        :param level: only comparisons that are at least this strict count.
        :raises InvalidField: the level is unknown.
        """
        known, found = self._state.read(), {}
        enough = LEVELS[LEVELS.index(check_level(level)) :]
        for t in plan.topics:
            topic = self._topic(known, t)
            if topic is None or topic["identity"] != self._identity(plan, t, target_ids):
                continue
            for partition, start in t.starts.items():
                rows = [r for one in enough for r in topic["levels"].get(one, {}).get(str(partition), [])]
                end = reach(((a, b) for a, b in rows), start)
                if end is not None:
                    found[TopicPartition(t.source_topic, partition)] = end
        return found

    @staticmethod
    def _with(
        one: dict[str, Any] | None, identity: list[str], level: str, rows: Mapping[int, Range]
    ) -> dict[str, Any]:  # fmt: skip
        """Return what is stored for a topic, with these ranges added."""
        if one is None or one["identity"] != identity:
            one = {"identity": identity, "levels": {}}
        partitions = one["levels"].setdefault(level, {})
        for partition, new in rows.items():
            before = [(a, b) for a, b in partitions.get(str(partition), [])]
            partitions[str(partition)] = merged([*before, new])
        return {"identity": one["identity"], "levels": one["levels"]}

    def _topic(self, known: Values, topic: TopicPlan) -> dict[str, Any] | None:
        """Return what is stored for a topic; None if that can't be read, so that all of it is compared again."""
        return PROOF.load(dict, known, self._mirror, topic.target_topic)

    def _is_newer(self, known: Values, topic: TopicPlan) -> bool:
        """Return whether a newer version wrote what is stored: that stays. What is no proof at all is replaced."""
        try:
            PROOF.get(known, self._mirror, topic.target_topic)
        except LedgerNewer as e:
            return isinstance(e.version, int) and e.version > PROOF.version
        return False

    @staticmethod
    def _identity(plan: Plan, topic: TopicPlan, target_ids: Mapping[str, str]) -> list[str]:
        # A re-created topic has another id, so earlier proofs say nothing about it.
        there = target_ids.get(topic.target_topic, "")
        isolation = plan.mirror.isolation  # it determines which records were compared
        return [topic.source_topic, topic.source_topic_id, plan.target_cluster_id, there, isolation]
