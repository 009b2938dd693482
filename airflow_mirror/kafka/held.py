"""Offsets that no read_committed reader gets yet, because a transaction before them is open; and whose that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin


@dataclass(frozen=True, kw_only=True)
class Held:
    """The end of a partition that waits for a transaction.

    :param since: the transaction's first offset, which is the last stable one. :param end: the high watermark.
    :param by: whose it is, as far as the cluster tells; else empty.
    """

    source: TopicPartition
    since: int
    end: int
    by: str = ""

    @property
    def offsets(self) -> int:
        """How many there are, markers included."""
        return self.end - self.since

    def __str__(self) -> str:
        return f"{self.source}: {held_text(self.offsets, self.since, self.by)}"


def held_text(offsets: int, since: int, by: str = "") -> str:
    """Return what people read of a partition's end that waits."""
    whose = f" ({by})" if by else ""
    return f"{offsets:,} offset{'s' * (offsets != 1)} behind an open transaction since offset {since}{whose}"


def held_back(ends: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]) -> list[Held]:
    """Return what waits for a transaction, without whose it is.

    :param ends: high watermarks. :param stable: last stable offsets, asked for after them.
    """
    return [Held(source=tp, since=stable[tp], end=end) for tp, end in sorted(ends.items()) if stable[tp] < end]


def named(admin: ClusterAdmin, found: Sequence[Held]) -> list[Held]:
    """Return the same with whose transactions they are. Brokers before 2.8, and without a right, do not tell."""
    by = holders(admin, [one.source for one in found]) if found else {}
    return [replace(one, by=by.get(one.source, "")) for one in found]


def holders(admin: ClusterAdmin, tps: Sequence[TopicPartition]) -> Mapping[TopicPartition, str]:
    """Return whose transaction is the oldest open one of each partition, where that can be known."""
    oldest: dict[TopicPartition, int] = {}
    ids: Mapping[int, str] = {}
    with suppress(MirrorError):
        for tp, states in admin.wire.describe_producers(tps).items():
            begun = [(one.current_txn_start, one.producer_id) for one in states if one.current_txn_start >= 0]
            oldest |= {tp: min(begun)[1]} if begun else {}
    with suppress(MirrorError):
        ids = admin.transactional_ids() if oldest else {}
    return {tp: f"transactional id {ids[one]!r}" if one in ids else f"producer id {one}" for tp, one in oldest.items()}
