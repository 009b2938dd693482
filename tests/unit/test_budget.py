"""What a task may hold and how fast it may write, on a clock that the test turns."""

from __future__ import annotations

import random

import pytest

from airflow_mirror.copy.budget import Buffer, Memory, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_buffer_counts_until_its_last_taker_gave_it_back() -> None:
    memory = Memory(100)
    buffer = Buffer(memory, 70)
    assert memory.free == 100  # an answer without records is held by nobody
    buffer.take()
    buffer.take()
    assert (memory.used, memory.free) == (70, 30)
    buffer.give_back()
    assert memory.used == 70
    buffer.give_back()
    assert memory.used == 0


def test_a_batch_larger_than_the_limit_leaves_nothing_free_and_no_debt() -> None:
    memory = Memory(100)
    buffer = Buffer(memory, 250)
    buffer.take()
    assert memory.free == 0
    buffer.give_back()
    assert memory.free == 100


@pytest.mark.parametrize("rate", [30_000, 7_000_000])
def test_the_average_rate_holds_whatever_the_sizes_and_the_pauses(rate: int) -> None:
    clock, rng = Clock(), random.Random(rate)
    pace = Pace(rate, clock)
    started, written = clock.now, 0
    while clock.now - started < 60:
        clock.now += pace.wait_s
        size = rng.randint(1, rate)
        pace.spend(size)
        written += size
        clock.now += rng.random() * 0.01
    assert written / (clock.now - started) == pytest.approx(rate, rel=0.05)


def test_a_pause_is_not_followed_by_a_flood() -> None:
    clock = Clock()
    pace = Pace(1000, clock)
    clock.now += 3600
    sent = 0
    while pace.wait_s == 0:
        pace.spend(100)
        sent += 100
    assert sent <= 1000 * Pace.BURST_S + 100


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(None)
    pace.spend(10**12)
    assert (pace.wait_s, pace.portion) == (0.0, None)
