"""Check whether a time window can still be copied: nothing can be inserted before a copy's first record."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_mirror.copy.offsets.reader import MapReader
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import InputError
from airflow_mirror.wire.cluster import WireCluster


def check_reachable(ranges: Sequence[CopyRange], target: WireCluster, mirror: str, start: str) -> None:
    """Refuse a window that begins before the target's first record of a partition: it would be omitted silently.

    :param mirror: whose copy it is.
    :param start: ISO 8601 with a time zone; ``earliest`` and ``latest`` are always reachable.
    :raises InputError: names every such partition.
    """
    if start in ("earliest", "latest"):
        return
    store = MapReader(mirror, [r.map_key for r in ranges])
    kept = [r.target for r in ranges if not r.is_mapped]
    begins, ends = target.log_starts(kept), target.high_watermarks(kept)

    def begin(copy_range: CopyRange) -> int | None:
        """Return the source offset at which the copy of a partition began."""
        if copy_range.is_mapped:
            return store.source_start(target, copy_range)
        # An empty target log can begin anywhere.
        return begins[copy_range.target] if ends[copy_range.target] > begins[copy_range.target] else None

    begun = [(one, at) for one in ranges if (at := begin(one)) is not None and one.start_offset < at]
    if begun:
        raise InputError(
            f"window from {start}: the copy of {len(begun)} partition(s) began later",
            sorted(f"{one.source}: {one.start_offset:,} wanted, begins at {at:,}" for one, at in begun),
            "Records can't be inserted before those that were copied. Copy windows oldest first, or delete the target "
            "topic and, with mapped offsets, its map.",
        )
