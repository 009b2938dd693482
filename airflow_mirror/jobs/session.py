"""A Spark session for a job, with what every job of ours needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """Yield the session of this process and stop it at the end; under spark-submit its settings apply."""
    # Without these, workers take the first python3 on PATH, which may lack every library.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    # A speculative copy of a task would be a second writer of its partitions.
    builder = builder.config("spark.speculation", "false").config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
