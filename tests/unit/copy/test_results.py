"""What a job says at its end of the partitions that it was to copy."""

from __future__ import annotations

from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult, add, summarise, unheard


def a_range(partition: int) -> CopyRange:
    return CopyRange(source_topic="orders", target_topic="orders", partition=partition, start_offset=0)


def test_a_partition_that_was_not_opened_has_no_end_to_tell() -> None:
    """Its target may hold millions of records, and nobody has looked."""
    opened = PartitionCopy(a_range(0), False, 1, position=700, opened=True)
    not_opened = PartitionCopy(a_range(1), False, 1)
    results = [PartitionResult.of(one, 1.0) for one in (opened, not_opened)] + unheard([a_range(2)], "it is gone")
    summary = summarise(results, 1.0)
    assert (summary["end_offsets"], summary["partitions"]) == ({"orders-0": 700}, 3)


def test_what_one_turn_has_opened_is_known_after_one_that_has_not() -> None:
    known = PartitionResult.of(PartitionCopy(a_range(0), False, 1, position=700, opened=True), 1.0)
    (lost,) = unheard([a_range(0)], "it is gone")
    both = add({lost.key: lost}, known), add({known.key: known}, lost)
    assert [summarise([one], 1.0)["end_offsets"] for one in both] == [{"orders-0": 700}] * 2
