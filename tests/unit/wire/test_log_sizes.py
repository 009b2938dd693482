"""How large logs are, from DescribeLogDirs: a right that is missing must not look like an empty log."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DescribeLogDirsResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire import requests
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.topology import Leader

LED = [(TopicPartition("orders", p), Leader(1, 0)) for p in range(2)]


class Broker:
    """Answers with what it was given."""

    def __init__(self, version: int, **answer: Any) -> None:
        self.version, self.answer = version, Response(version=version, throttle_time_ms=0, **answer)

    def newest(self, api_key: int, lowest: int, highest: int) -> int:
        assert lowest <= self.version <= highest
        return self.version

    def request(self, message: Any, version: int) -> Any:
        return Response.decode(self.answer.encode(version=version), version=version)


def on_disk(*partitions: tuple[int, int, bool]) -> Any:
    """Return a directory with partitions of the topic: number, bytes, and whether the log is still being moved there."""
    directory = Response.DescribeLogDirsResult
    topic = directory.DescribeLogDirsTopic
    found = [
        topic.DescribeLogDirsPartition(partition_index=p, partition_size=size, offset_lag=0, is_future_key=future)
        for p, size, future in partitions
    ]
    topics = [topic(name="orders", partitions=found)]
    return directory(error_code=0, log_dir="/data", topics=topics, total_bytes=-1, usable_bytes=-1)


@pytest.mark.parametrize("version", [1, 4])
def test_a_log_that_moves_between_disks_counts_once(version: int) -> None:
    broker = Broker(version, error_code=0, results=[on_disk((0, 700, False)), on_disk((0, 300, True), (1, 20, False))])
    assert list(requests.log_sizes(broker, LED)) == [(LED[0][0], 0, 700), (LED[1][0], 0, 20)]


@pytest.mark.parametrize(("version", "error_code"), [(1, 0), (3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])
def test_a_missing_right_is_an_error(version: int, error_code: int) -> None:
    """Before v3 the answer is empty and has no error."""
    broker = Broker(version, error_code=error_code, results=[])
    assert [error for _, error, _ in requests.log_sizes(broker, LED)] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


def test_a_log_that_its_leader_does_not_list_is_not_empty() -> None:
    """It has moved, or its disk is offline; an empty one is listed."""
    broker = Broker(4, error_code=0, results=[on_disk((0, 0, False), (1, 300, True))])
    assert list(requests.log_sizes(broker, LED)) == [(LED[0][0], 0, 0), (LED[1][0], ErrorCode.LEADER_NOT_AVAILABLE, 0)]
