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
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from operator import add, le
from typing import NamedTuple


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
    """The map of one partition, from where its copy began.

    :param source_start: first source offset that the map speaks of.
    :param target_start: target offset of the first record that was or will be written.
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        if source_start < 0 or target_start < 0:
            raise ValueError(f"an offset map can't start at source {source_start}, target {target_start}")
        self._source_start, self._target_start = source_start, target_start
        self._source_end, self._target_end = source_start, target_start
        self._target_log_end = target_start
        self._source, self._target, self._count = array("q"), array("q"), array("q")

    @classmethod
    def of_columns(
        cls, starts: tuple[int, int], ends: tuple[int, int], source: array[int], target: array[int], count: array[int]
    ) -> OffsetMap:
        """Return a map that takes over whole columns, as they were stored.

        :param starts: ``source_start, target_start``.
        :param ends: ``source_end, target_log_end``.
        :raises ValueError: if they are not the columns of a map.
        """
        one = cls(*starts)
        one._source, one._target, one._count = source, target, count
        if not len(source) == len(target) == len(count):
            raise ValueError("columns of different lengths")
        if len(source):
            one._source_end = source[-1] + count[-1]
            one._target_end = one._target_log_end = target[-1] + count[-1]
            rising = all(_rising(side, count) for side in (source, target))
            if not rising or min(count) <= 0 or source[0] < one._source_start or target[0] < one._target_start:
                raise ValueError("segments that overlap, go backwards or stand below the start")
        one.advance(*ends)
        return one

    @property
    def source_start(self) -> int:
        """First source offset that the map speaks of."""
        return self._source_start

    @property
    def target_start(self) -> int:
        """Target offset of the first record that was or will be written."""
        return self._target_start

    @property
    def source_end(self) -> int:
        """Source offset up to which the map is complete."""
        return self._source_end

    @property
    def target_end(self) -> int:
        """Target offset behind the last mirrored record."""
        return self._target_end

    @property
    def target_log_end(self) -> int:
        """Target offset up to which the map speaks: :attr:`target_end`, or behind markers that follow it."""
        return self._target_log_end

    @property
    def last(self) -> Segment | None:
        """The last segment; None without records."""
        return Segment(self._source[-1], self._target[-1], self._count[-1]) if len(self) else None

    @property
    def records(self) -> int:
        """How many records were mirrored."""
        return sum(self._count)

    def __len__(self) -> int:
        return len(self._source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetMap):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return (
            f"OffsetMap([{self.source_start}, {self.source_end}) -> [{self.target_start}, {self.target_end}), "
            f"{len(self)} segments)"
        )

    def columns(self) -> tuple[array[int], array[int], array[int]]:
        """Return source, target and count of all segments; not to be changed."""
        return self._source, self._target, self._count

    def add(self, source: int, target: int, count: int) -> None:
        """Append ``count`` records; what lies between the end so far and them is a hole.

        :raises ValueError: if that goes backwards on either side.
        """
        if count <= 0 or source < self._source_end or target < self._target_end:
            raise ValueError(f"{count} records at source {source}, target {target} can't follow {self!r}")
        if len(self._source) and self._continues(source, target):
            self._count[-1] += count
        else:
            self._source.append(source)
            self._target.append(target)
            self._count.append(count)
        self._source_end, self._target_end = source + count, target + count
        self._target_log_end = max(self._target_log_end, self._target_end)

    def advance(self, source_end: int, target_log_end: int | None = None) -> None:
        """Take note that both logs were read up to here, and hold no more mirrored records than those added.

        :raises ValueError: if the source's end goes backwards.
        """
        if source_end < self._source_end:
            raise ValueError(f"the source's end can't go back to {source_end} in {self!r}")
        self._source_end = source_end
        self._target_log_end = max(self._target_log_end, target_log_end or 0)

    def to_target(self, offset: int) -> Translated:
        """Return the target offset at which a reader of the source that stands at ``offset`` continues.

        The record there is the mirror of the first mirrored source record at or after ``offset``.
        """
        if offset < self._source_start:
            return Translated(self._target[0] if len(self) else self._target_start, Where.BEFORE)
        if offset >= self._source_end:
            return Translated(self._target_end, Where.END if offset == self._source_end else Where.BEYOND)
        return self._find(offset, self._source, self._target, self._target_end)

    def to_source(self, offset: int) -> Translated:
        """Return the source offset at which a reader of the target that stands at ``offset`` continues.

        The record there is the one whose mirror is the first mirrored record at or after ``offset``.
        """
        if offset < self._target_start:
            return Translated(self._source[0] if len(self) else self._source_start, Where.BEFORE)
        if offset >= self._target_end:
            known = offset <= max(self._target_end, self._target_log_end)
            return Translated(self._source_end, Where.END if known else Where.BEYOND)
        return self._find(offset, self._target, self._source, self._source_end)

    def segments(self, source_from: int = 0) -> Iterator[Segment]:
        """Yield the segments in order, from the source offset ``source_from`` on; the first one is cut there."""
        first = max(0, bisect_right(self._source, source_from) - 1)
        for index in range(first, len(self._source)):
            source, target, count = self._source[index], self._target[index], self._count[index]
            skip = min(max(0, source_from - source), count)
            if count > skip:
                yield Segment(source + skip, target + skip, count - skip)

    def extend(self, other: OffsetMap) -> None:
        """Append what ``other`` knows above our end; where both speak of the same offsets they must agree.

        :raises ValueError: if there is a gap between the two, or they differ.
        """
        if other.source_start > self._source_end or other.source_start < self._source_start:
            raise ValueError(f"{other!r} does not continue {self!r}")
        if other.source_start < self._source_end and not self._agrees_with(other):
            raise ValueError(f"{other!r} contradicts {self!r}")
        if other.source_end < self._source_end:
            return
        new = bisect_left(other._source, self._source_end)
        if other.source_start == self._source_end and other.target_start < self._target_end:
            raise ValueError(f"{other!r} does not continue {self!r}")
        if new and other._source[new - 1] + other._count[new - 1] > self._source_end:
            cut = self._source_end - other._source[new - 1]
            self.add(self._source_end, other._target[new - 1] + cut, other._count[new - 1] - cut)
        if new < len(other._source):
            self.add(other._source[new], other._target[new], other._count[new])
            for mine, theirs in zip(self.columns(), other.columns(), strict=True):
                mine.extend(theirs[new + 1 :])
            self._target_end = self._target[-1] + self._count[-1]
        self._source_end = other.source_end
        self._target_log_end = max(self._target_log_end, other._target_log_end, self._target_end)

    def _agrees_with(self, other: OffsetMap) -> bool:
        start, end = other.source_start, min(self._source_end, other.source_end)
        return list(_clipped(self, start, end)) == list(_clipped(other, start, end))

    def _continues(self, source: int, target: int) -> bool:
        same_run = source - self._source[-1] == self._count[-1]
        return same_run and target - self._target[-1] == self._count[-1]

    def _find(self, offset: int, here: array[int], there: array[int], end: int) -> Translated:
        index = bisect_right(here, offset) - 1
        if index >= 0 and offset < here[index] + self._count[index]:
            return Translated(there[index] + offset - here[index], Where.RECORD)
        return Translated(there[index + 1] if index + 1 < len(there) else end, Where.HOLE)

    def _key(self) -> tuple[object, ...]:
        ends = self._source_end, self._target_end, self._target_log_end
        return self._source_start, self._target_start, *ends, self._source, self._target, self._count


def _clipped(one: OffsetMap, start: int, end: int) -> Iterator[Segment]:
    for segment in one.segments(start):
        if segment.source >= end:
            return
        yield segment._replace(count=min(segment.count, end - segment.source))


def _rising(starts: array[int], counts: array[int]) -> bool:
    """True if no run reaches into the next one; at the speed of C, a map may have millions."""
    return all(map(le, map(add, starts, counts), islice(starts, 1, None)))
