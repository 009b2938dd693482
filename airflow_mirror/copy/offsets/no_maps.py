"""The store of offset maps of a copy that nobody goes on with."""

from __future__ import annotations

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import Check, MapStore
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.wire.cluster import WireCluster


class NoMaps(MapStore):
    """Keeps nothing."""

    def load(self, target: WireCluster, copy_range: CopyRange) -> OffsetMap | None:
        """Return None: there is none."""
        return None

    resume = load

    def begin(
        self, target: WireCluster, copy_range: CopyRange, source_start: int, target_start: int, check: Check
    ) -> None:
        """Do nothing."""

    def append(self, target: WireCluster, copy_range: CopyRange, part: OffsetMap, check: Check) -> None:
        """Do nothing."""
