"""A broker takes a full disk offline: it is told what to do, and nothing is copied wrong."""

from __future__ import annotations

import logging

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import retries
from airflow_mirror.errors import BrokerError, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.single import fetch_one
from airflow_mirror.wire.transactions import TransactionClient
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, ends, errors, ranges_of
from tests.driven.script import Fault

TP = TopicPartition("t", 0)
FULL = Fault.refused(ErrorCode.KAFKA_STORAGE_ERROR)
REMEDY = "Make room or replace it, then restart the broker"


@pytest.fixture
def writer(source: DrivenCluster, target: DrivenCluster) -> Writer:
    one = Writer(source.create("t").logs[0])
    one.plain(5)
    target.create("t")
    return one


def test_tail_says_which_broker_and_what_to_do_and_goes_on_exactly(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> bool:
        lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        return any("t-0" in line and "KAFKA_STORAGE_ERROR" in line and REMEDY in line for line in lines)

    with Following(source, target, ranges_of(source, "t")) as copied:
        copied.until(lambda: ends(target) == ends(source), "all is copied")
        target.script.on("Produce", FULL, times=None)
        with source.changing():
            writer.plain(3)
        copied.until(said, "it says what to do")
        target.script.clear()
        copied.until(lambda: ends(target) == ends(source), "it goes on once there is room")
    assert target.topics["t"].logs[0].rows() == source.topics["t"].logs[0].rows()


def test_copy_that_gives_up_says_it_in_its_error_and_the_next_one_is_exact(
    source: DrivenCluster, target: DrivenCluster, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "PATIENCE_S", 0.05)
    target.script.on("Produce", FULL, times=None)
    error = errors(copy(source, target, ranges_of(source, "t"), give_up_after_s=0.05))[TP]
    at = f"broker 127.0.0.1:{target.brokers[1].port}: KAFKA_STORAGE_ERROR"
    assert isinstance(error, TryAgain) and at in str(error) and REMEDY in str(error)
    target.script.clear()
    assert errors(copy(source, target, ranges_of(source, "t")))[TP] is None
    assert target.topics["t"].logs[0].rows() == source.topics["t"].logs[0].rows()


def test_what_plans_and_compares_says_it_too(source: DrivenCluster, writer: Writer) -> None:
    source.script.on("ListOffsets", FULL, times=None)
    source.script.on("Fetch", FULL, times=None)
    with WireCluster(source.config, timeout_s=0.1) as wire:
        with pytest.raises(BrokerError, match=REMEDY):
            wire.high_watermarks([TP])
        with pytest.raises(TryAgain, match=REMEDY):
            fetch_one(wire, TP, 0, isolation=0, timeout_s=0.1)


@pytest.mark.parametrize("api", ["FindCoordinator", "DescribeTransactions"])
def test_who_asks_a_coordinator_that_left_the_lead_of_its_partition_hears_it_too(target: DrivenCluster, api: str) -> None:
    """Of the lease, say: a copy whose lease nobody confirms stops, and says why."""
    target.script.on(api, Fault.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=None)
    with WireCluster(target.config, timeout_s=0.1) as wire, pytest.raises(BrokerError, match="a disk of theirs is full"):
        TransactionClient(wire, "id").describe()
