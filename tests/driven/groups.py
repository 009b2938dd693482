"""Committed offsets of consumer groups, those that wait for a transaction's end included."""

from __future__ import annotations

from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    metadata: str
    leader_epoch: int


class Groups:
    """All groups of a cluster. ``producers``: highest epoch with which a producer wrote or ended something here."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[tuple[int, str], dict[TopicPartition, Committed]] = {}

    def commit_later(self, producer_id: int, group: str, tp: TopicPartition, offset: Committed) -> None:
        """Take an offset that counts once the producer's transaction is committed."""
        self._pending.setdefault((producer_id, group), {})[tp] = offset

    def end(self, producer_id: int, group: str, *, commit: bool) -> None:
        """End a transaction's part in a group."""
        pending = self._pending.pop((producer_id, group), {})
        if commit:
            self.committed.setdefault(group, {}).update(pending)

    def is_pending(self, group: str, tp: TopicPartition) -> bool:
        """Say whether an open transaction would change the offset."""
        return any(g == group and tp in offsets for (_, g), offsets in self._pending.items())
