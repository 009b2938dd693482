"""What arrives at a StatsD, over a real socket, when Airflow has set up its metrics as it does in its processes."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics import stats as state
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from airflow_mirror.hooks import gauges
from airflow_mirror.hooks.gauges import tell_copy, tell_lag

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
FOUND = {"partitions": 3, "lag_records": 40, "max_lag_records": 30, "worst": "t-0"}


class StatsD:
    """A socket that takes what is sent to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(60)
        settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(self._socket.getsockname()[1])}
        for name, value in settings.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)

    def take(self, count: int) -> list[str]:
        """Return so many packets, and nothing of ours is left behind them: Airflow sends some of its own."""
        packets = list[str]()
        while len(packets) < count:
            packets += self._ours()
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                assert self._ours() == []
        return packets

    def _ours(self) -> list[str]:
        packet = self._socket.recv(4096).decode()
        return [packet] if "kafka_mirror" in packet else []

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsD]:
    one = StatsD(monkeypatch)
    yield one
    one.close()
    if isinstance(state._backend, SafeStatsdLogger):
        state._backend.statsd.close()
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def in_a_task() -> None:
    """What `airflow.sdk.execution_time.task_runner.main` does."""
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


def test_sample_of_the_lag_arrives_with_the_mirror_in_its_name(statsd: StatsD) -> None:
    in_a_task()
    tell_lag("eu.orders", FOUND)
    assert statsd.take(6) == [
        "airflow.kafka_mirror.lag_records:40|g", "airflow.kafka_mirror.eu__orders.lag_records:40|g",
        "airflow.kafka_mirror.max_lag_records:30|g", "airflow.kafka_mirror.eu__orders.max_lag_records:30|g",
        "airflow.kafka_mirror.partitions:3|g", "airflow.kafka_mirror.eu__orders.partitions:3|g",
    ]  # fmt: skip


def test_triggerer_has_set_up_what_the_gauges_go_through(statsd: StatsD) -> None:
    """It sets up core's module; the SDK's comes with the runner that it imports. Triggers run in a fork of it."""
    code = (
        "import os; import airflow.jobs.triggerer_job_runner; from airflow_mirror.hooks.gauges import tell_lag\n"
        "if not os.fork():\n"
        "    tell_lag('m', {'lag_records': 7}); os._exit(0)\n"
        "os.wait()"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    assert statsd.take(2) == ["airflow.kafka_mirror.lag_records:7|g", "airflow.kafka_mirror.m.lag_records:7|g"]


def test_mirror_is_a_tag_where_tags_are_known(statsd: StatsD, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    in_a_task()
    tell_lag("m", {"lag_records": 7})
    assert statsd.take(2) == ["airflow.kafka_mirror.lag_records,mirror=m:7|g", "airflow.kafka_mirror.m.lag_records:7|g"]


def test_running_copy_tells_lag_rates_and_stopped_partitions(statsd: StatsD) -> None:
    in_a_task()
    summary = {
        "partitions": 5, "lag": None, "bytes_per_s": 1000, "records_per_s": 0, "states": {"copying": 4, "stopped": 1},
    }  # fmt: skip
    tell_copy("m", {"summary": summary})
    tagged = [packet for packet in statsd.take(8) if ".m." not in packet]
    assert tagged == [
        f"airflow.kafka_mirror.{of}|g"
        for of in ("partitions:5", "bytes_per_second:1000", "records_per_second:0", "partitions_stopped:1")
    ]


@pytest.mark.parametrize("progress", [{}, {"summary": None}, {"summary": {}}, {"summary": {"partitions": 3}}])
def test_job_without_figures_yet_tells_nothing(statsd: StatsD, progress: dict[str, Any]) -> None:
    in_a_task()
    tell_copy("m", progress)
    tell_lag("m", {})
    assert statsd.take(0) == []


def test_without_metrics_in_airflow_nothing_happens(statsd: StatsD, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
    in_a_task()
    tell_lag("m", FOUND)
    assert statsd.take(0) == []


def test_page_about_monitoring_has_every_gauge() -> None:
    named = set(re.findall(r"`kafka_mirror\.(\w+)`", PAGE))
    assert named == {*gauges.OF_LAG.values(), *gauges.OF_COPY.values(), "partitions_stopped"}
