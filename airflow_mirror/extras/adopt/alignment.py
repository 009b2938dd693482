"""Find for each record of a target log the source record that it is a copy of. Digests in, runs out; nothing here blocks.

MirrorMaker 2 keeps the order of a partition and delivers at least once: after a crash it sends again what follows its
last committed source offset. So its target log is a sequence of runs, each a stretch of the source's log without a gap. A
run that begins at or below the end of what came before repeats records. One that begins above it has skipped some:
aborted ones if it read committed, records that a transform dropped, records that were deleted before it came to them.

A run goes on for as long as both logs agree. Where they don't, the next record is looked up in the source's whole log; of
several places the one counts from which the logs agree for longest. A run that repeats also takes the records before it
that fit it, so that of two explanations the one with the later copies counts.

Records are named by their index among the records of their log. Markers have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

_FIRST, _LARGEST = 64, 1 << 16  # records that are compared at once: most runs are very short or very long
_CANDIDATES = 32  # places that are tried for one record: of identical records none is better than the nearest ones
_FAR = 1 << 16  # a run of this length needs no longer one to compete with


class Run(NamedTuple):
    """``count`` records of the target from index ``target`` on, copies of those from index ``source`` on."""

    source: int
    target: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which is not used here

    @property
    def source_end(self) -> int:
        """Index after the last source record."""
        return self.source + self.count

    @property
    def target_end(self) -> int:
        """Index after the last target record."""
        return self.target + self.count


class Span(NamedTuple):
    """The records from index ``start`` up to ``end``, which is not in it."""

    start: int
    end: int


@dataclass(frozen=True)
class Alignment:
    """What a target log is made of.

    :param runs: in the order of the target log; they don't overlap there.
    :param unmatched: records of the target that the source does not have.
    :param ambiguous: records of the target that may be copies of other source records than ``runs`` says: their digest is
        in the source more than once, and no record that is unique there pins them from both sides within their run.
    """

    runs: Sequence[Run]
    unmatched: Sequence[Span]
    ambiguous: Sequence[Span]


class Places:
    """Where digests are in a log. Takes 16 bytes a record, once something is asked for."""

    def __init__(self, log: Digests) -> None:
        self._log = log

    def of(self, digest: np.uint64) -> NDArray[np.intp]:
        """Return the indexes of a digest, in order."""
        first, end = (np.searchsorted(self._values, digest, side) for side in ("left", "right"))
        return self._order[first:end]

    def absent(self, digests: Digests, start: int) -> int:
        """Return how many digests from index ``start`` on are not in the log, up to the first that is."""
        at, size = start, _FIRST
        while at < len(digests):
            some = digests[at : at + size]
            found = np.searchsorted(self._values, some)
            there = (found < len(self._values)) & (self._values[np.minimum(found, len(self._values) - 1)] == some)
            if there.any():
                return at + int(there.argmax()) - start
            at, size = at + len(some), min(size * 8, _LARGEST)
        return at - start

    @cached_property
    def repeated(self) -> NDArray[np.bool_]:
        """For each index: whether the log has its digest more than once."""
        equal = self._values[1:] == self._values[:-1]
        found = np.zeros(len(self._log), dtype=np.bool_)
        found[self._order[1:][equal]] = True
        found[self._order[:-1][equal]] = True
        return found

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self._log, kind="stable")

    @cached_property
    def _values(self) -> Digests:
        return self._log[self._order]


def align(source: Digests, target: Digests) -> Alignment:
    """Return what ``target`` is made of, given everything that the source still has."""
    places, runs, unmatched = Places(source), list[Run](), list[Span]()
    at = expected = 0
    while at < len(target):
        count = agreeing(source, expected, target, at)
        if not count and len(source):
            start = _next(source, target, places, at, expected)
            if start is not None:
                count = agreeing(source, start, target, at)
                start, at, count = _taken_over(source, target, runs, Run(start, at, count), expected)
                expected = start
        if not count:
            gone = places.absent(target, at) if len(source) else len(target) - at
            unmatched.append(Span(at, at + gone))
            at += gone
            continue
        runs.append(Run(expected, at, count))
        at, expected = at + count, expected + count
    return Alignment(runs, unmatched, _ambiguous(places, runs))


def agreeing(left: Digests, at: int, right: Digests, there: int, most: int | None = None) -> int:
    """Return for how many records both logs agree from these indexes on.

    :param most: count no more.
    """
    left, right = left[at:], right[there:]
    end = min(len(left), len(right)) if most is None else min(len(left), len(right), most)
    done, size = 0, _FIRST
    while done < end:
        stop = min(done + size, end)
        differs = left[done:stop] != right[done:stop]
        if differs.any():
            return done + int(differs.argmax())
        done, size = stop, min(size * 8, _LARGEST)
    return end


def _next(source: Digests, target: Digests, places: Places, at: int, expected: int) -> int | None:
    """Return the index of the source record that the target's record ``at`` is a copy of; None without one."""
    found = places.of(target[at])
    if len(found) <= 1:
        return int(found[0]) if len(found) else None
    middle = int(np.searchsorted(found, expected, "right"))
    near = found[max(0, middle - _CANDIDATES // 2) : middle + _CANDIDATES // 2].tolist()
    # Of equal ones the nearest that repeats: MirrorMaker 2 skips nothing without a reason.
    best: int = max(
        near, key=lambda one: (agreeing(source, one, target, at, _FAR), one <= expected, -abs(one - expected))
    )  # fmt: skip
    return best


def _taken_over(source: Digests, target: Digests, runs: list[Run], new: Run, expected: int) -> Run:
    """Return a run that repeats, with the records before it that fit it as well; the run before it gives them up."""
    if not runs or new.source > expected or runs[-1].target_end != new.target:
        return new
    before = runs[-1]
    most = min(before.count, new.source)
    taken = agreeing(
        source[new.source - most : new.source][::-1], 0, target[new.target - most : new.target][::-1], 0
    )  # fmt: skip
    if taken:
        runs.pop()
        if before.count > taken:
            runs.append(before._replace(count=before.count - taken))
    return Run(new.source - taken, new.target - taken, new.count + taken)


def _ambiguous(places: Places, runs: Sequence[Run]) -> list[Span]:
    found: list[Span] = []
    for run in runs:
        repeated = places.repeated[run.source : run.source_end]
        head = _leading(repeated)
        found.append(Span(run.target, run.target + head))
        if head < run.count:
            found.append(Span(run.target_end - _leading(repeated[::-1]), run.target_end))
    return joined(span for span in found if span.end > span.start)


def _leading(flags: NDArray[np.bool_]) -> int:
    """Return how many flags are set up to the first that is not."""
    done, size = 0, _FIRST
    while done < len(flags):
        some = flags[done : done + size]
        if not some.all():
            return done + int(np.argmin(some))
        done, size = done + len(some), min(size * 8, _LARGEST)
    return done


def joined(spans: object) -> list[Span]:
    """Return spans in order, those that touch each other as one."""
    found: list[Span] = []
    for one in sorted(spans):  # type: ignore[call-overload]
        if found and one.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found
