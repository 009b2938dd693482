"""When groups committed last. No request tells; two things do.

Coordinators write each commit down in ``__consumer_offsets``, with the time: who may READ that topic finds it there. Who
may not sees it between two looks of his own: a position that has moved was committed.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.errors import ClusterUnreachable, MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import OF_GROUPS, GroupPosition
from airflow_mirror.verify.compare import Floor
from airflow_mirror.verify.partition import data_batches

AT, BY, BEFORE = "at", "by", "before"
_RECORDS = 2_000  # of each partition: its newest ones; who is not among them has not committed for as long
_PATIENCE_S = 5.0  # for all partitions; a record may hold a group of thousands of members
_COMMITS = (0, 1)  # versions of a key that is about a position; other ones are about groups

Positions = Mapping[str, Mapping[TopicPartition, GroupPosition]]


class Commit(NamedTuple):
    """When a group committed last.

    :param ms: since the epoch: by the coordinator's clock if read from its topic, by ours between two looks.
    :param word: :data:`AT` that time, :data:`BY` it (and after the look before), or :data:`BEFORE` it.
    """

    ms: int
    word: str


class Commits:
    """Remembers positions between the looks of one process. One source only."""

    def __init__(self) -> None:
        self._before: tuple[int, Positions] | None = None
        self._seen: dict[str, Commit] = {}

    def of(self, source: ClusterAdmin, positions: Positions, at_ms: int) -> tuple[dict[str, Commit], str]:
        """Return the last commit of each group, and why the source's topic does not tell; "": it does.

        :param positions: as they are now. :param at_ms: when, by our clock.
        :raises ClusterUnreachable: the source does not answer.
        """
        why, told = "", dict[str, Commit]()
        try:
            told = _written_down(source, positions)
        except ClusterUnreachable:
            raise
        except MirrorError as e:
            why = f"when groups committed last, but between two looks: {e}"
        return {**self._between(positions, at_ms), **told}, why

    def _between(self, positions: Positions, at_ms: int) -> dict[str, Commit]:
        if self._before is not None:
            then_ms, then = self._before
            for group, its in positions.items():
                if group not in then or its != then[group]:
                    self._seen[group] = Commit(at_ms, BY)
                else:
                    self._seen.setdefault(group, Commit(then_ms, BEFORE))
        self._before = at_ms, positions
        return {group: one for group, one in self._seen.items() if group in positions}


def _written_down(source: ClusterAdmin, groups: Collection[str]) -> dict[str, Commit]:
    """Return what the newest records of the coordinators' topic say of groups.

    :raises MirrorError: the principal may not read it, or a broker does not answer.
    """
    info = source.topics([OF_GROUPS]).get(OF_GROUPS)
    if info is None or not groups:
        return {}
    of: dict[TopicPartition, list[str]] = {}
    for group in groups:
        of.setdefault(TopicPartition(OF_GROUPS, partition_of(group, info.partitions)), []).append(group)
    starts, ends = source.offsets(list(of), "earliest"), source.offsets(list(of), "latest_committed")
    found, over_s = dict[str, Commit](), time.monotonic() + _PATIENCE_S
    for tp, its in sorted(of.items()):
        begin = max(starts[tp], ends[tp] - _RECORDS)
        oldest_ms, newest = -1, dict[str, int]()
        for at_ms, group in _commits(source, tp, begin, ends[tp], over_s):
            oldest_ms = at_ms if oldest_ms < 0 else oldest_ms
            newest[group] = at_ms
        if time.monotonic() > over_s:
            break  # the newest ones of this partition were not read
        for group in its:
            if group in newest:
                found[group] = Commit(newest[group], AT)
            elif oldest_ms >= 0:
                found[group] = Commit(oldest_ms, BEFORE)
    return found


def _commits(source: ClusterAdmin, tp: TopicPartition, begin: int, end: int, over_s: float) -> Iterator[tuple[int, str]]:
    if begin >= end:
        return
    for raw in data_batches(source.wire, tp, begin, end, floor=Floor(begin)):
        for record in decoded(raw, tp, source.role):
            # Without a value it is the removal of a position, by its age or by somebody.
            if record.offset >= begin and record.value is not None and (group := group_of(record.key)):
                yield record.timestamp, group
        if time.monotonic() > over_s:
            return


def group_of(key: bytes | None) -> str:
    """Return the group whose position a record of ``__consumer_offsets`` is about; "": it is about something else."""
    if key is None or len(key) < 4:
        return ""
    version, length = struct.unpack_from(">hh", key)
    return key[4 : 4 + length].decode(errors="replace") if version in _COMMITS else ""


def partition_of(group: str, partitions: int) -> int:
    """Return the partition in which a group's coordinator writes: Java's ``hashCode`` of its name, as Kafka folds it."""
    found = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be", "surrogatepass")):
        found = (31 * found + unit) & 0xFFFFFFFF
    if found == 1 << 31:  # its absolute value is no int of Java's
        return 0
    return min(found, (1 << 32) - found) % partitions
