"""What the copy loop decides without a broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.loop import loop
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(s=1000.0)


@pytest.fixture
def copy(clock: SimpleNamespace) -> CopyLoop:
    nowhere = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "source")
    return CopyLoop(
        [CopyRange("t", "t", 0, 0)], Clusters.of(nowhere, nowhere), CopyOptions("m"), lambda: None, lambda: clock.s
    )


def test_a_quiet_partition_is_not_given_up_for_two_failures_that_have_nothing_to_do_with_each_other(
    copy: CopyLoop, clock: SimpleNamespace
) -> None:
    """In a rolling restart each broker fails once; only a write would have said that all was well between."""
    (p,) = copy.partitions
    for _ in range(3):
        copy.retry_later(p, "a broker is restarted")
        copy._open_since[p] = clock.s  # open again
        clock.s += loop._PATIENCE_S + 1
    assert (p.error, p.failures) == (None, 1)


def test_a_partition_that_fails_as_soon_as_it_is_open_is_given_up(copy: CopyLoop, clock: SimpleNamespace) -> None:
    (p,) = copy.partitions
    for _ in range(10):
        copy.retry_later(p, "too few replicas")
        if p.error is not None:
            break
        copy._open_since[p] = clock.s
        clock.s += loop._SILENCE_S  # as long as a broker may take to refuse
    assert "no progress for 140 s: too few replicas" in str(p.error)
    assert loop._FORGIVEN_S > loop._SILENCE_S


def test_a_partition_that_can_not_be_opened_again_after_a_good_time_is_given_up(
    copy: CopyLoop, clock: SimpleNamespace
) -> None:
    (p,) = copy.partitions
    copy._open_since[p] = clock.s
    clock.s += 3600
    for number in range(1, 30):
        copy.retry_later(p, "no leader")
        if p.error is not None:
            break
        assert p.failures == number
        clock.s += 10
    assert "no progress for 130 s: no leader" in str(p.error)
