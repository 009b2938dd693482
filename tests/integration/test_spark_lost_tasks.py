"""What Spark itself tells of a task that is run again: to the task, and to the driver. Nothing is copied."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork, turn_of
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.driver.session import spark_context
from airflow_mirror.jobs.driver.spark_crew import SparkCrew, _has_lost
from airflow_mirror.jobs.runner.java import java_home_for_spark

pytestmark = pytest.mark.spark

LEASE = LeaseToken(transactional_id="lost", producer_id=1, epoch=2, mark_ms=3, wait_s=0.0)
RANGES = [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0, end_offset=9) for p in range(2)]


class Turns:
    """A tail that takes what its first turn brings, and ends its stream as one that has lost a task does."""

    def __init__(self) -> None:
        self.job = SimpleNamespace(mirror=SimpleNamespace(name="lost"))
        self.reported, self.taken = threading.Event(), threading.Event()
        self.results: list[PartitionResult] = []

    def tell_turns(self, tell: Any) -> None:
        tell(turn_of(CopyOptions(mirror="lost"), [[one] for one in RANGES]) | {"number": 1})

    def take(self, results: list[PartitionResult]) -> None:
        self.results = results
        self.taken.set()
        raise TryAgain("a task was lost")


def test_a_task_that_is_run_again_knows_it_and_the_driver_sees_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each first attempt fails by a mistake, as with an executor that lacks a package."""
    from pyspark import SparkConf, SparkContext

    monkeypatch.setenv("JAVA_HOME", str(java_home_for_spark()))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 512m pyspark-shell")
    work = CopyWork(source=None, target=None, options=CopyOptions(mirror="lost"), lease=LEASE)  # type: ignore[arg-type]
    # Not by the arguments: another test may have begun the JVM.
    SparkContext.getOrCreate(SparkConf().setMaster("local[2,2]").setAppName("lost tasks"))
    with spark_context("lost tasks") as context:
        crew = SparkCrew(context, tmp_path, "executor")
        results = crew.copy([[one] for one in RANGES], work)
        assert [(r.partition, r.unheard) for r in results] == [(0, True), (1, True)]
        assert all("Spark runs its task again (attempt 1)" in str(r.error) for r in results)
        assert _has_lost(context, "lost 3") and not _has_lost(context, "another")
        assert not crew.has_lost(), "it is over"

        tail: Any = Turns()
        stream = crew.follow(tail, work, turn_s=1.0)
        assert tail.taken.wait(240), stream.failure()
        assert sorted((r.partition, r.unheard) for r in tail.results) == [(0, True), (1, True)]
        assert stream.must_restart
        assert not stream.stop(0.1), "nothing is reported"
