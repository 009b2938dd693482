"""What a trial copy takes, and what it makes of what it sees."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.extras.readiness import trial
from airflow_mirror.extras.readiness.estimate import CORE, SOURCE, TARGET
from airflow_mirror.extras.readiness.race import Log
from airflow_mirror.extras.readiness.trial import choose


def rest(position: int, end: int, offset_bytes: float | None = 1.0) -> Log:
    return Log(start=0, end=end, position=position, offset_bytes=offset_bytes)


def test_largest_rests_are_chosen_and_each_number_once() -> None:
    logs = {
        TP("a", 0): rest(0, 100), TP("b", 0): rest(0, 900), TP("b", 1): rest(0, 10, 500.0), TP("c", 2): rest(7, 7),
        TP("d", 3): rest(0, 1, None), TP("e", 64): rest(0, 10_000),
    }  # fmt: skip
    assert choose(logs) == [TP("b", 1), TP("b", 0), TP("d", 3)]
    assert len(choose({TP("t", p): rest(0, 1) for p in range(60)})) == 8
    assert choose({TP("c", 2): rest(7, 7)}) == []


class Copying:
    """Partitions of a loop that is asked whether it should stop, at a clock's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 5.0) -> None:
        self.now_s = self.used = 0.0
        monkeypatch.setattr(time, "process_time", lambda: self.used)
        self.rate = trial._Rate(seconds, lambda: self.now_s)
        self.parts: Any = [
            SimpleNamespace(done=False, error=None, is_under_way=busy, counters=SimpleNamespace(bytes=0))
            for busy in (True, False, True)
        ]

    def goes_on(self, seconds: float, copied: int, core: float = 0.2) -> bool:
        self.now_s += seconds
        self.used += seconds * core
        self.parts[0].counters.bytes += copied
        return not self.rate.is_over(self.parts)


def test_time_counts_from_the_first_bytes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then brokers elect leaders of the scratch topic."""
    one = Copying(monkeypatch)
    assert one.goes_on(50.0, 0) and one.goes_on(1.0, 7_000) and one.goes_on(2.0, 400) and one.goes_on(2.9, 90)
    assert not one.goes_on(0.1, 10)
    assert (one.rate.per_s(), one.rate.bytes) == (100.0, 7_500)


def test_nothing_that_arrives_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Copying(monkeypatch)
    assert one.goes_on(59.0, 0) and not one.goes_on(1.0, 0)
    assert one.rate.per_s() == 0


def test_little_that_is_copied_at_once_counts_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Copying(monkeypatch)
    assert one.goes_on(1.0, 500)
    for part in one.parts:
        part.done = True
    assert not one.goes_on(0.25, 0)
    assert one.rate.per_s() == 400.0


@pytest.mark.parametrize(
    ("core", "busy", "told"), [(0.9, True, CORE), (0.5, True, TARGET), (0.5, False, SOURCE)]
)  # fmt: skip
def test_what_it_waits_for_is_told(monkeypatch: pytest.MonkeyPatch, core: float, busy: bool, told: str) -> None:
    one = Copying(monkeypatch)
    for part in one.parts:
        part.is_under_way = busy
    one.goes_on(30.0, 1, 0.0)
    one.goes_on(2.0, 1, core)
    assert one.rate.waits_for() == told
