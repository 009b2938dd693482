"""Live progress of a copy: the driver asks both clusters where each partition stands; tasks need no channel to it.

The target's log end is a partition's position (the target log is the journal), so what is shown is what is stored.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.status import StatusFile
from airflow_mirror.kafka.config import load
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

_EVERY_S = 2.0
_LINE_EVERY_S = 6.0


class Progress:
    """Keeps ``status.json``, a log line every few seconds and, on a terminal, a line that rewrites itself.

    :param ranges: what is copied; replaced by :meth:`follow` when a tail discovers more.
    :param committed_only: whose end counts: the last stable offset or the high watermark.
    """

    def __init__(
        self, source: str, target: str, ranges: Sequence[CopyRange], committed_only: bool, status: StatusFile
    ) -> None:
        self._references = source, target
        self._ranges = list(ranges)
        self._committed_only = committed_only
        self._status = status
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._before: tuple[float, int] | None = None
        self._said = 0.0
        self.lag: int | None = None  # offsets, over all partitions; None until known

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def stop(self) -> None:
        """End reporting."""
        self._stop.set()
        self._thread.join(timeout=10)

    def follow(self, ranges: Sequence[CopyRange]) -> None:
        """Report on these ranges from now on."""
        self._ranges = list(ranges)

    def _run(self) -> None:
        source, target = self._references
        with WireCluster(load(source, "source")) as here, WireCluster(load(target, "target")) as there:
            while True:
                try:
                    self._report(self._look(here, there))
                except MirrorError as e:  # a look that failed is no reason to stop the copy
                    log.info("progress not known: %s", e)
                if self._stop.wait(_EVERY_S):
                    return

    def _look(self, source: WireCluster, target: WireCluster) -> list[dict[str, Any]]:
        ranges = self._ranges
        open_ended = [r.source for r in ranges if r.end_offset is None]
        ends = (source.last_stable if self._committed_only else source.high_watermarks)(open_ended) if open_ended else {}
        positions = target.log_ends([r.target for r in ranges])
        rows = []
        for r in ranges:
            end = ends[r.source] if r.end_offset is None else r.end_offset
            position = positions[r.target]
            rows.append({
                "topic": r.source_topic, "partition": r.partition, "position": position, "end": end,
                "lag": max(0, end - max(position, r.start_offset)),
            })  # fmt: skip
        return rows

    def _report(self, rows: list[dict[str, Any]]) -> None:
        now = time.monotonic()
        lag = sum(row["lag"] for row in rows)
        rate = 0.0
        if self._before is not None and now > self._before[0]:
            rate = max(0.0, (self._before[1] - lag) / (now - self._before[0]))
        self._before = now, lag
        self.lag = lag
        summary: dict[str, Any] = {"lag": lag, "offsets_per_s": round(rate)}
        if rate > 0:
            summary["eta_s"] = round(lag / rate)
        self._status.update(partitions=rows, summary=summary)
        self._say(len(rows), lag, rate, now)

    def _say(self, partitions: int, lag: int, rate: float, now: float) -> None:
        text = f"{partitions} partitions, {lag:,} offsets to go, {rate:,.0f} offsets/s"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif now - self._said >= _LINE_EVERY_S:
            self._said = now
            log.info("%s", text)
