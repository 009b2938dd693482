"""What Spark is given to run: small whatever the number of partitions, since a large one is written to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from airflow_mirror.config import Handover
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.spark import attempt
from airflow_mirror.copy.spark.bulk import run_bulk
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.verify import spark
from airflow_mirror.verify.result import PartitionPair
from tests.unit.jobs.sharing import LEASE

_MOST = 1 << 20  # bytes of a function's pickle: SparkContext's limit (pyspark.core.rdd._prepare_for_python_RDD)
_MANY = 30_000


class Context:
    """A SparkContext that runs its function in this process. ``pickled``: bytes of that."""

    pickled = 0

    def parallelize(self, given: list[str], count: int) -> Context:
        assert len(given) == count
        self._given = given
        return self

    def mapPartitions(self, do: Callable[[Iterator[str]], Iterator[str]]) -> Context:  # noqa: N802 - Spark's name
        from pyspark.serializers import CloudPickleSerializer

        self.pickled, self._do = len(CloudPickleSerializer().dumps(do)), do
        return self

    def collect(self) -> list[str]:
        return [line for one in self._given for line in self._do(iter([one]))]


@pytest.fixture
def context() -> Context:
    return Context()


def test_a_comparison_of_very_many_partitions_is_data(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[PartitionPair] = []
    monkeypatch.setattr(spark, "load", lambda *_: None)
    monkeypatch.setattr(spark, "compare_partitions", lambda pairs, *_, **__: compared.extend(pairs) or [])
    pairs = [
        PartitionPair(
            source_topic=f"topic-{n}", target_topic=f"dc1.topic-{n}", partition=0, start_offset=n, end_offset=9 * n,
            cleaned_on=("source",),
        )
        for n in range(_MANY)
    ]  # fmt: skip
    assert spark.run_verify(cast("Any", context), [pairs[::2], [], pairs[1::2]], "a", "b", handover=Handover()) == []
    assert compared == pairs[::2] + pairs[1::2], "as they were given"
    assert context.pickled < _MOST


def test_a_copy_of_very_many_partitions_is_data(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[CopyRange] = []
    monkeypatch.setattr(attempt, "carry_out", lambda _, ranges: copied.extend(ranges) or iter(()))
    ids = [f"{n:022}" for n in range(_MANY)]
    ranges = [
        CopyRange(source_topic=one, target_topic=f"dc1.{one}", partition=0, start_offset=7, source_topic_id=one)
        for one in ids
    ]  # fmt: skip
    work = CopyWork(source="a", target="b", options=CopyOptions(mirror="m"), lease=LEASE)
    assert run_bulk(cast("Any", context), [ranges], work, Handover()) == []
    assert copied == ranges and context.pickled < _MOST
