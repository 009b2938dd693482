"""Comparisons of driven clusters whose logs lose their beginning at exact moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.verify import _proven, awaited, begun, longer, reached
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify import partition
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.single import fetch_one
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.script import Fault

RECORDS, BATCH = 60, 5
Compared = Callable[..., PartitionComparison]


@pytest.fixture(params=[IDENTICAL, MAPPED])
def compared(
    request: pytest.FixtureRequest, source: DrivenCluster, target: DrivenCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Compared]:  # fmt: skip
    """A source of 60 records and its copy; call it to compare them, a batch a fetch."""
    (here,), (_,) = source.create("t").logs, target.create("t").logs
    for _ in range(RECORDS // BATCH):
        Writer(here).plain(BATCH)
    mode = request.param
    assert set(errors(copy(source, target, ranges_of(source, "t", mode), merge_below=0)).values()) == {None}
    monkeypatch.setattr(partition, "_FETCH_BYTES", 1)
    maps = MapSource("m", True) if mode == MAPPED else None

    def compare(level: str = "records", *, held: bool = False, proven: int = 0) -> PartitionComparison:
        pair = PartitionPair(
            source_topic="t",
            target_topic="t",
            partition=0,
            begin_offset=0,
            start_offset=proven,
            end_offset=RECORDS,
            mapped=mode == MAPPED,
            held=held,
        )
        [verdict] = compare_partitions([pair], source.config, target.config, level, maps=maps)
        return verdict

    yield compare


def test_target_that_is_longer_than_its_source_is_not_equal(source: DrivenCluster, target: DrivenCluster) -> None:
    """Up to the source's end, where a comparison ends, it is."""
    for topic in ("t", "opened", "mapped"):
        (here,), (_,) = source.create(topic).logs, target.create(topic).logs
        Writer(here).plain(BATCH)
    ranges = [*ranges_of(source, "t"), *ranges_of(source, "opened"), *ranges_of(source, "mapped", MAPPED)]
    assert set(errors(copy(source, target, ranges)).values()) == {None}
    with WireCluster(source.config) as old, WireCluster(target.config) as new:
        assert longer(ranges, old, new, {"t", "opened", "mapped"}) == []
        for topic in ("t", "opened", "mapped"):
            Writer(target.topics[topic].logs[0]).plain(2)
        (line,) = longer(ranges, old, new, {"t", "mapped"})
        assert line.startswith("t-0: the target's log ends at 7, the source's at 5: somebody else has written")
    pair = PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=BATCH)
    assert compare_partitions([pair], source.config, target.config)[0].equal, "what is compared is"


def test_ends_alone_are_compared_up_to_the_sources(source: DrivenCluster, target: DrivenCluster) -> None:
    """Up to where the target ends, it would be equal whatever it lacks."""
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    Writer(here).plain(BATCH)
    assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
    Writer(here).plain(BATCH)
    ranges = ranges_of(source, "t")

    def compared(ends: dict[TopicPartition, int]) -> PartitionComparison:
        pair = PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=ends[here.tp])
        return compare_partitions([pair], source.config, target.config, "offsets")[0]

    with WireCluster(target.config) as cluster:
        assert compared(reached(ranges, cluster, None)).equal, "which proves nothing"
        short = compared(awaited(ranges, cluster, None, patience_s=0.01))
        assert not short.equal and str(short.first_difference).startswith("end at offset 5")

        def tail_writes(_request: object) -> None:
            Writer(there).plain(BATCH)

        target.script.on("ListOffsets", Fault(before=tail_writes), nth=2)
        ends = awaited(ranges, cluster, None)
        assert there.last_stable == ends[here.tp] == 2 * BATCH, "a tail is behind by what was written a moment ago"
        assert compared(ends).equal


@pytest.mark.parametrize("proven", [40, RECORDS])
def test_a_target_that_lost_what_was_proven_is_not_equal(
    source: DrivenCluster, target: DrivenCluster, compared: Compared, proven: int
) -> None:
    assert compared(held=True, proven=proven).equal
    target.topics["t"].logs[0].delete_records(20)
    verdict = compared(held=True, proven=proven)
    assert str(verdict.first_difference).startswith("missing at offset 0")
    assert compared(proven=proven).unseen == 20, "its retention is on: that is told"
    source.topics["t"].logs[0].delete_records(20)
    assert compared(held=True, proven=proven).equal, "the source has none of them either"


def test_a_target_is_compared_that_follows_its_source_meanwhile(
    source: DrivenCluster, target: DrivenCluster, compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The bounds were read with those of 200 partitions; the look for fillers comes when a partition is equal."""
    source.topics["t"].logs[0].delete_records(20)
    monkeypatch.setattr(partition, "_together", lambda *_: {})
    last = sum(1 for _ in range(20, RECORDS, BATCH)) + 1  # of the target's fetches
    target.script.on("Fetch", Fault(before=trim(target, 5)), nth=last)
    assert compared().equal and target.topics["t"].logs[0].log_start == 5


def test_partition_is_awaited_of_which_the_target_has_nothing_yet(source: DrivenCluster, target: DrivenCluster) -> None:
    """Its tail copies the first records at this moment; or nobody does, which the comparison then says."""
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    Writer(here).plain(BATCH)
    ranges = ranges_of(source, "t")
    with WireCluster(target.config) as cluster:
        assert begun(ranges, cluster, None, patience_s=0.01) == {here.tp: 0}
        target.script.on("ListOffsets", Fault(before=lambda _request: Writer(there).plain(2)), nth=2)
        assert begun(ranges, cluster, None) == {here.tp: 2}, "and not the rest of them"


def test_a_target_that_has_followed_a_source_into_a_hole_is_equal(
    source: DrivenCluster, target: DrivenCluster
) -> None:  # fmt: skip
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    Writer(here).plain(BATCH)
    Writer(here).skip(BATCH)
    Writer(here).plain(BATCH)
    assert set(errors(copy(source, target, ranges_of(source, "t", MAPPED))).values()) == {None}
    here.delete_records(BATCH + 2)
    pair = PartitionPair(
        source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=here.end, mapped=True, held=True
    )
    for to, equal in ((BATCH, True), (BATCH + 1, False)):
        there.delete_records(to)
        [verdict] = compare_partitions([pair], source.config, target.config, maps=MapSource("m", True))
        assert verdict.equal is equal, verdict


def trim(cluster: DrivenCluster, to: int) -> Callable[[object], object]:
    return lambda _request: cluster.topics["t"].logs[0].delete_records(to)


@pytest.mark.repeats
@pytest.mark.parametrize("level", ["batches", "records"])
@pytest.mark.parametrize("fetch", [1, 4, 12, *(pytest.param(n, marks=pytest.mark.faults) for n in (2, 3, *range(5, 12)))])
@pytest.mark.parametrize("to", [17, 40, RECORDS])
def test_a_source_trimmed_before_any_fetch_is_compared_behind_it(
    source: DrivenCluster, compared: Compared, level: str, fetch: int, to: int
) -> None:
    source.script.on("Fetch", Fault(before=trim(source, to)), nth=fetch)
    verdict = compared(level)
    assert verdict.equal, verdict
    assert verdict.records + verdict.expired == RECORDS or (verdict.records, verdict.expired) == (RECORDS - to, 0)


@pytest.mark.parametrize("fetch", [1, 2, 7])
def test_target_trimmed_during_comparison_differs_only_if_held(
    target: DrivenCluster, compared: Compared, fetch: int
) -> None:
    target.script.on("Fetch", Fault(before=trim(target, 40)), nth=fetch)
    verdict = compared(held=True)
    assert verdict.first_difference is not None and verdict.first_difference.kind == "missing"
    assert compared(held=False).equal
    again = compared(held=True)
    assert again.first_difference is not None and again.first_difference.offset == 0


@pytest.mark.parametrize("level", ["batches", "records"])
@pytest.mark.parametrize("fetch", [1, 2, 7])
def test_what_the_targets_retention_takes_during_a_comparison_is_told_and_not_proven(
    target: DrivenCluster, compared: Compared, level: str, fetch: int
) -> None:
    """It was equal, as if the source had lost it as well, and a cutover began behind it."""
    target.script.on("Fetch", Fault(before=trim(target, 40)), nth=fetch)
    verdict = compared(level)
    assert verdict.equal and verdict.unseen == 40, verdict
    assert _proven([verdict], {verdict.source: 0}) == [("t", 0, 40, RECORDS)]


@pytest.mark.parametrize("fetch", [1, 2, 7])
def test_a_target_whose_retention_takes_all_during_a_comparison_is_not_equal(
    target: DrivenCluster, compared: Compared, fetch: int
) -> None:
    target.script.on("Fetch", Fault(before=trim(target, RECORDS)), nth=fetch)
    found = compared().first_difference
    assert found is not None and (found.kind, found.offset) == ("missing", 0)


@pytest.mark.parametrize("level", ["batches", "records"])
@pytest.mark.parametrize("fetch", [1, 2, 7])
def test_what_source_and_target_lose_during_a_comparison_nobody_lacks(
    source: DrivenCluster, target: DrivenCluster, compared: Compared, level: str, fetch: int
) -> None:
    """The source's reader may be ahead of what its retention takes."""

    def follow(request: object) -> None:
        trim(source, 40)(request)
        trim(target, 40)(request)

    target.script.on("Fetch", Fault(before=follow), nth=fetch)
    verdict = compared(level)
    assert (verdict.equal, verdict.unseen) == (True, 0), verdict
    assert _proven([verdict], {verdict.source: 0}) == [("t", 0, 0, RECORDS)]


@pytest.mark.parametrize("level", ["batches", "records"])
@pytest.mark.parametrize("fetch", [1, 2, 7])
def test_a_held_target_that_follows_its_source_between_their_fetches_is_equal(
    source: DrivenCluster, target: DrivenCluster, compared: Compared, level: str, fetch: int
) -> None:
    """The source's records were read before it lost them, those of 200 partitions perhaps hours before."""

    def follow(request: object) -> None:
        trim(source, 40)(request)
        trim(target, 40)(request)

    target.script.on("Fetch", Fault(before=follow), nth=fetch)
    verdict = compared(level, held=True)
    assert verdict.equal and verdict.records >= RECORDS - 40, verdict


def test_a_held_target_that_begins_behind_its_source_has_lost_what_lies_between(
    source: DrivenCluster, target: DrivenCluster, compared: Compared
) -> None:
    def lose(request: object) -> None:
        trim(source, 20)(request)
        trim(target, 40)(request)

    target.script.on("Fetch", Fault(before=lose), nth=2)
    found = compared(held=True).first_difference
    assert found is not None and (found.kind, found.offset) == ("missing", 20)


def test_continually_trimmed_source_is_compared_to_its_end(source: DrivenCluster, compared: Compared) -> None:
    for fetch in range(1, 30):
        source.script.on("Fetch", Fault(before=trim(source, min(RECORDS, fetch * 7))), nth=fetch)
    verdict = compared()
    assert verdict.equal and verdict.expired > 0


def test_fillers_that_came_back_are_a_difference_with_a_remedy(source: DrivenCluster, target: DrivenCluster) -> None:
    """A broker that dies forgets which records were deleted a moment ago; consumers would read them."""
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    here.begin_at(50)
    Writer(here).plain(5)
    assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
    pair = PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=50, end_offset=55)
    done: list[tuple[int, int]] = []

    def note(_: PartitionComparison, number: int, of: int) -> None:
        done.append((number, of))

    for level in ("offsets", "batches", "records"):
        there.log_start = 50
        done.clear()
        [verdict] = compare_partitions([pair], source.config, target.config, level, progress=note)
        assert verdict.equal and done == [(1, 1)]
        there.log_start = 0
        [verdict] = compare_partitions([pair], source.config, target.config, level)
        assert verdict.first_difference is not None and verdict.first_difference.kind == "extra"
        assert "run the copy again" in str(verdict.first_difference.target)


def test_what_is_left_of_many_partitions_is_fetched_together(source: DrivenCluster, target: DrivenCluster) -> None:
    """Behind a fence there are a few records of each, and one question for each of 2,000 takes longer than the rest."""
    for log in source.create("t", 30).logs:
        Writer(log).plain(4)
        Writer(log).plain(3)
    target.create("t", 30)
    assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
    pairs = [
        PartitionPair(source_topic="t", target_topic="t", partition=p, start_offset=4, end_offset=7) for p in range(30)
    ]
    asked = [len(cluster.asked("Fetch")) for cluster in (source, target)]
    found = compare_partitions(pairs, source.config, target.config, "records")
    assert [(one.equal, one.records) for one in found] == [(True, 3)] * 30
    # Of the target also the log's beginning, where fillers might be.
    assert [len(cluster.asked("Fetch")) for cluster in (source, target)] == [asked[0] + 1, asked[1] + 2]
    asked = [len(cluster.asked("Fetch")) for cluster in (source, target)]
    with target.changing():
        target.topics["t"].logs[9].truncate(6)
        Writer(target.topics["t"].logs[9]).plain(1, size=3)
    target.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    found = compare_partitions(pairs, source.config, target.config, "records")
    assert [p for p, one in enumerate(found) if not one.equal] == [9], "what is not answered is asked for alone"
    assert len(target.asked("Fetch")) == asked[1] + 2 + 30


def test_mapped_partition_is_not_compared_without_its_map(source: DrivenCluster, target: DrivenCluster) -> None:
    for cluster in (source, target):
        cluster.create("t")
    pair = PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=0, mapped=True)
    with pytest.raises(InvalidField, match="the offsets of t-0 are mapped"):
        compare_partitions([pair], source.config, target.config)


def test_empty_answer_below_the_end_does_not_end_a_comparison(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker sends one to a client that is over its quota; what comes after it would not be compared."""
    asked: list[object] = []

    def throttled(*args: Any, **options: Any) -> FetchedPartition:
        asked.append(args)
        answer = fetch_one(*args, **options)
        return answer._replace(records=memoryview(b"")) if len(asked) % 2 else answer

    monkeypatch.setattr(partition, "fetch_one", throttled)
    for level in ("batches", "records"):
        verdict = compared(level)
        assert verdict.equal and verdict.records == RECORDS


@pytest.mark.parametrize("level", ["batches", "records"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_others_wrote_to_a_shared_topic_is_no_difference(
    source: DrivenCluster, target: DrivenCluster, level: str, is_damaged: bool
) -> None:
    """But what is this mirror's still has to be all of its records."""
    (here,), (there,) = source.create("t").logs, target.create("t").logs
    ours, theirs = Writer(here), Writer(there)
    for _ in range(3):
        ours.plain(4)
        theirs.plain(3, size=33)
        done = copy(source, target, ranges_of(source, "t", MAPPED), delivery="transactional")
        assert set(errors(done).values()) == {None}
    theirs.plain(2)
    if is_damaged:
        with source.lock:
            here.truncate(4)
            Writer(here).plain(8, size=21)
    pair = PartitionPair(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=12, mapped=True)
    verdicts = [
        compare_partitions([pair], source.config, target.config, level, maps=MapSource("m", True, shared))[0]
        for shared in (True, False)
    ]
    assert [one.equal for one in verdicts] == [not is_damaged, False]
    assert verdicts[0].records == (0 if is_damaged else 12)
