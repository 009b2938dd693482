"""Records that only one side of a compacted topic has: what decides may lie before or behind what is compared."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import TIME_MS
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.records import Row

# "b" is deleted at 6, and written again at 10; "c" is deleted for good at 7.
HISTORY = [
    Row(at, TIME_MS + at, key, value)
    for at, (key, value) in enumerate(
        [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"d", b"1"), (b"e", b"1"), (b"b", None), (b"c", None),
         (b"a", b"3"), (b"e", b"2"), (b"b", b"2"), (b"d", b"2")]
    )
]  # fmt: skip
END = len(HISTORY)


def lay(log: PartitionLog, without: Collection[int] = ()) -> None:
    """Write what a cleaner has left of the history, in batches of two."""
    for base in range(0, END, 2):
        rows = [row for row in HISTORY[base : base + 2] if row.offset not in without]
        log.lay(records.encode(rows, base_offset=base, last_offset=base + 1))


def compared(
    source: DrivenCluster, target: DrivenCluster, start: int = 0, end: int = END, mapped: bool = False
) -> PartitionComparison:
    pair = PartitionPair(
        source_topic="t", target_topic="t", partition=0, start_offset=start, end_offset=end, mapped=mapped,
        cleaned_on=("source", "target"),
    )  # fmt: skip
    maps = MapSource("m", True) if mapped else None
    [verdict] = compare_partitions([pair], source.config, target.config, "batches", maps=maps)
    return verdict


def both(source: DrivenCluster, target: DrivenCluster, here: Collection[int], there: Collection[int]) -> None:
    """Two logs, without these offsets."""
    for cluster, without in ((source, here), (target, there)):
        lay(cluster.create("t").logs[0], without)


@pytest.mark.parametrize("lacks", ["source", "target"])
def test_later_record_behind_the_compared_range_excuses_the_gap(
    source: DrivenCluster, target: DrivenCluster, lacks: str
) -> None:
    gaps = {0, 4}  # "a" comes again at 3 and 8, "d" at 11
    both(source, target, gaps if lacks == "source" else (), gaps if lacks == "target" else ())
    verdict = compared(source, target, end=6)
    assert verdict.equal and verdict.cleaned == 2


def test_last_value_that_the_target_lacks_is_lost(source: DrivenCluster, target: DrivenCluster) -> None:
    both(source, target, (), {8})
    found = compared(source, target).first_difference
    assert found and (found.offset, found.kind) == (8, "missing")


def test_tombstone_that_expired_with_its_key_on_one_side_is_no_difference(
    source: DrivenCluster, target: DrivenCluster
) -> None:
    both(source, target, {2, 7}, ())
    assert compared(source, target).equal


@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("lacks", ["source", "target"])
def test_side_that_lost_a_tombstone_and_still_has_its_key_differs(
    source: DrivenCluster, target: DrivenCluster, lacks: str, start: int
) -> None:
    """Its readers see a deleted key. The value may lie before what is compared: it was proven equal at another time."""
    gaps = {7}
    both(source, target, gaps if lacks == "source" else (), gaps if lacks == "target" else ())
    found = compared(source, target, start=start).first_difference
    assert found and found.offset == 7 and found.kind == ("extra" if lacks == "source" else "missing")
    assert "still has its key at offset 2" in str(found.source if lacks == "target" else found.target)


def test_mapped_copy_of_a_source_that_was_cleaned_since_is_equal(source: DrivenCluster, target: DrivenCluster) -> None:
    """Its tombstones too; one whose key is still there is found by the map."""
    here = source.create("t").logs[0]
    target.create("t")
    lay(here)
    assert set(errors(copy(source, target, ranges_of(source, "t", MAPPED), merge_below=0)).values()) == {None}
    cleaned = source.create("again").logs[0]
    lay(cleaned, {0, 2, 3, 7})
    here.batches[:] = cleaned.batches
    assert compared(source, target, mapped=True).equal
    lay(again := source.create("worse").logs[0], {0, 3, 7})
    here.batches[:] = again.batches
    found = compared(source, target, mapped=True).first_difference
    assert found and found.kind == "extra"
