"""The bulk copy on Spark: the input rows are lists of ranges, the output rows are lists of results.

Spark schedules, retries and scales out. The payload moves through the sockets of Spark's Python tasks and never enters
the JVM. One task owns whole partitions: a partition is never split, because its order must be kept.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_mirror.config import Handover
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RESULT_SCHEMA = "result string"


def run_bulk(
    spark: SparkSession, dealt: Sequence[Sequence[CopyRange]], work: CopyWork, handover: Handover | None = None
) -> list[PartitionResult]:
    """Run one Spark task for each list of ranges, in their order, and return every partition's result.

    Errors of single partitions are part of the results; an exception means that Spark itself gave up on a task. If a
    task had to be run again, its partitions are :attr:`~.PartitionResult.unheard`.

    :param handover: the clusters' settings for executors that can't read ``work``'s references themselves.
    """
    handed = handover or Handover()
    # Keep it small: Spark writes a function's pickle above 1 MB to a file, and settings must not be in a file.
    lists = [zlib.compress(json.dumps([r.to_dict() for r in ranges]).encode()) for ranges in dealt]

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from airflow_mirror.copy.spark.attempt import carry_out

        handed.accept()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                ranges = [CopyRange(**values) for values in json.loads(zlib.decompress(lists[task]))]
                yield pyarrow.RecordBatch.from_pydict({"result": carry_out(work, ranges)})

    # One id per Spark partition, so that each list becomes its own task.
    tasks: Any = spark.range(0, len(lists), 1, len(lists))
    # A driver that dies here loses all results and nothing of the copy: where each partition stands is in the target's
    # log. Its tasks end with Spark's, or when the next job takes the lease.
    rows = tasks.mapInArrow(copy, RESULT_SCHEMA).collect()
    return [PartitionResult(**json.loads(row.result)) for row in rows]
