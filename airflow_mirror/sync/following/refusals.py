"""What the target's brokers have refused to set: the same position is neither noted nor sent again for a minute.

Each try costs two records of the target's state: that it is about to be written, and that it was not. A right may be
missing for weeks, of passes every five seconds. Known to one process alone: another one tries once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.model import GroupCommit, GroupPosition
from airflow_mirror.sync.following.deciding import GroupDecision, withhold

AGAIN_MS = 60_000


class _Refusal(NamedTuple):
    goal: GroupPosition
    at_ms: int
    error: str


class Refusals:
    """Belongs to one follower, and its thread."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, TopicPartition], _Refusal] = {}

    def spare(self, decided: Mapping[str, GroupDecision], now_ms: int) -> dict[str, GroupDecision]:
        """Return what is done about groups, without what was refused a short time ago."""
        # Not "younger than a minute": behind a clock that was set back, its end would be far away.
        self._refused = {key: one for key, one in self._refused.items() if 0 <= now_ms - one.at_ms < AGAIN_MS}
        if not self._refused:
            return dict(decided)
        return {group: withhold(decision, self._same(group, decision)) for group, decision in decided.items()}

    def _same(self, group: str, decision: GroupDecision) -> dict[TopicPartition, str]:
        refused = {tp: (goal, self._refused.get((group, tp))) for tp, goal in decision.commits.items()}
        return {tp: one.error for tp, (goal, one) in refused.items() if one is not None and one.goal == goal}

    def note(self, decided: Mapping[str, GroupDecision], commits: Mapping[str, GroupCommit], now_ms: int) -> None:
        """Remember what was refused."""
        for group, commit in commits.items():
            for tp in commit.done:
                self._refused.pop((group, tp), None)
            # Members leave, and what was never sent was not refused: those are tried by the next pass.
            for tp in () if commit.active else commit.refused - commit.unsent:
                goal = decided[group].commits[tp]
                self._refused[group, tp] = _Refusal(goal, now_ms, str(commit.error))
