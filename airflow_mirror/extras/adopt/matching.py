"""Match one partition of the target with its source partition, and build the map that a mirror goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.extras.adopt.alignment import Alignment, Digests, Run, Span, align
from airflow_mirror.extras.adopt.placing import Placed, length, place, without
from airflow_mirror.extras.adopt.reading import Log, Offsets

_NAMED = 10  # ranges of each kind

# What records are called in a match, and in which log's offsets their ranges are.
SOURCE, TARGET = "source", "target"
KINDS = {
    "repeated": TARGET, "aborted": TARGET, "ambiguous": TARGET, "unknown": TARGET, "older": TARGET, "missing": SOURCE,
    "disordered": SOURCE, "left out at the start": SOURCE,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Match:
    """What one partition of the target holds. Ranges are [first offset, offset after the last].

    :param source_end: of the source's log, as it was matched; ``target_end`` likewise: nothing may be appended since.
    :param records: of the target. :param copies: those of them that are copies of what the source still has.
    :param counts: records by kind. ``repeated``: copies of what the target has already. ``aborted``: copies of records of
        transactions that were aborted on the source. ``ambiguous``: see :class:`.Alignment`. ``unknown``: not the
        source's. ``older``: from before the source's first record, which nobody can check any more. ``missing``: records
        of the source that the target lacks, while it has later ones. ``disordered``: see :class:`.Placed`. ``left out at
        the start``: records of the source before the first one that the target has.
    :param undecided: copies of records of transactions that are still open on the source, for a mirror that reads
        committed: should they be aborted, the map would name records that it must not.
    :param ranges: the first ones of each kind, in the offsets of its log (:data:`KINDS`).
    :param through: the map; None where the target has no copy of what the source has.
    :param compacted: a log cleaner may have taken records on either side.
    :param source_records: what the source has.
    """

    source: TopicPartition
    target: TopicPartition
    source_end: int
    target_start: int
    target_end: int
    records: int
    copies: int
    counts: Mapping[str, int]
    undecided: int = 0
    ranges: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    through: OffsetMap | None = field(default=None, repr=False)
    compacted: bool = False
    source_records: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether copies were there and none is left, so that nobody knows what was copied of what the source has."""
        were_there = self.target_start > 0 or self.compacted  # else there are markers alone
        return bool(self.source_records) and not self.records and were_there

    @property
    def next_offset(self) -> int | None:
        """The source offset at which a mirror goes on; None without a copy."""
        return None if self.through is None else self.through.source_end

    @property
    def ambiguous_share(self) -> float:
        """The share of ambiguous copies, 0 to 1."""
        return self.counts["ambiguous"] / self.copies if self.copies else 0.0

    def named(self, kind: str) -> str:
        """Return a sentence about the records of a kind, with their ranges."""
        shown = ", ".join(f"[{start}, {end})" for start, end in self.ranges.get(kind, ()))
        more = " and more" if len(self.ranges.get(kind, ())) >= _NAMED else ""
        where = self.source if KINDS[kind] == SOURCE else self.target
        return f"{where}: {self.counts[kind]:,} records {kind}, at {KINDS[kind]} offsets {shown}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; of the map its bounds and its size."""
        one = self.through
        bounds = None if one is None else {
            "source": [one.source_start, one.source_end], "target": [one.target_start, one.target_end],
            "segments": len(one),
        }  # fmt: skip
        return {
            "source": str(self.source), "target": str(self.target), "records": self.records, "copies": self.copies,
            **{kind.replace(" ", "_"): count for kind, count in self.counts.items()}, "undecided": self.undecided,
            "ranges": {kind.replace(" ", "_"): [list(r) for r in some] for kind, some in self.ranges.items()},
            "source_end": self.source_end, "target_end": self.target_end, "map": bounds,
        }  # fmt: skip


def match(
    tps: tuple[TopicPartition, TopicPartition], source: Log, target: Log, *, committed: bool, compacted: bool = False
) -> Match:
    """Match what was read of both logs.

    :param tps: source and target.
    :param committed: the mirror that goes on reads committed: the map leaves aborted records out, which it would not have
        copied.
    """
    found = align(source.digests, target.digests)
    placed = place(found.runs)
    older, unknown = _apart(source, target.digests, found)
    first = placed.covered[0].start if placed.covered else 0
    kinds = {
        "repeated": _not_placed(found.runs, placed),
        "aborted": _copies_of(found.runs, source.aborted),
        "ambiguous": found.ambiguous,
        "unknown": unknown,
        "older": older,
        "missing": without(placed.missing, source.aborted),
        "disordered": placed.disordered,
        "left out at the start": without([Span(0, first)], source.aborted) if first else [],
    }
    logs = {SOURCE: source.offsets, TARGET: target.offsets}
    return Match(
        source=tps[0], target=tps[1], source_end=source.bounds.end, target_start=target.bounds.start,
        target_end=target.bounds.end, records=target.offsets.count, copies=placed.copies,
        counts={kind: length(spans) for kind, spans in kinds.items()},
        undecided=length(_copies_of(found.runs, source.undecided)) if committed else 0,
        ranges={kind: _ranges(spans, logs[KINDS[kind]]) for kind, spans in kinds.items() if spans},
        through=map_of(placed, source, target, source.aborted if committed else []),
        compacted=compacted, source_records=source.offsets.count,
    )  # fmt: skip


def map_of(placed: Placed, source: Log, target: Log, left_out: Sequence[Span]) -> OffsetMap | None:
    """Return the map from source to target offsets; None if there is no copy.

    :param left_out: source records that it does not have, by index.
    """
    if not placed.runs:
        return None
    first, last = placed.covered[0].start, placed.covered[-1].end - 1
    found = OffsetMap(
        source.bounds.start if first == 0 else source.offsets[first], target.offsets[placed.runs[0].target]
    )  # fmt: skip
    for at, there, count in _dense(placed.runs, left_out, source.offsets, target.offsets):
        found.add(at, there, count)
    found.advance(source.offsets[last] + 1, target.bounds.end)
    return found


def _dense(
    runs: Sequence[Run], left_out: Sequence[Span], source: Offsets, target: Offsets
) -> Iterator[tuple[int, int, int]]:
    """Yield offsets of source and target, and how many records follow there without a gap on either side."""
    number = 0
    for part in without([Span(run.source, run.source_end) for run in runs], left_out):
        while runs[number].source_end <= part.start:
            number += 1
        shift = runs[number].target - runs[number].source
        for here in source.dense(part.start, part.end):
            for there in target.dense(here.start + shift, here.end + shift):
                yield source[there.start - shift], target[there.start], there.end - there.start


def _apart(source: Log, target: Digests, found: Alignment) -> tuple[list[Span], list[Span]]:
    """Return what the source no longer has, and what it never had, of the unmatched records.

    The first are those before the first copy, if the source's log does not start at 0, and repetitions of these. All are,
    if retention has emptied it: there is nothing left that could be copied once more.
    """
    if source.bounds.start > 0 and not source.offsets.count:
        return list(found.unmatched), []
    if not found.unmatched or not found.runs or source.bounds.start == 0:
        return [], list(found.unmatched)
    first = found.runs[0].target
    older = np.unique(target[:first])
    known, unknown = list[Span](), list[Span]()
    for span in found.unmatched:
        known_here = span.end <= first or bool(np.isin(target[span.start : span.end], older).all())
        (known if known_here else unknown).append(span)
    return known, unknown


def _copies_of(runs: Sequence[Run], spans: Sequence[Span]) -> list[Span]:
    """Return the target records that are copies of certain source records."""
    found = []
    starts = [span.start for span in spans]
    for run in runs:
        at = max(0, int(np.searchsorted(starts, run.source, "right")) - 1) if spans else 0
        while at < len(spans) and spans[at].start < run.source_end:
            start, end = max(spans[at].start, run.source), min(spans[at].end, run.source_end)
            if start < end:
                found.append(Span(run.target + start - run.source, run.target + end - run.source))
            at += 1
    return found


def _not_placed(runs: Sequence[Run], placed: Placed) -> list[Span]:
    """Return the copies at which nobody goes on, because the target has them once more, and of which one is enough."""
    every = [Span(run.target, run.target_end) for run in runs]
    kept = [Span(run.target, run.target_end) for run in placed.runs]
    found = without(every, kept)
    # A record that has copies but no place is counted once as disordered, not as repeated.
    return without(found, _copies_of(runs, placed.disordered)) if placed.disordered else found


def _ranges(spans: Sequence[Span], offsets: Offsets) -> list[tuple[int, int]]:
    return [(offsets[span.start], offsets[span.end - 1] + 1) for span in spans[:_NAMED]]
