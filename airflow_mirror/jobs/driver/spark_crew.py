"""Spark's tasks as a driver's crew (:mod:`.crew`): the one module of the driver that knows how Spark is asked to copy."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from airflow_mirror.config import Handover
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.spark.bulk import run_bulk
from airflow_mirror.copy.task import CopyWork, work_to_json
from airflow_mirror.jobs.driver import executors
from airflow_mirror.jobs.driver.executors import handover_for
from airflow_mirror.jobs.driver.session import spark_context, sql_session
from airflow_mirror.jobs.driver.turns import Tail
from airflow_mirror.jobs.progress.listener import Hosts, hosts_of
from airflow_mirror.jobs.runner.directory import SPARK, spark_path, write_json
from airflow_mirror.jobs.runner.process import JOB_DIR_VARIABLE
from airflow_mirror.jobs.runner.spec import is_local

_NO_WORKER = "Python worker failed to connect back"  # Spark's message; no setting changes how long it waits


def _has_lost(context: Any, group: str) -> bool:
    """Return whether a task of the last job of a group has failed, or went with its executor.

    Spark counts both, whether it may run the task again or not; how often a stage was begun as well.
    """
    return any(stage.numFailedTasks or stage.currentAttemptId for stage in _last_stages(context, group))


def _last_stages(context: Any, group: str) -> list[Any]:
    """Return what Spark knows of the stages of a group's last job."""
    tracker = context.statusTracker()
    jobs = tracker.getJobIdsForGroup(group)
    job = tracker.getJobInfo(max(jobs)) if jobs else None
    stages = [tracker.getStageInfo(number) for number in job.stageIds] if job is not None else []
    return [stage for stage in stages if stage is not None]


class SparkStream:
    """A streaming query; see :class:`.crew.Stream`. Its tasks hear of a turn's end where they report."""

    def __init__(self, query: Any, tail: Tail, context: Any) -> None:
        self._query, self._tail, self._context = query, tail, context

    @property
    def is_running(self) -> bool:
        """Whether the query is active."""
        return bool(self._query.isActive)

    @property
    def is_partly_over(self) -> bool:
        """Whether some tasks of the present micro-batch have ended, of themselves, and others have not."""
        stages = _last_stages(self._context, str(self._query.runId))
        return any(0 < stage.numCompletedTasks < stage.numTasks for stage in stages)

    @property
    def must_restart(self) -> bool:
        """Whether a task was lost."""
        return _has_lost(self._context, str(self._query.runId))

    def failure(self) -> str:
        """Return the query's exception."""
        return f"the streaming query ended: {self._query.exception()}"

    def end_turn(self) -> None:
        """Nothing more than what tasks hear where they report."""

    def stop(self, wait_s: float) -> bool:
        """Stop the query."""
        reported = self._tail.reported.wait(wait_s)
        self._query.stop()
        return reported


class SparkCrew:
    """The tasks of one application; see :class:`.crew.Crew`.

    :param scratch: a directory of this job. :param settings_from: as for :func:`.executors.handover_for`.
    :param crews: how many share the application's slots.
    """

    def __init__(self, context: Any, scratch: Path, settings_from: str, crews: int = 1) -> None:
        self._context, self._scratch, self._settings_from, self._crews = context, scratch, settings_from, crews
        self._numbers = count(1)
        self._handed: Handover | None = None
        self._group = ""  # of the copy that runs

    @property
    def hosts(self) -> Hosts | None:
        """See :func:`.hosts_of`."""
        return hosts_of(self._context)

    def slots(self) -> int:
        """See :func:`.executors.slots`. An equal share: the tasks of a tail hold their slots until it ends."""
        return max(1, executors.slots(self._context) // self._crews)

    def copy(self, dealt: Sequence[Sequence[CopyRange]], work: CopyWork) -> list[PartitionResult]:
        """Copy in one Spark job."""
        if self._handed is None:  # once, for what it may have to say
            self._handed = handover_for(self._context, self._settings_from, work.source, work.target)
        group = f"{work.lease.transactional_id} {work.lease.mark_ms}"
        self._context.setJobGroup(group, "copy")
        self._group = group
        try:
            return run_bulk(self._context, dealt, work, self._handed)
        finally:
            self._group = ""

    def has_lost(self) -> bool:
        """See :meth:`.crew.Crew.has_lost`."""
        return bool(group := self._group) and _has_lost(self._context, group)

    def follow(self, tail: Tail, work: CopyWork, turn_s: float) -> SparkStream:
        """Start a streaming query whose micro-batches are the turns."""
        from airflow_mirror.copy.spark.tail import SOURCE_NAME, TailSource

        spark: Any = sql_session()
        spark.dataSource.register(TailSource)
        turn_file = self._scratch / "turn.json"
        tail.tell_turns(lambda turn: write_json(turn_file, turn))
        cluster = not is_local(self._context.master)
        reader = {
            "turn_file": str(turn_file),
            "turn_s": str(turn_s),
            "hand_over": str(cluster and self._settings_from == "driver").lower(),
            "work": work_to_json(work),
        }

        def take(frame: Any, _batch_id: int) -> None:
            tail.reported.clear()  # its tasks begin with the next line
            tail.take([PartitionResult(**json.loads(row.result)) for row in frame.collect()])

        query = (
            spark.readStream.format(SOURCE_NAME).options(**reader).load().writeStream.foreachBatch(take)
            .trigger(processingTime="1 second")  # between turns in which there is nothing to do; others take longer
            # Turns are counted from 0 again.
            .option("checkpointLocation", spark_path(self._scratch / f"checkpoint-{next(self._numbers)}"))
            .queryName(f"mirror_{tail.job.mirror.name}".replace("-", "_"))
            .start()
        )  # fmt: skip
        return SparkStream(query, tail, self._context)

    def may_start_again(self, error: Exception) -> bool:
        """Whether a Python worker took more than the 10 s that Spark gives it."""
        return _NO_WORKER in str(error)


@contextmanager
def spark_crew(name: str, settings_from: str, stopping: threading.Event | None = None) -> Iterator[SparkCrew]:
    """Yield the tasks of an application of this name; errors as of :func:`.spark_context`."""
    with spark_context(name, stopping) as context, crew_of(context, settings_from) as crew:
        yield crew


@contextmanager
def crew_of(context: Any, settings_from: str, crews: int = 1) -> Iterator[SparkCrew]:
    """Yield tasks of a context that so many crews share."""
    # In the job's directory, beside what Spark keeps there: a tail reads these files for months, and hosts remove from
    # /tmp what nobody has touched for ten days (systemd-tmpfiles).
    directory = Path(job_dir) / SPARK if (job_dir := os.environ.get(JOB_DIR_VARIABLE)) else None
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="airflow-mirror-spark-", dir=directory) as scratch:
        yield SparkCrew(context, Path(scratch), settings_from, crews)
