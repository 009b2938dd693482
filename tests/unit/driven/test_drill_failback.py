"""The copy of a drill's topic back to its old source, on real logs."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import MirrorError, TryAgain
from airflow_mirror.extras.drill import failback
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else holds the lease."""
    monkeypatch.setattr(failback, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))


def filled(source: DrivenCluster, target: DrivenCluster) -> dict[int, int]:
    """A topic of three partitions: of five records, with a hole, and empty."""
    source.create("t", 3)
    logs = target.create("t", 3).logs
    Writer(logs[0]).plain(5)
    Writer(logs[1]).holed([0, 3], 6)
    return {0: 5, 1: 6, 2: 0}


def back(source: DrivenCluster, target: DrivenCluster, ends: dict[int, int], timeout_s: float = 60.0) -> list[str]:
    return failback._copy_back(source.config, target.config, "t", ends, "m.failback", timeout_s)


def test_the_topic_returns_at_the_same_offsets(source: DrivenCluster, target: DrivenCluster) -> None:
    ends = filled(source, target)
    assert back(source, target, ends) == []
    assert {log.tp.partition: log.end for log in source.topics["t"].logs} == ends
    assert [row.offset for row in source.topics["t"].logs[1].rows()] == [0, 3]
    assert not lease_is_held(source)


def lease_is_held(source: DrivenCluster) -> bool:
    from airflow_mirror.wire.cluster import WireCluster

    with WireCluster(source.config) as wire:
        return lease.is_anybody_writing(wire, "m.failback")


def test_what_differs_afterwards_is_listed(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that still writes to the old source, for example."""
    ends = filled(source, target)
    release = lease.release

    def written_on(wire: object, token: lease.LeaseToken) -> None:
        with source.changing():
            Writer(source.topics["t"].logs[0]).plain(1)
        release(wire, token)  # type: ignore[arg-type]

    monkeypatch.setattr(lease, "release", written_on)
    (line,) = back(source, target, ends)
    assert line.startswith("t-0: ")


def test_records_that_are_there_already_stop_it(source: DrivenCluster, target: DrivenCluster) -> None:
    """It fills a topic that was created again, and overwrites nothing."""
    ends = filled(source, target)
    Writer(source.topics["t"].logs[0]).plain(7)
    with pytest.raises(MirrorError, match="t-0") as stopped:
        back(source, target, ends)
    assert not isinstance(stopped.value, TryAgain)


def test_copy_back_that_is_too_slow_says_so(source: DrivenCluster, target: DrivenCluster) -> None:
    with pytest.raises(TryAgain, match="t-0: it was not copied back within 0 s"):
        back(source, target, filled(source, target), timeout_s=0.0)
