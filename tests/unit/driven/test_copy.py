"""Copies between driven clusters when nothing goes wrong: hostile logs arrive as they are."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.loop import loop, source_side
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.copy.results import PartitionResult, summarise
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, hostile
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.script import WAIT_S, Fault, Request

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


def test_backlogs_do_not_keep_a_light_partition_waiting(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them fill a response, and a fast target has room for the next one each time."""
    monkeypatch.setattr(loop, "_OPENERS", 1)  # which opens them in order
    for limit, size in (("_PARTITION_FETCH_BYTES", 200_000), ("_FETCH_BYTES", 400_000), ("_LEAST_FETCH_BYTES", 400_000)):
        monkeypatch.setattr(source_side, limit, size)
    *heavy, light = source.create("t", 7).logs
    target.create("t", 7)
    for log in heavy * 12:
        Writer(log).plain(1, size=99_000)
    Writer(light).plain(1)

    def asked(request: Request) -> dict[int, int]:
        return {p.partition: p.fetch_offset for topic in request.message.topics for p in topic.partitions}

    def all_is_written(request: Request) -> None:
        with target.lock:
            arrived = lambda: all(logs(target)[p].end >= at for p, at in asked(request).items())  # noqa: E731
            assert target.news.wait_for(arrived, WAIT_S)

    source.script.on("Fetch", Fault(before=all_is_written), times=None)
    assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
    assert sum(asked(request).get(light.tp.partition) == 0 for request in source.asked("Fetch")) <= 4
    assert [log.rows() for log in logs(target)] == [log.rows() for log in logs(source)]


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
