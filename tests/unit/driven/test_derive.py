"""The runs of records from which an offset map is derived: exact where batches have holes, or are dealt out by key."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.batches.by_key import key_filter
from airflow_mirror.copy.offsets import derive
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import ForeignData, NoOffsetMap
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, row
from tests.driven.copying import copy, errors, lose_maps, lose_pieces, map_of, ranges_of
from tests.driven.records import encode

TP = TopicPartition("t", 0)
ONE = CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0)


def hostile(cluster: DrivenCluster) -> None:
    """Lay ten records: 0 to 2, 4 and 6 of a compacted batch [3, 8), an aborted one, a committed one, and 11 to 13."""
    writer = Writer(cluster.create("t").logs[0])
    writer.plain(3)
    writer.holed([1, 3], span=5)
    writer.in_transaction(5, 1)
    writer.end(5, commit=False)  # 9
    writer.in_transaction(5, 1)
    writer.end(5, commit=True)  # 11
    writer.plain(3)


@pytest.mark.parametrize(
    ("isolation", "runs"),
    [
        (READ_COMMITTED, [(0, 3), (4, 1), (6, 1), (10, 1), (12, 3)]),
        (READ_UNCOMMITTED, [(0, 3), (4, 1), (6, 1), (8, 1), (10, 1), (12, 3)]),
    ],
)
def test_runs_leave_out_holes_markers_and_aborted_records(
    source: DrivenCluster, isolation: int, runs: list[tuple[int, int]]
) -> None:
    hostile(source)
    with WireCluster(source.config) as cluster:
        assert list(derive.source_runs(cluster, ONE, 0, isolation)) == runs
        assert list(derive.source_runs(cluster, ONE, 1, isolation, end=5)) == [(1, 2), (4, 1)]


@pytest.mark.parametrize(("start", "next_one"), [(3, 4), (5, 6), (7, 10), (14, 14), (15, 15), (99, 99)])
def test_next_mirrorable_record_lies_behind_holes(source: DrivenCluster, start: int, next_one: int) -> None:
    hostile(source)
    with WireCluster(source.config) as cluster:
        assert derive.next_mirrorable(cluster, ONE, start, READ_COMMITTED) == next_one


def test_log_that_ends_with_holes_is_complete_to_its_end(source: DrivenCluster) -> None:
    writer = Writer(source.create("t").logs[0])
    writer.plain(3)
    writer.holed([], span=4)
    with WireCluster(source.config) as cluster:
        assert derive.next_mirrorable(cluster, ONE, 3, READ_COMMITTED) == 7


def test_runs_of_a_range_by_key_hold_its_keys(source: DrivenCluster) -> None:
    Writer(source.create("t").logs[0]).plain(40)
    found = []
    with WireCluster(source.config) as cluster:
        for number in range(3):
            one = CopyRange(
                source_topic="t", target_topic="t", partition=0, start_offset=0, target_partition=number, key_partitions=3
            )
            takes = key_filter(0, number, 3)
            runs = list(derive.source_runs(cluster, one, 2, READ_COMMITTED, end=39))
            assert runs == [(offset, 1) for offset in range(2, 39) if takes(row(offset).key)]
            found += runs
    assert sorted(found) == [(offset, 1) for offset in range(2, 39)]


@pytest.mark.repeats
def test_whole_map_is_completed_from_both_logs_and_nothing_written(source: DrivenCluster, target: DrivenCluster) -> None:
    """The next opening stores what was missing."""
    hostile(source)
    target.create("t")
    one = ranges_of(source, "t", MAPPED)[0]
    assert errors(copy(source, target, [one]))[TP] is None
    whole = map_of(target, one)
    assert whole is not None
    lose_pieces(target)
    written = len(target.asked("Produce"))
    with WireCluster(source.config) as here, WireCluster(target.config) as there:
        assert derive.complete(here, there, one, "m", READ_COMMITTED, MapStore("m")).whole == whole
        assert len(target.asked("Produce")) == written
        assert errors(copy(source, target, [one]))[TP] is None
        assert map_of(target, one) == whole
        with pytest.raises(NoOffsetMap):
            derive.complete(here, there, one, "m", READ_COMMITTED, MapStore("of another name"))
        lose_maps(target)
        with pytest.raises(NoOffsetMap):
            derive.complete(here, there, one, "m", READ_COMMITTED, MapStore("m"))


@pytest.mark.parametrize("alike", [False, True])
def test_cleaner_on_the_target_spoils_what_is_not_stored(
    source: DrivenCluster, target: DrivenCluster, *, alike: bool
) -> None:
    """Why a mapped topic is not compacted on the target while it is mirrored (ADR 22).

    Counted on, the last pair is a wrong one. That is noticed, and the copy stops for good; unless the records are alike.
    Then the copy goes on too early.
    """
    log = source.create("t").logs[0]
    for number in range(5):
        log.lay(encode([row(7 if alike else number)._replace(offset=number, key=b"key")], leader_epoch=0))
    there = target.create("t").logs[0]
    one = ranges_of(source, "t", MAPPED)[0]
    assert errors(copy(source, target, [one], merge_below=0))[TP] is None
    lose_pieces(target)
    del there.batches[1]  # there is a later record of its key
    error = errors(copy(source, target, [one]))[TP]
    assert (error is None, there.end) == ((True, 6) if alike else (False, 5))
    assert alike or isinstance(error, ForeignData)
