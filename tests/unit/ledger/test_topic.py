"""A topic of the ledger with several partitions: batches by key until a broker has them, and parts of a log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import LeaseLost, MissingRight, TryAgain
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.script import Fault

TP = TopicPartition("maps", 2)


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster(brokers=2) as cluster:
        cluster.create("maps", 4, topic_config({"message.timestamp.type": "LogAppendTime"}))
        yield cluster


@pytest.fixture
def log(cluster: DrivenCluster) -> Iterator[TopicLog]:
    with WireCluster(cluster.config) as wire:
        yield TopicLog(wire, "maps", 2)


def test_each_partition_is_a_log_of_its_own(cluster: DrivenCluster, log: TopicLog) -> None:
    assert [log.put({"a": b"1", "b": None}, 60), log.put({"c": b"2"}, 60)] == [0, 2]
    assert [one.end for one in cluster.topics["maps"].logs] == [0, 0, 3, 0]
    assert [(r.key, r.value) for r in log.read(1)] == [(b"b", None), (b"c", b"2")]
    assert [r.key for r in log.read(1, 2, max_bytes=1)] == [b"b"]


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault.lost_answer(), 2),
        (Fault.not_arrived(), 1),
        (Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS), 1),
        (Fault.done_but_refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), 2),
        (Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), 1),
    ],
    ids=["answer lost", "request lost", "too few replicas", "after append", "not leader"],
)
def test_values_are_put_again_until_a_broker_has_them(
    cluster: DrivenCluster, log: TopicLog, fault: Fault, times: int
) -> None:
    """Without a producer id they may be there twice."""
    cluster.script.on("Produce", fault)
    assert log.put({"a": b"1"}, 60) == times - 1
    assert [r.key for r in log.read(0)] == [b"a"] * times


def test_what_no_broker_takes_is_named_in_the_end(cluster: DrivenCluster, log: TopicLog) -> None:
    cluster.script.on("Produce", Fault.refused(ErrorCode.NOT_ENOUGH_REPLICAS), times=None)
    with pytest.raises(TryAgain, match="maps: a, b, c could not be written: the leader answered 19"):
        log.put(dict.fromkeys("abcd", b"1"), 0.0)


def test_missing_right_is_said_at_once(cluster: DrivenCluster, log: TopicLog) -> None:
    rule = cluster.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    with pytest.raises(MissingRight, match="maps"):
        log.put({"a": b"1"}, 60)
    assert len(rule.hits) == 1


@pytest.mark.parametrize("passes", [0, 1])
def test_nothing_is_sent_without_the_lease(cluster: DrivenCluster, log: TopicLog, passes: int) -> None:
    """It may be lost between the first look and the moment at which the bytes would go."""
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > passes:
            raise LeaseLost("id", 1, "another one")

    with pytest.raises(LeaseLost):
        log.put({"a": b"1"}, 60, check)
    assert cluster.log(TP).end == 0
