"""Say in the log that nothing advances although fetched data is held: whoever waits for such a copy waits for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from airflow_mirror.copy.loop.limits import Memory
from airflow_mirror.copy.loop.partition import PartitionCopy

log = logging.getLogger(__name__)

_EVERY_S = 5.0
_AFTER_S = 60.0  # a target that does not answer is given up well before
_AGAIN_S = 600.0
_NAMED = 3  # partitions


class Standstill:
    """Looks every few seconds whether any partition of a task advances.

    :param clock: monotonic, in seconds.
    """

    def __init__(self, memory: Memory, clock: Callable[[], float]) -> None:
        self._memory, self._clock = memory, clock
        self._sum, self._due_s = -1, _AFTER_S
        self._looked_at = self._since = clock()

    def look(self, partitions: Sequence[PartitionCopy], *, waits: bool) -> None:
        """Log a warning if nothing has advanced for a minute; then not again for ten.

        :param waits: something else that says so itself holds the copy up, or takes its time.
        """
        now = self._clock()
        if waits:
            self._since, self._due_s = now, _AFTER_S
        if waits or now - self._looked_at < _EVERY_S:  # a sum over thousands of partitions is too slow for every turn
            return
        self._looked_at = now
        before, self._sum = self._sum, sum(p.position for p in partitions)
        if before != self._sum or not self._memory.used:
            self._since, self._due_s = now, _AFTER_S
        elif now - self._since >= self._due_s:
            self._due_s = now - self._since + _AGAIN_S
            holders = sorted((p for p in partitions if p.queued_bytes), key=lambda p: -p.queued_bytes)
            log.warning(
                "no partition has advanced for %.0f s, while %d of %d bytes for fetched data are taken, by %d "
                "partitions: %s. To start this copy again loses nothing",
                now - self._since, self._memory.used, self._memory.limit, len(holders),
                ", ".join(f"{p.range.source} ({p.state.value}, {p.queued_bytes} bytes)" for p in holders[:_NAMED]),
            )  # fmt: skip
