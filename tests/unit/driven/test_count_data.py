"""How many records lie in a stretch of a log: what tells a leak behind a fence from a marker."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.verify.partition import count_data
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer

TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("start", "end", "written", "readable"),
    [(4, 5, 1, 1), (0, 5, 5, 5), (1, 4, 3, 3), (5, 7, 2, 0), (7, 8, 0, 0), (6, 9, 2, 1), (8, 9, 1, 1)],
)
def test_one_record_is_told_from_markers_wherever_the_stretch_begins(
    source: DrivenCluster, start: int, end: int, written: int, readable: int
) -> None:
    """[0, 5) records, [5, 7) aborted ones, their marker at 7, a record at 8."""
    writer = Writer(source.create("t").logs[0])
    writer.plain(5)
    writer.in_transaction(9, 2)
    writer.end(9, commit=False)
    writer.plain(1)
    with WireCluster(source.config) as log:
        assert count_data(log, TP, start, end) == written
        assert count_data(log, TP, start, end, committed=True) == readable


def test_what_retention_takes_meanwhile_is_not_counted(source: DrivenCluster) -> None:
    log = source.create("t").logs[0]
    Writer(log).plain(5)
    Writer(log).plain(5)
    log.delete_records(7)
    with WireCluster(source.config) as wire:
        assert count_data(wire, TP, 2, 10) == 3
