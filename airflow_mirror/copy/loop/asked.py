"""What a partition's copy asks for besides a batch that is sent."""

from __future__ import annotations

from typing import NamedTuple


class Pad(NamedTuple):
    """Fill the target offsets [start, end) with padding; no record may be written there."""

    start: int
    end: int


class Begin(NamedTuple):
    """Open a transaction for the records from ``position`` on."""

    position: int


class Commit(NamedTuple):
    """Commit the open transaction, with ``position`` as the next source offset."""

    position: int
