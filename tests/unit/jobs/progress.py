"""A job whose tasks say what a test lets them say, with time that stands still."""

from __future__ import annotations

from typing import Any

from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.progress.figures import (
    Course,
    summary_of,
)
from airflow_mirror.jobs.progress.table import Row, Table


def bounded(partition: int = 0, start: int = 0, end: int = 1000) -> CopyRange:
    return CopyRange(
        source_topic="orders", target_topic="orders", partition=partition, start_offset=start, end_offset=end
    )


def tail(partition: int = 0, start: int = 0) -> CopyRange:
    return CopyRange(source_topic="orders", target_topic="orders", partition=partition, start_offset=start)


def told(
    position: int, state: str = "copying", end: int | None = None, error: str | None = None, **counters: Any
) -> dict[str, Any]:
    """What a task tells of its partition."""
    return {"state": state, "position": position, "end": end, "error": error, **dict.fromkeys(COUNTERS, 0), **counters}


class Job:
    """A job of which tests say, at each look, what its tasks told and what the clusters showed."""

    def __init__(self) -> None:
        self.table, self.course = Table([]), Course()

    def look(
        self, now: float, *known: tuple[CopyRange, dict[str, Any] | None], seen: tuple[int, int] | None = None
    ) -> tuple[list[Row], dict[str, Any]]:
        """Look at pairs of a range and what its task told (None: nothing).

        :param seen: position and end of the partitions without a task.
        """
        self.table.follow([one for one, _ in known])
        for one, said in known:
            if said is not None:
                about = {"topic": one.source_topic, "partition": one.partition, "target_partition": one.target.partition}
                self.table.take("a", [about | said])
            elif seen is not None:
                self.table.see(Row(range=one, end=None).key, *seen)
        rows = self.course.look(self.table.rows(), now)
        return rows, summary_of(rows)


def row(partition: int, state: str, lag: int) -> Row:
    one = CopyRange(source_topic="t" * 60, target_topic="t", partition=partition, start_offset=0, end_offset=10**9)
    counters = dict.fromkeys(COUNTERS, 10**9)
    return Row(range=one, state=state, position=10**9 - lag, end=10**9, error="x" * 300, counters=counters)
