"""A Spark session with the settings that every job needs."""

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
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(name: str, stopping: threading.Event | None = None) -> Iterator[SparkSession]:
    """Yield the session of this process and stop it at the end; under spark-submit its settings apply.

    :param stopping: ends the wait for a cluster's first executor.
    :raises InputError: an executor lacks what tasks need.
    :raises TryAgain: the cluster gives none.
    """
    # Without these, workers use the first python3 on PATH, which may lack every library.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    # A speculative copy of a task would be a second writer of its partitions.
    builder = builder.config("spark.speculation", "false").config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    builder = builder.config("spark.ui.showConsoleProgress", "false")  # we show our own progress bar
    spark = builder.getOrCreate()
    if on_terminal():
        spark.sparkContext.setLogLevel("WARN")  # Spark's INFO lines would break the bar
    try:
        check_executors(spark, stopping)
        yield spark
    finally:
        spark.stop()
