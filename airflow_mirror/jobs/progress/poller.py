"""A thread that reads positions from both clusters, for partitions that no task reports on at the moment.

A task that waits for a slot, was killed, or can't reach the driver reports nothing; with identical offsets the position
is the target's log end offset. With mapped offsets it is not, and the position is unknown meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time

from airflow_mirror.config import load
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

EVERY_S = 2.0


def poll(source: str, target: str, committed_only: bool, table: Table, stop: threading.Event) -> None:
    """Poll every two seconds what the table is not told, until ``stop`` is set.

    :param source: reference to its settings; ``target`` likewise.
    :param committed_only: whether the last stable offset or the high watermark counts where a range has no end.
    """
    with WireCluster(load(source, "source")) as here, WireCluster(load(target, "target")) as there:
        while not stop.is_set():
            try:
                look(here, there, committed_only, table)
            except MirrorError as e:  # a failed poll is no reason to stop the copy
                log.info("positions of partitions are unknown: %s", e)
            stop.wait(EVERY_S)


def look(source: WireCluster, target: WireCluster, committed_only: bool, table: Table) -> None:
    """Read once where the partitions are that the table is not told of."""
    now = time.monotonic()
    rows = [row for row in table.rows() if not row.range.is_mapped and not row.is_told(now)]
    if not rows:
        return
    positions = target.log_ends([r.range.target for r in rows])  # first, or it could seem to be ahead of the source
    open_ended = [r.range.source for r in rows if r.range.end_offset is None]
    logs = source.high_watermarks(open_ended) if open_ended else {}
    ends = source.last_stable(open_ended) if open_ended and committed_only else logs
    for row in rows:
        one = row.range
        if one.end_offset is None:
            end = ends[one.source]
            table.see(row.key, positions[one.target], end, max(0, logs[one.source] - end))
        else:
            table.see(row.key, positions[one.target], one.end_offset)
