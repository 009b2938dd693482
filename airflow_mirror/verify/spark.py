"""The comparison on Spark: each task compares some partitions and returns their verdicts; records never enter the JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_mirror.kafka.config import load
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def run_verify(
    spark: SparkSession, dealt: Sequence[Sequence[PartitionPair]], source: str, target: str, level: str
) -> list[PartitionComparison]:
    """Run one Spark task for each list of pairs and return every partition's verdict.

    :param source: reference to the settings (`kafka.config.load`), read in the task.
    :param target: the same of the target.
    """
    lists = [[asdict(pair) for pair in pairs] for pairs in dealt]

    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        settings = load(source, "source"), load(target, "target")
        for batch in batches:
            for task in batch.column(0).to_pylist():
                pairs = [PartitionPair(**values) for values in lists[task]]
                verdicts = compare_partitions(pairs, *settings, level)
                yield pyarrow.RecordBatch.from_pydict({"verdict": [json.dumps(v.to_dict()) for v in verdicts]})

    # One id a Spark partition: each list becomes a task of its own.
    tasks: Any = spark.range(0, len(lists), 1, len(lists))
    rows = tasks.mapInArrow(compare, "verdict string").collect()
    return [PartitionComparison.from_dict(json.loads(row.verdict)) for row in rows]
