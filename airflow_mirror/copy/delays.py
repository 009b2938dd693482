"""How long records take: from their timestamps to their arrival here, and to the target's answer.

One sample for each batch that was sent, of its newest record: what is measured for each batch costs nothing, for each
record it would cost as much as the copy. The two moments are those of MirrorMaker 2's ``record-age-ms`` and
``replication-latency-ms``. Whoever copies records of last year sees delays of a year, here as there.
"""

from __future__ import annotations

import time
from typing import NamedTuple

WINDOW_MS = 30_000


class Delays(NamedTuple):
    """The delays of a partition's batches, as a task reports them.

    :param batches: since the task began; the sums are theirs, in ms.
    :param age_min_ms: this and the other extremes are of the last half to whole minute in which batches were sent.
    """

    batches: int = 0
    age_sum_ms: int = 0
    latency_sum_ms: int = 0
    age_min_ms: int = 0
    age_max_ms: int = 0
    latency_min_ms: int = 0
    latency_max_ms: int = 0


class DelayMeter:
    """Measures one partition's delays. Written by the loop; another thread reads it now and then.

    :ivar batches: how many.
    :ivar timestamp_ms: of the newest record of the last batch; 0 before the first one.
    """

    __slots__ = (
        "_age_max", "_age_min", "_age_sum", "_before", "_latency_max", "_latency_min", "_latency_sum", "_window_end",
        "batches", "timestamp_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batches = self.timestamp_ms = self._age_sum = self._latency_sum = self._window_end = 0
        # Of this window, and of the one before it: there is no moment at which only the last second counts.
        self._age_min = self._age_max = self._latency_min = self._latency_max = 0
        self._before: tuple[int, int, int, int] | None = None

    def add(self, timestamp_ms: int, arrived_ms: int, now_ms: int) -> None:
        """Add a batch that the target has confirmed.

        :param timestamp_ms: of its newest record; below 0: it has none, and nothing is measured.
        :param arrived_ms: when it arrived from the source, by this machine's clock; ``now_ms`` likewise.
        """
        if timestamp_ms < 0:
            return
        # Clocks of machines differ, and whoever writes a record may give it any timestamp.
        age, latency = max(0, arrived_ms - timestamp_ms), max(0, now_ms - timestamp_ms)
        if now_ms >= self._window_end:
            self._begin_window(now_ms, age, latency)
        self.batches += 1
        self.timestamp_ms = timestamp_ms
        self._age_sum += age
        self._latency_sum += latency
        # Branches, because min() and max() take three times as long, for every batch.
        if age < self._age_min:
            self._age_min = age
        elif age > self._age_max:
            self._age_max = age
        if latency < self._latency_min:
            self._latency_min = latency
        elif latency > self._latency_max:
            self._latency_max = latency

    def _begin_window(self, now_ms: int, age: int, latency: int) -> None:
        follows = now_ms < self._window_end + WINDOW_MS
        self._before = (self._age_min, self._age_max, self._latency_min, self._latency_max) if follows else None
        self._window_end = now_ms - now_ms % WINDOW_MS + WINDOW_MS
        self._age_min = self._age_max = age
        self._latency_min = self._latency_max = latency

    def read(self) -> Delays:
        """Return what was measured."""
        a, b, c, d = self._before or (self._age_min, self._age_max, self._latency_min, self._latency_max)
        return Delays(
            self.batches, self._age_sum, self._latency_sum, min(self._age_min, a), max(self._age_max, b),
            min(self._latency_min, c), max(self._latency_max, d),
        )  # fmt: skip


def wall_ms() -> int:
    """Return this machine's time, in ms since 1970."""
    # The wall clock, because records have its times. Nothing that is decided here depends on it.
    return int(time.time() * 1000)
