"""A Spark context with the settings that every job needs.

No session: what distributes tasks needs none of Spark's SQL. Without it a job starts with two fifths less CPU time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_mirror.jobs.driver.executors import check_executors
from airflow_mirror.jobs.progress.bar import on_terminal

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@contextmanager
def spark_context(name: str, stopping: threading.Event | None = None) -> Iterator[SparkContext]:
    """Yield the context of this process and stop it at the end; under spark-submit its settings apply.

    :param stopping: ends the wait for a cluster's first executor.
    :raises InputError: an executor lacks what tasks need.
    :raises TryAgain: the cluster gives none.
    """
    # Without these, workers use the first python3 on PATH, which may lack every library.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext

    # A speculative copy of a task would be a second writer of its partitions.
    conf = SparkConf().setAppName(name).set("spark.speculation", "false")
    conf = conf.set("spark.ui.showConsoleProgress", "false")  # we show our own progress bar
    context = SparkContext.getOrCreate(conf)
    if on_terminal():
        context.setLogLevel("WARN")  # Spark's INFO lines would break the bar
    try:
        check_executors(context, stopping)
        yield context
    finally:
        context.stop()


def sql_session() -> SparkSession:
    """Return the session of this process's context, for what streams."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()
