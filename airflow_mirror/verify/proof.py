"""Store verified ranges, so that the cutover need not compare them again while producers wait.

A proof is a range [start, end) of source offsets of one partition, at one level. It holds for the topics that were
compared, by their ids on both sides, and proves nothing about earlier offsets: two ranges are joined only if they are
adjacent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_mirror.files import lock, lock_of, replace_file
from airflow_mirror.partition import TopicPartition
from airflow_mirror.verify.result import LEVELS, check_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from airflow_mirror.plan.model import Plan, TopicPlan

Range = tuple[int, int]  # [start, end)
_VERSION = 1


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


class ProofFile:
    """The proofs of one mirror, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, plan: Plan, target_ids: Mapping[str, str], level: str, ranges: Mapping[TopicPartition, Range]) -> None:
        """Add ranges that a comparison found equal.

        :param target_ids: ids of the target topics at the time of the comparison, by name.
        :param level: level of the comparison; ``offsets`` compares no record and proves nothing.
        :param ranges: ranges by source partition.
        """
        if level == "offsets":
            return
        with lock(lock_of(self._path)):
            kept = self._read()
            for t in plan.topics:
                rows = {tp.partition: r for tp, r in ranges.items() if tp.topic == t.source_topic}
                if rows and t.target_topic in target_ids:
                    self._add(kept, t, self._identity(plan, t, target_ids), level, rows)
            replace_file(self._path, json.dumps({"version": _VERSION, "topics": kept}, sort_keys=True) + "\n")

    def ends(self, plan: Plan, target_ids: Mapping[str, str], level: str) -> dict[TopicPartition, int]:
        """Return the source offset (exclusive) up to which everything from the plan's start is proven, by partition.

        :param target_ids: current ids of the target topics.
        :param level: only comparisons that are at least this strict count.
        :raises InvalidField: the level is unknown.
        """
        kept, found = self._read(), {}
        enough = LEVELS[LEVELS.index(check_level(level)) :]
        for t in plan.topics:
            topic = kept.get(t.target_topic)
            if topic is None or topic["identity"] != self._identity(plan, t, target_ids):
                continue
            for partition, start in t.starts.items():
                rows = [r for one in enough for r in topic["levels"].get(one, {}).get(str(partition), [])]
                end = reach(((a, b) for a, b in rows), start)
                if end is not None:
                    found[TopicPartition(t.source_topic, partition)] = end
        return found

    def _add(
        self, kept: dict[str, Any], topic: TopicPlan, identity: list[str], level: str, rows: Mapping[int, Range]
    ) -> None:
        one = kept.get(topic.target_topic)
        if one is None or one["identity"] != identity:
            one = kept[topic.target_topic] = {"identity": identity, "levels": {}}
        partitions = one["levels"].setdefault(level, {})
        for partition, new in rows.items():
            known = [(a, b) for a, b in partitions.get(str(partition), [])]
            partitions[str(partition)] = merged([*known, new])

    @staticmethod
    def _identity(plan: Plan, topic: TopicPlan, target_ids: Mapping[str, str]) -> list[str]:
        # A re-created topic has another id, so earlier proofs say nothing about it.
        there = target_ids.get(topic.target_topic, "")
        isolation = plan.mirror.isolation  # it determines which records were compared
        return [topic.source_topic, topic.source_topic_id, plan.target_cluster_id, there, isolation]

    def _read(self) -> dict[str, Any]:
        """Return the stored proofs by target topic; empty if they can't be read, so that all is compared again."""
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
            return dict(values["topics"]) if values["version"] == _VERSION else {}
        except (OSError, KeyError, TypeError, ValueError):
            return {}
