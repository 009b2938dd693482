"""Verification on Spark: each task has a list of partition pairs, and returns their verdicts as JSON.

Records are read and compared inside the tasks and never pass through Spark. A task loads the clusters' settings by
reference, where it runs, unless the driver hands them over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_mirror.config import Handover, load
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair, check_level

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_verify(
    context: SparkContext,
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
    lists = [json.dumps([asdict(pair) for pair in pairs]) for pairs in dealt if pairs]
    if not lists:
        return []
    handed = handover or Handover()

    # What it has of its own stays small: Spark writes a function's pickle above 1 MB to a file, and settings must not be
    # in a file. So the pairs are data.
    def compare(given: Iterator[str]) -> Iterator[str]:
        handed.accept()
        for text in given:
            pairs = [PartitionPair(**{**one, "cleaned_on": tuple(one["cleaned_on"])}) for one in json.loads(text)]
            sides = load(source, "source"), load(target, "target")
            for verdict in compare_partitions(pairs, *sides, level, maps=maps, isolation=isolation):
                yield json.dumps(verdict.to_dict())

    # A partition of Spark's for each list, so that it becomes a task of its own.
    tasks = context.parallelize(lists, len(lists))
    verdicts = [PartitionComparison.from_dict(json.loads(line)) for line in tasks.mapPartitions(compare).collect()]
    return sorted(verdicts, key=lambda v: (v.source_topic, v.partition))
