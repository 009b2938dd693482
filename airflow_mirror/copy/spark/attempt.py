"""What a task of Spark's does: its first attempt copies, and any other one writes nothing.

Spark runs a task again when it has lost the executor, which may go on all the same: cut off from the driver, and not
from Kafka. It holds the same lease, and brokers forget a producer of old records, so sequences don't stop the second
writer of a partition. No setting forbids a second attempt: executors that are preempted or decommissioned don't count in
``spark.task.maxFailures``, and a speculative copy is one as well. So the task itself asks which one it is.

PySpark does not tell the attempt of a stage. Spark repeats a stage when blocks of a shuffle were lost, or for a barrier,
and these jobs have neither; the driver looks all the same (`jobs.driver.spark_crew`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import without_copy
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.errors import MirrorError, TaskUnheard


def carry_out(work: CopyWork, ranges: Sequence[CopyRange], duration_s: float | None = None) -> list[str]:
    """Copy ranges as one task (:func:`.copy_ranges`); return each partition's result as JSON.

    What a task can't do is a result as well: raised, it would have Spark try again, and end the other tasks.
    """
    try:
        # Before the clusters are opened, and so before an opening takes anything over: the first attempt may be
        # copying.
        _require_first(ranges)
        results = copy_ranges(work, ranges, duration_s)
    except MirrorError as e:
        results = without_copy(ranges, e)
    return [json.dumps(result.to_dict()) for result in results]


def _require_first(ranges: Sequence[CopyRange]) -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    # Without a context this is a plain process, which its driver never starts twice under one lease.
    if context is not None and (attempt := context.attemptNumber()) > 0:
        why = f"Spark runs its task again (attempt {attempt}), and says why in a line 'Lost task'"
        raise TaskUnheard([str(one.source) for one in ranges], why)
