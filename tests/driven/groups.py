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
    """All groups of a cluster.

    :ivar members: the client ids of a group's members, as a test sets them; none: they have left.
    """

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, Committed]] = {}
        self.members: dict[str, list[str]] = {}
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

    def state(self, group: str) -> str:
        """Return Kafka's name of a group's state."""
        if self.members.get(group):
            return "Stable"
        return "Empty" if group in self.members or group in self.committed else "Dead"

    def protocol(self, group: str) -> str:
        """Return what kind of members a group has, or had."""
        return "consumer" if group in self.members else ""
