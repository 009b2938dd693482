"""A thread that reads positions from both clusters, for partitions that no task reports on at the moment.

A task that waits for a slot, was killed, or can't reach the driver reports nothing; with identical offsets the position
is the target's log end offset. With mapped offsets it is not, and the position is unknown meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from airflow_mirror.config import load
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.progress.reports import Key, key_of
from airflow_mirror.jobs.progress.summary import Where
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

EVERY_S = 2.0


class Look:
    """Polls the partitions that ``wanted`` returns every two seconds, until :meth:`close`.

    :param source: reference to its settings; ``target`` likewise.
    :param committed_only: whether the last stable offset or the high watermark counts where a range has no end.
    """

    def __init__(self, source: str, target: str, committed_only: bool, wanted: Callable[[], Sequence[CopyRange]]) -> None:
        self._source, self._target, self._committed_only = source, target, committed_only
        self._wanted = wanted
        self.seen: dict[Key, Where] = {}  # replaced as a whole
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="look", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop polling; don't wait for a late answer."""
        self._stop.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        with WireCluster(load(self._source, "source")) as here, WireCluster(load(self._target, "target")) as there:
            while not self._stop.is_set():
                try:
                    self.seen = self._look(here, there, self._wanted())
                except MirrorError as e:  # a failed poll is no reason to stop the copy
                    log.info("positions of partitions are unknown: %s", e)
                self._stop.wait(EVERY_S)

    def _look(self, source: WireCluster, target: WireCluster, ranges: Sequence[CopyRange]) -> dict[Key, Where]:
        ranges = [r for r in ranges if not r.is_mapped]
        if not ranges:
            return {}
        positions = target.log_ends([r.target for r in ranges])  # first, or it could seem to be ahead of the source
        open_ended = [r.source for r in ranges if r.end_offset is None]
        ends = (source.last_stable if self._committed_only else source.high_watermarks)(open_ended) if open_ended else {}
        return {
            key_of(r): Where(positions[r.target], ends[r.source] if r.end_offset is None else r.end_offset)
            for r in ranges
        }
