"""The bulk copy on Spark: each task has a list of ranges, and returns their results.

Spark schedules, retries and scales out. The payload moves through the sockets of Spark's Python tasks and never enters
the JVM. One task owns whole partitions: a partition is never split, because its order must be kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_mirror.config import Handover
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_bulk(
    context: SparkContext, dealt: Sequence[Sequence[CopyRange]], work: CopyWork, handover: Handover | None = None
) -> list[PartitionResult]:
    """Run one Spark task for each list of ranges, in their order, and return every partition's result.

    Errors of single partitions are part of the results; an exception means that Spark itself gave up on a task. If a
    task had to be run again, its partitions are :attr:`~.PartitionResult.unheard`.

    :param handover: the clusters' settings for executors that can't read ``work``'s references themselves.
    """
    handed = handover or Handover()
    lists = [json.dumps([r.to_dict() for r in ranges]) for ranges in dealt]

    # What it has of its own stays small: Spark writes a function's pickle above 1 MB to a file, and settings must not be
    # in a file. So the ranges are data.
    def copy(given: Iterator[str]) -> Iterator[str]:
        from airflow_mirror.copy.spark.attempt import carry_out

        handed.accept()
        for text in given:
            yield from carry_out(work, [CopyRange(**values) for values in json.loads(text)])

    # A partition of Spark's for each list, so that it becomes a task of its own.
    tasks = context.parallelize(lists, len(lists))
    # A driver that dies here loses all results and nothing of the copy: where each partition stands is in the target's
    # log. Its tasks end with Spark's, or when the next job takes the lease.
    return [PartitionResult(**json.loads(result)) for result in tasks.mapPartitions(copy).collect()]
