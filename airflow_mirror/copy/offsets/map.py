"""The offset map of one partition: the exact relation between source and target offsets, in both directions.

A map is a list of runs (:class:`Segment`). A new segment starts only where one side has a gap: a hole of the source
(markers, aborted or compacted records) or of the target (markers of its own transactions). Neither side holds a mirrored
record between two segments. Translation is therefore exact for *every* offset, with or without a record:

- an offset in a segment maps to the same record's offset on the other side;
- an offset in a hole maps to the next record's offset;
- the end maps to the position after the last record;
- an offset outside the map gets an answer too, but a marked one, because no mapped record backs it.

Pure: no clock, no socket, no file. A segment takes 24 bytes; lookups use bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum
from itertools import accumulate, islice
from operator import add, le, lt
from typing import NamedTuple

FOREVER = 2**63 - 1
Columns = tuple["array[int]", "array[int]", "array[int]"]  # source, target and count of every segment


class Segment(NamedTuple):
    """``count`` consecutive records, starting at ``source`` on the source and at ``target`` on the target."""

    source: int
    target: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which is not used here


class Where(Enum):
    """Where the requested offset lies on its own side."""

    RECORD = "record"  # at a mirrored record
    HOLE = "hole"  # no mirrored record; the result is the next one
    END = "end"  # the end of the mirrored range; the result is the position after the last record
    BEFORE = "before"  # below the first mirrored offset; the result is the first mirrored record
    BEYOND = "beyond"  # above the mirrored range, so unknown; the result is the end


class Translated(NamedTuple):
    """An offset on the other side, and where the requested offset lies."""

    offset: int
    where: Where


class OffsetMap:
    """The map of one partition, from the start of its copy. Treat its attributes as read-only.

    :ivar source_start: first source offset that the map covers.
    :ivar target_start: target offset of the first record that was or will be written.
    :ivar source_end: source offset up to which the map is complete.
    :ivar target_end: target offset after the last mirrored record.
    :ivar target_log_end: target offset up to which the map is complete: ``target_end``, or after markers that follow it.
    :ivar columns: all segments.
    :ivar adopted_until: below this target offset, records that no segment names are another tool's, which filled the
        topic before: repetitions, aborted records. 0 where nothing was adopted. A part of a map does not know it.
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        if source_start < 0 or target_start < 0:
            raise ValueError(f"an offset map can't start at source {source_start}, target {target_start}")
        self.source_start = self.source_end = source_start
        self.target_start = self.target_end = self.target_log_end = target_start
        self.columns: Columns = (array("q"), array("q"), array("q"))
        self.adopted_until = 0

    @classmethod
    def of_columns(cls, starts: tuple[int, int], ends: tuple[int, int], columns: Columns) -> OffsetMap:
        """Build a map from complete, stored columns.

        :param starts: ``source_start, target_start``.
        :param ends: ``source_end, target_log_end``.
        :raises ValueError: the columns do not form a map.
        """
        built = cls(*starts)
        built.columns = source, target, count = columns
        if not len(source) == len(target) == len(count):
            raise ValueError("columns of different lengths")
        if len(built):
            rising = all(_rising(side, count) for side in (source, target))
            if not rising or min(count) <= 0 or source[0] < built.source_start or target[0] < built.target_start:
                raise ValueError("segments that overlap, go backwards or stand below the start")
            built._take_ends()
        built.advance(*ends)
        return built

    @property
    def last(self) -> Segment | None:
        """The last segment; None if the map has no records."""
        return Segment(*(side[-1] for side in self.columns)) if len(self) else None

    def __len__(self) -> int:
        return len(self.columns[0])

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, OffsetMap) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return (
            f"OffsetMap([{self.source_start}, {self.source_end}) -> [{self.target_start}, {self.target_end}), "
            f"{len(self)} segments)"
        )

    def add(self, source: int, target: int, count: int) -> None:
        """Append ``count`` records; the range between the current end and them becomes a hole.

        :raises ValueError: the records start before the current end on either side.
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

    def add_spans(self, spans: array[int], target: int) -> None:
        """Append records that stand side by side on the target, from offset ``target`` on.

        :param spans: first source offset and count of each run, one after the other; a hole lies between any two runs.
        :raises ValueError: as :meth:`add`, or two runs have no hole between them. Nothing was appended.
        """
        if len(spans) == 2:
            self.add(spans[0], target, spans[1])
            return
        # Runs in C: behind a log cleaner every other record begins a run.
        firsts, counts = spans[::2], spans[1::2]
        if min(counts) <= 0 or not all(map(lt, map(add, firsts, counts), islice(firsts, 1, None))):
            raise ValueError(f"runs that overlap, touch or go backwards can't follow {self!r}: {spans[:6]}")
        if max(firsts[-1] + counts[-1], target + sum(counts)) > FOREVER:
            raise ValueError(f"offsets that no log has can't follow {self!r}: {spans[-2:]} at target {target}")
        self.add(firsts[0], target, counts[0])
        source, on_target, count = self.columns
        source.extend(firsts[1:])
        on_target.extend(islice(accumulate(counts, initial=target), 1, len(firsts)))
        count.extend(counts[1:])
        self._take_ends()

    def advance(self, source_end: int, target_log_end: int = 0) -> None:
        """Record that both logs were read up to here and hold no mirrored records beyond those added.

        :raises ValueError: ``source_end`` is below the current one.
        """
        # Never back: what was mapped is on the target, and groups may stand there already.
        if source_end < self.source_end:
            raise ValueError(f"the source's end can't go back to {source_end} in {self!r}")
        self.source_end = source_end
        self.target_log_end = max(self.target_log_end, target_log_end)

    def to_target(self, offset: int) -> Translated:
        """Return the target offset at which a reader at source position ``offset`` continues.

        The record there is the mirror of the first mirrored source record at or after ``offset``.
        """
        source, target, _ = self.columns
        if offset < self.source_start:
            return Translated(target[0] if len(self) else self.target_start, Where.BEFORE)
        if offset >= self.source_end:
            return Translated(self.target_end, Where.END if offset == self.source_end else Where.BEYOND)
        return self._find(offset, source, target, self.target_end)

    def to_source(self, offset: int) -> Translated:
        """Return the source offset at which a reader at target position ``offset`` continues.

        The record there is the one whose mirror is the first mirrored record at or after ``offset``.
        """
        source, target, _ = self.columns
        if offset < self.target_start:
            return Translated(source[0] if len(self) else self.source_start, Where.BEFORE)
        if offset >= self.target_end:
            return Translated(self.source_end, Where.END if offset <= self.target_log_end else Where.BEYOND)
        return self._find(offset, target, source, self.source_end)

    def behind(self, offset: int) -> int:
        """Return the source offset behind the last record that is mirrored below target position ``offset``.

        Of the source's offsets from there on, a target log that begins at that position lacks no record.
        """
        source, target, count = self.columns
        if offset >= self.target_end:
            return self.source_end
        index = bisect_right(target, offset - 1) - 1
        return self.source_start if index < 0 else source[index] + min(count[index], offset - target[index])

    def passes_over(self, target_offset: int) -> bool:
        """Return whether a record at a target offset is another tool's, and no segment names it."""
        return target_offset < self.adopted_until and self.to_source(target_offset).where is not Where.RECORD

    def segments(self, start: int = 0, end: int = FOREVER) -> Iterator[Segment]:
        """Yield the segments in order, clipped to the source offsets [start, end)."""
        for index in range(max(0, bisect_right(self.columns[0], start) - 1), len(self)):
            source, target, count = (side[index] for side in self.columns)
            if source >= end:
                return
            skip = max(0, start - source)
            if (left := min(count, end - source) - skip) > 0:
                yield Segment(source + skip, target + skip, left)

    def extend(self, other: OffsetMap) -> None:
        """Append the part of ``other`` above our end; where both cover the same offsets, they must agree.

        :raises ValueError: there is a gap between the two maps, or they differ.
        """
        if not self.source_start <= other.source_start <= self.source_end:
            raise ValueError(f"{other!r} does not continue {self!r}")
        both = other.source_start, min(self.source_end, other.source_end)
        # Equal where both speak, or one of them is wrong: a piece that was joined and its parts stand side by side for
        # a while.
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
            for mine, theirs in zip(self.columns, other.columns, strict=True):  # runs in C
                mine.extend(theirs[rest:])
            self._take_ends()
        self.advance(other.source_end, other.target_log_end)

    def end(self) -> OffsetMap:
        """Return the part that a copy needs to continue: the map with its last segment only."""
        if (last := self.last) is None:
            return self
        tail = OffsetMap(last.source, last.target)
        tail.add(*last)
        tail.advance(self.source_end, self.target_log_end)
        return tail

    def _take_ends(self) -> None:
        """Move the ends to the end of the last segment."""
        source, target, count = (side[-1] for side in self.columns)
        self.source_end, self.target_end = source + count, target + count
        self.target_log_end = max(self.target_log_end, self.target_end)

    def _find(self, offset: int, here: array[int], there: array[int], end: int) -> Translated:
        index = bisect_right(here, offset) - 1
        if index >= 0 and offset < here[index] + self.columns[2][index]:
            return Translated(there[index] + offset - here[index], Where.RECORD)
        return Translated(there[index + 1] if index + 1 < len(there) else end, Where.HOLE)


def _rising(starts: array[int], counts: array[int]) -> bool:
    """Return whether no run overlaps the next one. Runs in C, because a map may have millions of runs."""
    return all(map(le, map(add, starts, counts), islice(starts, 1, None)))
