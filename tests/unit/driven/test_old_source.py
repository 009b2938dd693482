"""A source of Kafka 0.11: everything is asked in versions that it serves, and answered as it would."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.opening import identical
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.errors import SourceTruncated
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, hostile
from tests.driven.copying import Following, copy, errors, ranges_of
from tests.driven.groups import Committed
from tests.driven.script import Fault

TP = TopicPartition("t", 0)


@pytest.fixture
def old() -> Iterator[DrivenCluster]:
    with DrivenCluster("source", version="0.11.0.3") as cluster:
        cluster.create("t")
        yield cluster


def test_copy_of_an_old_source_is_equal(old: DrivenCluster, target: DrivenCluster) -> None:
    (here,), (there,) = old.topics["t"].logs, target.create("t").logs
    hostile(here)
    Writer(here).in_transaction(7, 3, epoch=1)  # stays open: the copy ends before it
    assert set(errors(copy(old, target, ranges_of(old, "t"))).values()) == {None}
    assert there.rows() == here.rows()
    assert (there.log_start, there.end) == (here.log_start, here.last_stable)
    asked = {request.api: request.version for request in old.requests}
    assert asked == {"ApiVersions": 0, "Metadata": 4, "ListOffsets": 2, "Fetch": 5}


@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
@pytest.mark.parametrize("epochs", [False, True])
def test_end_that_a_new_leader_tells_too_low_is_asked_for_again(
    old: DrivenCluster, target: DrivenCluster, epochs: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 2.2 it does not say that it waits for its followers (KIP-207); 2.1 tells its epoch by then."""
    if epochs:
        since_2_1 = {MetadataRequest.API_KEY: (0, 7), ListOffsetsRequest.API_KEY: (1, 4)}
        old.brokers[1].served.update(since_2_1)
    (here,), (there,) = old.topics["t"].logs, target.create("t").logs
    Writer(here).plain(5)
    assert set(errors(copy(old, target, ranges_of(old, "t", mode))).values()) == {None}
    Writer(here).plain(5)
    ranges, here.replicated_to = ranges_of(old, "t", mode), 3
    low = [n for n in range(4)]

    def followers_ask(_request: object) -> None:
        low.pop()
        here.replicated_to = 3 if low else None

    asked = old.script.on("ListOffsets", Fault(before=followers_ask), times=len(low))
    assert set(errors(copy(old, target, ranges)).values()) == {None}
    assert [row.value for row in there.rows()] == [row.value for row in here.rows()] and len(asked.hits) == 4
    monkeypatch.setattr(identical, "_ELECTED_S", 0.3)
    here.replicated_to = 3
    (error,) = errors(copy(old, target, ranges)).values()
    assert isinstance(error, SourceTruncated) and "the source's log ends at 3" in str(error)


@pytest.mark.parametrize("lost", ["ApiVersions", "Metadata", "FindCoordinator", "OffsetFetch"])
def test_group_offsets_of_old_source_are_read_despite_lost_answer(old: DrivenCluster, lost: str) -> None:
    old.groups.committed["g"] = {TP: Committed(41, "note", -1)}
    rule = old.script.on(lost, Fault.lost_answer())
    with ClusterAdmin(old.config) as admin:
        assert admin.groups_offsets(["g", "never seen"]) == {"g": {TP: GroupPosition(41, "note")}, "never seen": {}}
    assert rule.hits
    assert {request.version for request in old.asked("FindCoordinator")} == {1}
    assert {request.version for request in old.asked("OffsetFetch")} == {3}


def asked_bytes(cluster: DrivenCluster) -> set[int]:
    """Return how much fetches asked for, but for those of an opening."""
    return {request.message.max_bytes for request in cluster.asked("Fetch") if request.message.max_wait_ms > 0}


@pytest.mark.parametrize("version", ["0.11.0.3", "2.8.2"])
def test_source_that_holds_an_answer_back_is_asked_for_less(
    version: str, target: DrivenCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Below a quota brokers before 2.0 do (KIP-219), for the longer the more is in it. Others are frozen."""
    with DrivenCluster("source", version=version) as source:
        (here,), (there,) = source.create("t").logs, target.create("t").logs
        Writer(here).plain(5)
        old = version.startswith("0")
        large = source.script.on(
            "Fetch", Fault(freeze=True), times=None if old else 2,
            when=lambda request: bool(request.message.max_bytes > 2 << 20),
        )  # fmt: skip
        caplog.set_level("INFO")
        copies = copy(
            source, target, ranges_of(source, "t"), should_stop=lambda: len(large.hits) > 6,
            clock=lambda: time.monotonic() * 100, give_up_after_s=float("inf"),
        )  # fmt: skip
        assert set(errors(copies).values()) == {None} and there.rows() == here.rows()
        assert asked_bytes(source) == ({16 << 20, 4 << 20, 1 << 20} if old else {16 << 20})
        assert ("before Kafka 2.0 a quota may hold it back" in caplog.text) is old


def test_throttle_that_an_old_source_tells_is_over_by_then(old: DrivenCluster, target: DrivenCluster) -> None:
    """It has held the answer back for so long; newer brokers say how long they will not listen."""
    (here,), (there,) = old.topics["t"].logs, target.create("t").logs
    Writer(here).plain(5)
    old.script.on("Fetch", Fault(throttle_ms=3_600_000), times=None, when=lambda request: request.message.max_wait_ms > 0)
    with Following(old, target, ranges_of(old, "t")) as following:
        for _ in range(3):  # by more requests than there are connections
            following.until(lambda: there.end == here.end, "what is there is copied")
            with old.changing():
                Writer(here).plain(5)
        following.until(lambda: there.end == here.end, "it is asked again at once")
        assert following.loop.gauges()["throttled"] == {"source": 3_600_000}
    assert there.rows() == here.rows()
