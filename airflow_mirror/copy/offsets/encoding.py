"""A piece of an offset map as the value of a record: JSON, readable wherever a consumer prints it.

``gaps`` holds, for each run, the source offsets and the target offsets that lie between the run before it (at first: the
start of the piece) and itself; ``counts`` its records. Numbers stay small that way, and the batch's compression leaves
about a byte of each run. Sizes and times of this and of two other formats: ADR 17.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice
from operator import add, sub

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.ledger.records import MAP

LARGEST = 1 << 13  # runs in a piece: 3 numbers of at most 20 characters each stay below what a record may have


def encode(piece: OffsetMap) -> bytes:
    """Return a piece as a record's value. It has at most :data:`LARGEST` runs."""
    source, target, counts = piece.columns
    fields = {
        "source": [piece.source_start, piece.source_end],
        "target": [piece.target_start, piece.target_log_end],
        "gaps": [_gaps(piece.source_start, source, counts), _gaps(piece.target_start, target, counts)],
        "counts": counts.tolist(),
    }
    return MAP.encode(fields)


def decode(value: bytes) -> OffsetMap:
    """Return the piece.

    :raises ValueError: it is none, or of a later version of this package.
    """
    try:
        fields = json.loads(value)
        # Not read, rather than misread: the reader goes on without it, and derives what it said.
        if fields["v"] != MAP.version:
            raise ValueError(f"version {fields['v']}")
        (source_start, source_end), (target_start, target_log_end) = fields["source"], fields["target"]
        counts = array("q", fields["counts"])
        here, there = (
            _starts(start, gaps, counts) for start, gaps in zip((source_start, target_start), fields["gaps"], strict=True)
        )
    except (KeyError, TypeError, OverflowError, RecursionError) as e:
        raise ValueError(f"no piece of an offset map ({e!r})") from e
    return OffsetMap.of_columns((source_start, target_start), (source_end, target_log_end), (here, there, counts))


def split(piece: OffsetMap, largest: int = LARGEST) -> Iterator[OffsetMap]:
    """Yield a map in pieces that continue each other, of at most ``largest`` runs."""
    source, target, counts = piece.columns
    start = piece.source_start, piece.target_start
    for first in range(0, max(len(piece), 1), largest):
        columns = tuple(side[first : first + largest] for side in (source, target, counts))
        last = first + largest >= len(piece)
        end = source[first + largest - 1] + counts[first + largest - 1] if not last else piece.source_end
        part = OffsetMap.of_columns(start, (end, piece.target_log_end if last else 0), columns)  # type: ignore[arg-type]
        yield part
        start = part.source_end, part.target_end


# Both run in C, because a map may have millions of runs.


def _gaps(start: int, starts: array[int], counts: array[int]) -> list[int]:
    ends = chain((start,), map(add, starts, counts))
    return list(map(sub, starts, ends))


def _starts(start: int, gaps: Iterable[int], counts: array[int]) -> array[int]:
    steps = map(add, gaps, chain((0,), counts))
    return array("q", islice(accumulate(steps, initial=start), 1, None))
