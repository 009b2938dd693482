"""What a partition's copy counts."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(kw_only=True)
class Counters:
    """What a partition's copy did, in records, bytes (as sent) and batches."""

    records: int = 0
    bytes: int = 0
    batches: int = 0  # sent
    passed: int = 0  # of the batches sent: unchanged
    reencoded: int = 0  # of the batches sent: decoded and re-encoded, each source batch into one or several
    merged: int = 0  # source batches that were merged into larger ones
    dropped: int = 0  # source batches not sent: markers, aborted, emptied
    padded: int = 0  # offsets
    primed: int = 0  # offsets


COUNTERS = tuple(f.name for f in fields(Counters))
