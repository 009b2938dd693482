"""A lease that nobody can confirm: the loop stands still, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.loop import loop, retries
from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.leaders import NOBODY
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.opener import Opened
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import LeaseUnconfirmed


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(s=1000.0)


@pytest.fixture
def copy(clock: SimpleNamespace) -> CopyLoop:
    nowhere = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "source")
    return CopyLoop(
        [CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0)],
        Clusters.of(nowhere, nowhere),
        CopyOptions(mirror="m"),
        lambda: None,
        lambda: clock.s,
    )


class Sides:
    """Source, target and steps of a loop that does nothing: it notes what is asked of it."""

    def __init__(self, copy: CopyLoop) -> None:
        self.asked: list[str] = []
        copy._in = copy._out = copy._steps = copy._watch = copy._maps = copy._openers = self  # type: ignore[assignment]
        self.size = 1
        copy._selector = SimpleNamespace(select=lambda _: self.asked.append("select") or [])  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Callable[..., list[float]]:
        def noted(*_: object) -> list[float]:
            self.asked.append(name)
            return []

        return noted


def test_unconfirmed_lease_is_a_pause_that_only_takes_answers(copy: CopyLoop, clock: SimpleNamespace) -> None:
    sides, unconfirmed = Sides(copy), LeaseUnconfirmed("id", 1, 9.0, None)

    def check() -> None:
        if clock.s < 1500:
            raise unconfirmed

    copy._check_lease = check
    while clock.s < 1500:
        copy._step()
        clock.s += 100
    assert set(sides.asked) == {"select", "drop_silent"}
    copy._step()
    assert "send" in sides.asked


def open_again(copy: CopyLoop) -> None:
    (p,) = copy.partitions
    p.begin_opening()
    copy._opened(p, Opened(Opening(position=0, producer_id=5, epoch=0, sequence=0), NOBODY, NOBODY))


def test_a_pause_is_held_against_no_partition(copy: CopyLoop, clock: SimpleNamespace) -> None:
    Sides(copy)
    (p,) = copy.partitions
    unconfirmed = LeaseUnconfirmed("id", 1, 9.0, None)
    open_again(copy)
    copy.retry_later(p, "the broker is down")  # before the pause is noticed
    copy._check_lease = Mock(side_effect=[unconfirmed, unconfirmed, None])
    for paused in (True, True, False):
        clock.s += retries.PATIENCE_S / 2 + 1
        assert copy._is_paused() == paused
    for _ in range(20):
        open_again(copy)
        copy.failed(p, unconfirmed)
    open_again(copy)
    copy.retry_later(p, "the broker has just come back")
    assert (p.error, p.failures) == (None, 2)


def test_pause_that_lasts_too_long_ends_with_its_cause(copy: CopyLoop, clock: SimpleNamespace) -> None:
    Sides(copy)
    copy._check_lease = Mock(side_effect=LeaseUnconfirmed("id", 1, 9.0, KeyError("the cause")))
    copy._step()
    clock.s += loop.LEASE_PATIENCE_S + 1
    with pytest.raises(LeaseUnconfirmed, match="the cause"):
        copy._step()
