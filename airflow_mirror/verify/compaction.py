"""Records that only one side of a compacted topic has: what a log cleaner may have taken there. Pure.

Cleaners run on each side for itself. One takes a record when its log has a later one of the same key, and a tombstone
after ``delete.retention.ms``, when nothing of its key precedes it any more. So what a reader ends up with is the same on
both sides if:

- each record that one side lacks is followed, on either side, by a later one of its key: the last one is compared itself;
- each tombstone that a side lacks as the last one of its key is preceded by nothing of its key there.

Keys are kept as digests, and only of what one side lacks. A record without a key is taken by nobody's rule.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import xxhash

from airflow_mirror.verify.result import Difference, Evidence
from airflow_mirror.wire.records import Record


class Lone(NamedTuple):
    """A record that only one side has.

    :param offset: the target's offset of it, or that its copy would have.
    :param source_offset: its offset on the source; None if only the target has it.
    """

    offset: int
    source_offset: int | None

    @property
    def lacking(self) -> str:
        """The side that lacks it."""
        return "source" if self.source_offset is None else "target"

    def difference(self, cause: str, mapped: bool) -> Difference:
        """Return what is wrong with it."""
        shown: Evidence = {"record": cause}
        if self.source_offset is None:
            kind, source, target = "extra", None, shown
        else:
            kind, source, target = "missing", shown, None
        at = self.offset if self.source_offset is None else self.source_offset
        there = self.offset if mapped else None
        return Difference(offset=at, kind=kind, source=source, target=target, target_offset=there)


class Gaps:
    """The lone records of one partition.

    :param cleaned_on: the sides on which a log cleaner may have run: what another side lacks was never there, or is lost.
    :ivar count: how many there were.
    """

    def __init__(self, cleaned_on: Collection[str]) -> None:
        self._cleaned_on, self.count = cleaned_on, 0
        self._waiting: dict[bytes, Lone] = {}  # by key: no later record of it was seen yet
        self._tombstones: dict[bytes, Lone] = {}

    def __bool__(self) -> bool:
        """Whether a later record could still settle something."""
        return bool(self._waiting or self._tombstones)

    def lone(self, record: Record, source_offset: int | None) -> bool:
        """Note a record that one side lacks; return False if no cleaner takes such a record."""
        found = Lone(record.offset, source_offset)
        if record.key is None or found.lacking not in self._cleaned_on:
            return False
        self.seen(record)
        self.count += 1
        where = self._tombstones if record.value is None else self._waiting
        where[_digest(record.key)] = found
        return True

    def seen(self, record: Record) -> None:
        """Note a later record of either side."""
        if self and record.key is not None:
            digest = _digest(record.key)
            self._waiting.pop(digest, None)
            self._tombstones.pop(digest, None)

    def lost(self, mapped: bool) -> Difference | None:
        """Return the first record that no later one follows, when everything later was seen."""
        first = min(self._waiting.values(), default=None)
        return first and first.difference("only here, and no later one of its key follows", mapped)

    def lacks(self, side: str) -> bool:
        """Return whether a side lacks tombstones that are the last ones of their keys."""
        return any(one.lacking == side for one in self._tombstones.values())

    def left_behind(self, side: str, record: Record, mapped: bool) -> Difference | None:
        """Return the difference if a side still has a record whose tombstone it lacks.

        :param record: with the offset as the target counts.
        """
        one = self._tombstones.get(_digest(record.key)) if record.key is not None else None
        if one is None or one.lacking != side or record.offset >= one.offset:
            return None
        cause = f"a tombstone that only this side has; the other one still has its key at offset {record.offset}"
        return one.difference(cause, mapped)


def _digest(key: bytes) -> bytes:
    return xxhash.xxh3_128_digest(key)
