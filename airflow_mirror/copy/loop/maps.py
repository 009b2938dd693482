"""Store the offset maps of a task at intervals, in a thread: a broker's answer takes milliseconds, often many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from airflow_mirror.copy.loop.crew import Crew
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.copy.loop.opener import store_map
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.wire.cluster import WireCluster

EVERY_S = 60.0  # after a crash, this much of both logs has to be walked again; a piece is 240 bytes for each partition


class MapKeeper:
    """Stores what was mapped since the last time, as separate parts.

    :param crew: with one thread, so that the parts of a map are stored in order.
    :param check: raises if nothing may be written now.
    :param clock: monotonic, in seconds.
    """

    def __init__(
        self, store: MapStore | None, crew: Crew, mailbox: Mailbox, check: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._store, self._crew, self._mailbox, self._check, self._clock = store, crew, mailbox, check, clock
        self._stored_at = clock()
        self._under_way: set[PartitionCopy] = set()

    def has(self, p: PartitionCopy) -> bool:
        """True while a part of ``p``'s map is being stored. Opening ``p`` now would leave a gap in its map."""
        return p in self._under_way

    def now_and_then(self, partitions: Iterable[PartitionCopy]) -> None:
        """Store the maps if the last time was more than a minute ago."""
        if self._store is not None and self._clock() - self._stored_at > EVERY_S:
            self.store(partitions)

    def store(self, partitions: Iterable[PartitionCopy]) -> None:
        """Submit everything that was mapped since the last time for storage."""
        self._stored_at = self._clock()
        for p in partitions:
            # One part at a time: a second one that overtakes the first would be stored behind a gap, and not count.
            if p in self._under_way or (part := p.take_map()) is None:
                continue
            self._under_way.add(p)
            self._crew.submit(partial(self._job, p, part))

    def _job(self, p: PartitionCopy, part: OffsetMap, _source: WireCluster, target: WireCluster) -> None:
        assert self._store is not None
        # Only what was acknowledged is in a part. Death before this call costs a walk over both logs, death behind it
        # nothing; a part that was stored and whose answer was lost is stored again, with the same content.
        stored = store_map(self._store, target, p.range, part, self._check)
        self._mailbox.post(partial(self._done, p, None if stored else part))

    def _done(self, p: PartitionCopy, left: OffsetMap | None) -> None:
        # Only the loop's thread changes this set, and only when it hears of the end: `has` is true until the part is
        # stored or known not to be.
        self._under_way.discard(p)
        # Also of a partition that has failed meanwhile: it is not opened before this (`has`).
        if left is not None:
            p.give_back_map(left)  # stored with the next part


def store_of(partitions: Iterable[PartitionCopy], options: CopyOptions) -> MapStore | None:
    """Return the store of offset maps; None if all ranges keep their offsets."""
    mapped = [p.range.map_key for p in partitions if p.range.is_mapped]
    return MapStore(options.mirror, mapped) if mapped else None
