"""Copies between driven clusters when nothing goes wrong: hostile logs arrive as they are."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.copy.results import PartitionResult, summarise
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, hostile
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.log import PartitionLog

pytestmark = pytest.mark.usefixtures("either_heart")

READ_UNCOMMITTED = 0


def logs(cluster: DrivenCluster, topic: str = "t") -> list[PartitionLog]:
    return cluster.topics[topic].logs


def test_a_hostile_log_arrives_with_its_offsets(source: DrivenCluster, target: DrivenCluster) -> None:
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    hostile(here)
    assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
    assert there.rows() == here.rows()
    assert (there.log_start, there.last_stable, there.end) == (here.log_start, here.end, here.end)


def test_a_hostile_log_arrives_with_mapped_offsets(source: DrivenCluster, target: DrivenCluster) -> None:
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    hostile(here)
    copied = copy(source, target, ranges_of(source, "t", MAPPED))
    assert set(errors(copied).values()) == {None}
    assert [r[1:] for r in there.rows()] == [r[1:] for r in here.rows()]


def test_a_hostile_log_arrives_in_transactions(source: DrivenCluster, target: DrivenCluster) -> None:
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    hostile(here)
    copied = copy(
        source, target, ranges_of(source, "t", MAPPED), delivery="transactional",
        transaction_bytes=300, merge_below=0,
    )  # fmt: skip
    assert set(errors(copied).values()) == {None}
    assert [r[1:] for r in there.rows()] == [r[1:] for r in here.rows()]
    assert len(target.asked("EndTxn")) > 2


def test_several_partitions_of_several_brokers_are_copied_at_once() -> None:
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target", brokers=3) as target:
        source.create("t", 4), target.create("t", 4)
        for log in logs(source):
            Writer(log).plain(10 + log.tp.partition)
        assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
        assert [log.rows() for log in logs(target)] == [log.rows() for log in logs(source)]
        assert {r.broker for r in target.asked("Produce")} == {1, 2, 3}


def test_batches_of_a_few_kilobytes_are_merged_by_the_compiled_heart_alone(
    source: DrivenCluster, target: DrivenCluster, either_heart: str
) -> None:
    """In Python it would take longer than to send each of them; and the summary says which heart it was."""
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    for _ in range(30):
        Writer(here).plain(10, size=270)
    (copied,) = copy(source, target, ranges_of(source, "t"))
    assert there.rows() == here.rows()
    assert (copied.counters.merged, copied.counters.passed) == ((30, 0) if either_heart == "compiled" else (0, 30))
    assert summarise([PartitionResult.of(copied, 1.0)], 1.0)["heart"] == either_heart
