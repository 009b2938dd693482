"""A broker that tells its clients an address at which nothing answers: the bootstrap server does, and hides it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ends, ranges_of

TP = TopicPartition("t", 0)
REMEDY = "its advertised.listeners must be reachable here"


@pytest.fixture
def nobody() -> Iterator[tuple[str, int]]:
    """An address of this host at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()


@pytest.fixture
def topic(source: DrivenCluster, target: DrivenCluster) -> Writer:
    writer = Writer(source.create("t").logs[0])
    writer.plain(5)
    target.create("t")
    return writer


def test_plan_names_the_address_and_who_told_it(
    source: DrivenCluster, target: DrivenCluster, topic: Writer, nobody: tuple[str, int]
) -> None:
    source.brokers[1].advertises = nobody
    mirror = Mirror(name="m", source="s", target="t", topics=["t"])
    with (
        ClusterAdmin(source.config, timeout_s=1) as here,
        ClusterAdmin(target.config, timeout_s=1) as there,
        pytest.raises(TryAgain) as planned,
    ):
        build(mirror, here, there, probe_target=False)
    with WireCluster(source.config, timeout_s=0.2) as wire, pytest.raises(TryAgain) as asked:
        wire.log_ends([TP])
    _, errors = wire.ask_each("Fetch", [TP], lambda *_: (), "Read")
    for error in (planned.value, asked.value, errors[TP]):
        assert f"127.0.0.1:{nobody[1]}: Connection refused" in str(error) and REMEDY in str(error)


def test_address_that_the_settings_name_is_no_surprise(source: DrivenCluster, topic: Writer) -> None:
    """A broker that is down says nothing about what it advertises."""
    with WireCluster(source.config, timeout_s=0.2) as wire:
        wire.log_ends([TP])
        source.brokers[1].stop()
        with pytest.raises(TryAgain, match="Connection refused") as asked:
            wire.log_ends([TP])
    assert "advertised" not in str(asked.value)


def test_running_tail_names_the_address_and_goes_on_once_it_is_mended(
    source: DrivenCluster, target: DrivenCluster, topic: Writer, nobody: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> bool:
        lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        if any(f":{nobody[1]}" in line and REMEDY in line for line in lines):
            return True
        # Not a connection between two requests: that is dialled again where it was, and nothing has failed.
        if copy.loop.partitions[0].fetching:
            source.brokers[1].disconnect()
        return False

    with Following(source, target, ranges_of(source, "t")) as copy:
        copy.until(lambda: ends(target) == ends(source), "all is copied")
        source.brokers[1].advertises = nobody
        copy.until(said, "the tail says where it was sent")
        source.brokers[1].advertises = None
        with source.changing():
            topic.plain(3)
        copy.until(lambda: ends(target) == ends(source), "it goes on")
    assert target.topics["t"].logs[0].rows() == source.topics["t"].logs[0].rows()
