"""Verification on Spark: the input rows are lists of partition pairs, the output rows are verdicts as JSON.

Records are read and compared inside the tasks and never pass through Spark. A task loads the clusters' settings by
reference, where it runs, unless the driver hands them over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_mirror.config import Handover, load
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair, check_level

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RESULT_SCHEMA = "verdict string"


def run_verify(
    spark: SparkSession,
    dealt: Sequence[Sequence[PartitionPair]],
    source: str,
    target: str,
    level: str = "batches",
    handover: Handover | None = None,
    maps: MapSource | None = None,
    isolation: str = "read_committed",
) -> list[PartitionComparison]:
    """Run one Spark task for each list of pairs; return every partition's verdict, by topic and partition.

    Differences are results. Spark retries a task that can't read a cluster, as often as it is configured to.

    :param source: reference to the source's settings, as for :func:`airflow_mirror.config.load`.
    :param target: reference to the target's settings.
    :param handover: the clusters' settings for executors that can't read these references themselves.
    :param maps: whose offset maps lead through mapped pairs.
    :param isolation: the Mirror's isolation, with which the records were copied.
    :raises InvalidField: the level is unknown; raised before a task is started.
    """
    check_level(level)
    lists = [[asdict(pair) for pair in pairs] for pairs in dealt if pairs]
    if not lists:
        return []
    handed = handover or Handover()

    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        handed.accept()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                pairs = [PartitionPair(**values) for values in lists[task]]
                sides = load(source, "source"), load(target, "target")
                verdicts = compare_partitions(pairs, *sides, level, maps=maps, isolation=isolation)
                yield pyarrow.RecordBatch.from_pydict({"verdict": [json.dumps(v.to_dict()) for v in verdicts]})

    # One id per Spark partition, so that each list becomes its own task.
    tasks: Any = spark.range(0, len(lists), 1, len(lists))
    rows = tasks.mapInArrow(compare, RESULT_SCHEMA).collect()
    verdicts = [PartitionComparison.from_dict(json.loads(row.verdict)) for row in rows]
    return sorted(verdicts, key=lambda v: (v.source_topic, v.partition))
