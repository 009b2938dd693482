"""A source topic is created again while it is copied: no record of the new one is taken for one of the old."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, errors, id_of, ranges_of
from tests.driven.script import Fault

TP = TopicPartition("t", 0)
MODES = pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])


@pytest.fixture
def source(source: DrivenCluster) -> DrivenCluster:
    Writer(source.create("t").logs[0]).plain(5)
    return source


@pytest.fixture
def target(target: DrivenCluster) -> DrivenCluster:
    target.create("t")
    return target


def again(source: DrivenCluster, records: int) -> None:
    """Create the topic again, with so many records at once: they are there before anybody could have asked."""
    with source.changing():
        Writer(source.create("t").logs[0]).plain(records, size=9)


def versions(source: DrivenCluster) -> set[int]:
    return {r.version for r in source.asked("Fetch")}


@MODES
@pytest.mark.parametrize("records", [3, 5, 40])
def test_records_of_a_topic_that_was_created_again_are_not_taken_for_the_old_ones(
    source: DrivenCluster, target: DrivenCluster, mode: str, records: int
) -> None:
    """The copy follows, at offset 5. By name, a broker would go on with the new topic's record 5."""
    with Following(source, target, ranges_of(source, "t", mode)) as following:
        (p,) = following.loop.partitions
        following.until(lambda: p.position == 5, "it is copied")
        was = id_of(source, "t")
        again(source, records)
        following.until(lambda: p.error is not None, "it stops")
    assert target.log(TP).end == 5 and was in str(p.error) and id_of(source, "t") in str(p.error)
    assert "deleted and created again" in str(p.error)


@pytest.mark.parametrize(("newest", "spoken"), [(11, 11), (12, 11), (13, 13)])
@MODES
def test_topics_are_named_by_ids_where_a_broker_knows_those(
    source: DrivenCluster, target: DrivenCluster, mode: str, newest: int, spoken: int
) -> None:
    source.brokers[1].served[1] = (4, newest)
    assert errors(copy(source, target, ranges_of(source, "t", mode)))[TP] is None
    assert spoken in versions(source) and max(versions(source)) == spoken
    assert [r.value for r in target.log(TP).rows()] == [r.value for r in source.log(TP).rows()]


def test_a_topic_whose_id_nobody_knows_is_named_with_all_others_of_its_request(
    source: DrivenCluster, target: DrivenCluster
) -> None:
    for name in ("u", "v"):
        Writer(source.create(name).logs[0]).plain(3)
        target.create(name)
    unknown = [replace(one, source_topic_id=None) for one in ranges_of(source, "u")]
    assert errors(copy(source, target, [*ranges_of(source, "t"), *unknown, *ranges_of(source, "v")])) == {
        TopicPartition(name, 0): None for name in "tuv"
    }


@MODES
def test_a_leader_that_has_not_heard_of_the_topic_yet_is_asked_again(
    source: DrivenCluster, target: DrivenCluster, mode: str
) -> None:
    """It says the same as of a topic that is gone."""
    rule = source.script.on(
        "Fetch", Fault.refused(ErrorCode.UNKNOWN_TOPIC_ID, [TP]), times=2, when=lambda r: r.version == 13
    )
    assert errors(copy(source, target, ranges_of(source, "t", mode)))[TP] is None
    assert len(rule.hits) == 2 and target.log(TP).end == 5


def test_a_topic_at_rest_is_known_by_its_id_too(source: DrivenCluster, target: DrivenCluster) -> None:
    """In a session nothing is named for as long as nothing comes."""
    skipped = 0.0

    def ranges() -> list[CopyRange]:
        return [one for name in sorted(source.topics) for one in ranges_of(source, name)]

    many = source.create("many", 150)
    target.create("many", 150)
    assert len(many.logs) == 150
    with Following(source, target, ranges(), clock=lambda: time.monotonic() + skipped) as following:
        by_tp = {p.range.source: p for p in following.loop.partitions}
        p = by_tp[TP]
        following.until(lambda: p.position == 5 and all(one.fetching or one.rests for one in by_tp.values()), "followed")
        skipped = 11.0

        def rests() -> bool:
            lane = following.loop._in._sessions.get(p)
            return p.rests and lane is not None and lane.session.is_kept and lane.by_id

        following.until(rests, "it rests")
        again(source, 40)
        following.until(lambda: p.error is not None, "it stops")
    assert target.log(TP).end == 5 and "deleted and created again" in str(p.error)
    assert [one.error for tp, one in by_tp.items() if tp != TP] == [None] * 150
