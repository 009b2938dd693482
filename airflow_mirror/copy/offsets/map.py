"""The offset map of one partition: which target offset holds which source record, exactly, in both directions.

A map is a list of runs (:class:`Segment`), extended only where a side has a gap: a hole of the source (markers, aborted
or compacted records) or of the target (markers of its own transactions). Between two segments there is no record of
the mirror, on neither side. That makes translation exact for *every* offset, not only for those that hold a record:

- an offset in a segment is that record's offset on the other side;
- an offset in a hole is the next record's;
- the end is the position behind the last record;
- what lies outside is answered too, but marked, because no record of the map stands for it.

Pure: no clock, no socket, no file. 24 bytes a segment, lookups by bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from operator import add, le
from typing import NamedTuple

FOREVER = 2**63 - 1
Columns = tuple["array[int]", "array[int]", "array[int]"]  # source, target and count of all segments


class Segment(NamedTuple):
    """``count`` records that stand at ``source``... on the source and at ``target``... on the target, without a gap."""

    source: int
    target: int
    count: int  # type: ignore[assignment]  # a tuple has a method of that name, which nobody needs here


class Where(Enum):
    """What the offset that was asked for is, on its own side."""

    RECORD = "record"  # a mirrored record
    HOLE = "hole"  # no mirrored record; the answer is the next one
    END = "end"  # the end of what was mirrored; the answer is the position behind the last record
    BEFORE = "before"  # below the first mirrored offset; the answer is the first mirrored record
    BEYOND = "beyond"  # above what was mirrored so far: not known; the answer is the end


class Translated(NamedTuple):
    """An offset on the other side, and how it was found."""

    offset: int
    where: Where


class OffsetMap:
    """The map of one partition, from where its copy began. What it shows is to be read only.

    :ivar source_start: first source offset that the map speaks of.
    :ivar target_start: target offset of the first record that was or will be written.
    :ivar source_end: source offset up to which the map is complete.
    :ivar target_end: target offset behind the last mirrored record.
    :ivar target_log_end: target offset up to which the map speaks: ``target_end``, or behind markers that follow it.
    :ivar columns: all segments.
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        if source_start < 0 or target_start < 0:
            raise ValueError(f"an offset map can't start at source {source_start}, target {target_start}")
        self.source_start = self.source_end = source_start
        self.target_start = self.target_end = self.target_log_end = target_start
        self.columns: Columns = (array("q"), array("q"), array("q"))

    @classmethod
    def of_columns(cls, starts: tuple[int, int], ends: tuple[int, int], columns: Columns) -> OffsetMap:
        """Return a map that takes over whole columns, as they were stored.

        :param starts: ``source_start, target_start``.
        :param ends: ``source_end, target_log_end``.
        :raises ValueError: if they are not the columns of a map.
        """
        one = cls(*starts)
        one.columns = source, target, count = columns
        if not len(source) == len(target) == len(count):
            raise ValueError("columns of different lengths")
        if len(one):
            rising = all(_rising(side, count) for side in (source, target))
            if not rising or min(count) <= 0 or source[0] < one.source_start or target[0] < one.target_start:
                raise ValueError("segments that overlap, go backwards or stand below the start")
            one._take_ends()
        one.advance(*ends)
        return one

    @property
    def last(self) -> Segment | None:
        """The last segment; None without records."""
        return Segment(*(side[-1] for side in self.columns)) if len(self) else None

    def __len__(self) -> int:
        return len(self.columns[0])

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, OffsetMap) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return (
            f"OffsetMap([{self.source_start}, {self.source_end}) -> [{self.target_start}, {self.target_end}), "
            f"{len(self)} segments)"
        )

    def add(self, source: int, target: int, count: int) -> None:
        """Append ``count`` records; what lies between the end so far and them is a hole.

        :raises ValueError: if that goes backwards on either side.
        """
        if count <= 0 or source < self.source_end or target < self.target_end:
            raise ValueError(f"{count} records at source {source}, target {target} can't follow {self!r}")
        last = self.last
        if last is not None and source - last.source == last.count == target - last.target:
            self.columns[2][-1] += count
        else:
            for side, value in zip(self.columns, (source, target, count), strict=True):
                side.append(value)
        self._take_ends()

    def advance(self, source_end: int, target_log_end: int = 0) -> None:
        """Take note that both logs were read up to here, and hold no more mirrored records than those added.

        :raises ValueError: if the source's end goes backwards.
        """
        if source_end < self.source_end:
            raise ValueError(f"the source's end can't go back to {source_end} in {self!r}")
        self.source_end = source_end
        self.target_log_end = max(self.target_log_end, target_log_end)

    def to_target(self, offset: int) -> Translated:
        """Return the target offset at which a reader of the source that stands at ``offset`` continues.

        The record there is the mirror of the first mirrored source record at or after ``offset``.
        """
        source, target, _ = self.columns
        if offset < self.source_start:
            return Translated(target[0] if len(self) else self.target_start, Where.BEFORE)
        if offset >= self.source_end:
            return Translated(self.target_end, Where.END if offset == self.source_end else Where.BEYOND)
        return self._find(offset, source, target, self.target_end)

    def to_source(self, offset: int) -> Translated:
        """Return the source offset at which a reader of the target that stands at ``offset`` continues.

        The record there is the one whose mirror is the first mirrored record at or after ``offset``.
        """
        source, target, _ = self.columns
        if offset < self.target_start:
            return Translated(source[0] if len(self) else self.source_start, Where.BEFORE)
        if offset >= self.target_end:
            return Translated(self.source_end, Where.END if offset <= self.target_log_end else Where.BEYOND)
        return self._find(offset, target, source, self.source_end)

    def segments(self, start: int = 0, end: int = FOREVER) -> Iterator[Segment]:
        """Yield the segments in order, cut to the source offsets [start, end)."""
        for index in range(max(0, bisect_right(self.columns[0], start) - 1), len(self)):
            source, target, count = (side[index] for side in self.columns)
            if source >= end:
                return
            skip = max(0, start - source)
            if (left := min(count, end - source) - skip) > 0:
                yield Segment(source + skip, target + skip, left)

    def extend(self, other: OffsetMap) -> None:
        """Append what ``other`` knows above our end; where both speak of the same offsets they must agree.

        :raises ValueError: if there is a gap between the two, or they differ.
        """
        if not self.source_start <= other.source_start <= self.source_end:
            raise ValueError(f"{other!r} does not continue {self!r}")
        both = other.source_start, min(self.source_end, other.source_end)
        if list(self.segments(*both)) != list(other.segments(*both)):
            raise ValueError(f"{other!r} contradicts {self!r}")
        if other.source_end < self.source_end:
            return
        if other.source_start == self.source_end and other.target_start < self.target_end:
            raise ValueError(f"{other!r} does not continue {self!r}")
        first = next(other.segments(self.source_end), None)
        if first is not None:
            self.add(*first)
            rest = bisect_right(other.columns[0], first.source)
            for mine, theirs in zip(self.columns, other.columns, strict=True):  # at the speed of C
                mine.extend(theirs[rest:])
            self._take_ends()
        self.advance(other.source_end, other.target_log_end)

    def end(self) -> OffsetMap:
        """Return what is needed to go on: the map without all segments but the last."""
        if (last := self.last) is None:
            return self
        one = OffsetMap(last.source, last.target)
        one.add(*last)
        one.advance(self.source_end, self.target_log_end)
        return one

    def _take_ends(self) -> None:
        """Move the ends behind the last segment."""
        source, target, count = (side[-1] for side in self.columns)
        self.source_end, self.target_end = source + count, target + count
        self.target_log_end = max(self.target_log_end, self.target_end)

    def _find(self, offset: int, here: array[int], there: array[int], end: int) -> Translated:
        index = bisect_right(here, offset) - 1
        if index >= 0 and offset < here[index] + self.columns[2][index]:
            return Translated(there[index] + offset - here[index], Where.RECORD)
        return Translated(there[index + 1] if index + 1 < len(there) else end, Where.HOLE)


def _rising(starts: array[int], counts: array[int]) -> bool:
    """True if no run reaches into the next one; at the speed of C, a map may have millions."""
    return all(map(le, map(add, starts, counts), islice(starts, 1, None)))
