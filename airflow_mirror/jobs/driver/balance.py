"""Whether a turn's tasks share the load as well as they could. Values and decisions only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import CopyRange, deal
from airflow_mirror.jobs.progress.table import Key, Row, Run

_WORTH_BYTES = 64 << 20  # of the busiest task between two looks: below that nobody waits for it
_WORSE = 1.5  # times the busiest task of a new deal


class Balance:
    """Compares the tasks that run with a new deal, by the bytes that came since the last look."""

    def __init__(self) -> None:
        self._seen: Mapping[Key, int] = {}

    def look(self, rows: Sequence[Row]) -> dict[TopicPartition, int]:
        """Return how many bytes each source partition brought since the last look."""
        bytes_now = {row.key: row.counters.get("bytes", 0) for row in rows}
        brought: Counter[TopicPartition] = Counter()
        for row in rows:
            brought[row.range.source] += max(0, bytes_now[row.key] - self._seen.get(row.key, 0))
        self._seen = bytes_now
        return dict(brought)


def is_lopsided(rows: Iterable[Row], brought: Mapping[TopicPartition, int], tasks: int) -> bool:
    """Return whether a new deal to so many tasks is worth the second that it costs.

    :param brought: bytes of each source partition, all lately. :param rows: say which task has which partition.
    """
    loads: Counter[Run] = Counter()
    ranges: list[CopyRange] = []
    for row in rows:
        ranges.append(row.range)
        loads[row.run] += brought.get(row.range.source, 0)
    busiest = max(loads.values(), default=0)
    dealt = deal(ranges, tasks, brought)
    best = max((sum(brought.get(one.source, 0) for one in part) for part in dealt), default=0)
    return busiest >= _WORTH_BYTES and busiest > _WORSE * best
