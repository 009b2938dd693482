"""Which of a source record's copies a reader goes on at. Values in, values out.

**The rule.** A group whose next record on the source is ``g`` goes on at the last copy ``p`` of ``g`` from which on the
target has everything that the group has not read, in order: each record from ``g`` on is there, and where one is met for
the first time, all between ``g`` and it were met before. Nothing is lost then, and no key's records change their order.

**It is the best.** A reader that starts at ``t`` gets ``g`` at the first copy of it from ``t`` on, with nothing above
``g`` before it (the order). So ``t`` is at or before some copy ``p`` of ``g`` for which the rule holds, and to start at
``p`` itself repeats no more records than to start before it. Of two such copies the later one leaves out a part of what
the earlier one repeats. So the last one repeats least.

**How it is found.** Let ``next(p)`` be the first place after ``p`` that holds a record above ``p``'s own. The rule holds
for ``p`` exactly if ``p`` holds the highest record of all, or ``next(p)`` holds the one right above ``p``'s and the rule
holds for ``next(p)``: nothing above is met before, and what follows is the same question for the next record. Within a
run ``next`` is the next place, so one answer for the end of a run is the answer for all of it.

**It makes a map.** Where ``p`` is the place of ``g``, the rule holds for the copy of the next record at ``next(p)`` too,
which is behind ``p``. So places rise with their records: the places of all records are runs that rise on both sides.

"Right above" counts records that are on the target at all. Those that are not are missing, and reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mirror.extras.adopt.alignment import Run, Span, joined


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where readers go on.

    :param runs: one place for each source record that has one, in order; they rise on both sides.
    :param covered: source records that have a copy.
    :param missing: source records between the first and the last of these that have none.
    :param disordered: source records that have copies, none of which readers could go on at without losing others.
    :param copies: records of the target that are copies, those that are repeated counted as often as they are there.
    """

    runs: Sequence[Run]
    covered: Sequence[Span]
    missing: Sequence[Span]
    disordered: Sequence[Span]
    copies: int

    @property
    def repeated(self) -> int:
        """Records of the target that are copies of what it has once already."""
        return self.copies - length(self.covered)


def place(runs: Sequence[Run]) -> Placed:
    """Return where readers go on in a target log that consists of ``runs``, in its order."""
    covered = joined(Span(run.source, run.source_end) for run in runs)
    good = _good(runs, covered)
    chosen: list[Run] = []
    low = covered[-1].end if covered else 0
    for run, is_good in zip(reversed(runs), reversed(good), strict=True):
        if is_good and run.source < low:
            chosen.append(run._replace(count=min(run.source_end, low) - run.source))
            low = run.source
    chosen.reverse()
    placed = joined(Span(run.source, run.source_end) for run in chosen)
    return Placed(
        runs=chosen,
        covered=covered,
        missing=between(covered),
        disordered=without(covered, placed),
        copies=sum(run.count for run in runs),
    )


def length(spans: Sequence[Span]) -> int:
    """Return how many records spans have together."""
    return sum(span.end - span.start for span in spans)


def between(spans: Sequence[Span]) -> list[Span]:
    """Return what lies between spans that are in order."""
    return [Span(a.end, b.start) for a, b in zip(spans, spans[1:], strict=False)]


def without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return spans without the records that others have. Both are in order and don't overlap."""
    found: list[Span] = []
    number = 0
    for start, end in spans:
        while number < len(others) and others[number].end <= start:
            number += 1
        at, here = start, number
        while here < len(others) and others[here].start < end:
            if others[here].start > at:
                found.append(Span(at, others[here].start))
            at = max(at, others[here].end)
            here += 1
        if at < end:
            found.append(Span(at, end))
    return found


def _good(runs: Sequence[Run], covered: Sequence[Span]) -> list[bool]:
    """Return for each run whether the rule holds for its last record."""
    starts = [span.start for span in covered]
    good = [False] * len(runs)
    waiting: list[int] = []  # later runs whose ends rise: none that a nearer one hides
    for number in range(len(runs) - 1, -1, -1):
        end = runs[number].source_end
        while waiting and runs[waiting[-1]].source_end <= end:
            waiting.pop()
        if not waiting:
            good[number] = end == covered[-1].end
        else:
            following = runs[waiting[-1]]
            good[number] = good[waiting[-1]] and max(following.source, end) == _next_covered(covered, starts, end)
        waiting.append(number)
    return good


def _next_covered(covered: Sequence[Span], starts: Sequence[int], at: int) -> int:
    """Return the first covered record from ``at`` on, which there is."""
    span = covered[bisect_right(starts, at) - 1] if bisect_right(starts, at) else covered[0]
    return at if at < span.end else starts[bisect_right(starts, at)]
