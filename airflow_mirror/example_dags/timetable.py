"""Intervals for backfills alone: nothing is scheduled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.timetables.interval import CronDataIntervalTimetable

if TYPE_CHECKING:
    from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction

__all__ = ["BackfillTimetable"]


class BackfillTimetable(CronDataIntervalTimetable):
    """As CronDataIntervalTimetable, but a DAG without ``catchup`` runs when somebody asks for it, and never by itself.

    Airflow makes the runs of a backfill by a DAG's timetable, so such a DAG needs one, and a DAG with a schedule may not
    refuse scheduled runs. Registered by the package's plugin.
    """

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the next interval of a backfill, which catches up; None for the scheduler."""
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
