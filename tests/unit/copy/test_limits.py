"""What a task may hold and how fast it may write, on a clock that the test turns."""

from __future__ import annotations

import random
from unittest.mock import Mock

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.lane import Lines
from airflow_mirror.copy.loop.limits import Buffer, Memory, Pace, Portions, Throttle
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import State
from airflow_mirror.copy.loop.target_side import ProduceLane, TargetSide
from airflow_mirror.copy.ranges import CopyRange

SILENCE_S = 35.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_buffer_counts_until_its_last_taker_gave_it_back() -> None:
    memory = Memory(100)
    buffer = Buffer(memory, 70, 0)
    assert memory.free == 100  # an answer without records is held by nobody
    buffer.take()
    buffer.take()
    assert (memory.used, memory.free) == (70, 30)
    buffer.give_back()
    assert memory.used == 70
    buffer.give_back()
    assert memory.used == 0


def test_oversized_batch_leaves_no_free_memory_and_no_debt() -> None:
    memory = Memory(100)
    buffer = Buffer(memory, 250, 0)
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


@pytest.mark.repeats
@pytest.mark.parametrize("largest", [9_000, 900_000])
def test_copy_limited_by_rate_alone_uses_all_of_it(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of the target side and of the loop's pauses; every request is answered at once."""
    clock, rng, rate, sent = Clock(), random.Random(largest), 1_500_000, list[int]()

    class Endless(PartitionCopy):
        def next_step(self) -> Send:
            self.state = State.READY
            return Send(0, 1, rng.randint(1, largest), 0, 1)

    def produce(_: TargetSide, lane: ProduceLane, batches: dict[TopicPartition, memoryview], __: str | None) -> None:
        sent.extend(map(len, batches.values()))
        lane.sent.clear()

    monkeypatch.setattr(TargetSide, "_sign", lambda _, __, step: memoryview(bytes(step.size)))
    monkeypatch.setattr(TargetSide, "_produce", produce)
    monkeypatch.setattr(Lines, "is_up", lambda *_: True)
    nobody = Mock(**{"pauses.return_value": []})
    side = TargetSide(Mock(), Mock(), Pace(rate, clock), "m", {}, Mock(), Mock(), clock)
    loop = Mock(_in=nobody, _out=side, _retries=nobody)
    partitions = [
        Endless(CopyRange(source_topic="t", target_topic="t", partition=number, start_offset=0), True, 1 << 20)
        for number in range(5)
    ]
    started = clock.now
    while clock.now - started < 60:
        for p in partitions:
            if not side.has(p):
                side.queue(p)
        side.send()
        clock.now += CopyLoop._idle_s(loop)
    assert sum(sent) / (clock.now - started) == pytest.approx(rate, rel=0.1)


def test_what_is_left_of_a_pause_is_waited_for_until_the_clock_moves() -> None:
    """Found at random by the explorer: a loop that slept for less than its clock can tell never came out of it."""
    side = Mock(**{"pauses.return_value": [7e-15]})
    clock, loop = Clock(), Mock(_in=side, _out=side, _retries=side)
    begun = clock.now = 1e6
    clock.now += CopyLoop._idle_s(loop)
    assert clock.now > begun


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


def test_the_longest_throttle_is_known_while_it_lasts_and_a_while_longer() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    assert throttle.ms == 0 and throttle.told(0) == clock.now
    assert throttle.told(30_000) == clock.now + 30.0
    throttle.told(200)
    throttle.told(0)  # of another broker
    assert throttle.ms == 30_000
    clock.now += 29
    assert throttle.ms == 30_000
    clock.now += 2
    assert throttle.ms == 0
    throttle.told(200)
    clock.now += 9
    assert throttle.ms == 200


def test_broker_that_holds_answers_back_is_asked_for_less_and_for_more_again() -> None:
    portions = Portions(1600, 30)
    assert portions.of(1) == 1600
    portions.given_up(1, 1600)
    portions.given_up(1, 1600)  # the other connection, which was silent for the same reason
    assert (portions.of(1), portions.of(2)) == (400, 1600)
    portions.answered(1, 400, held_ms=10_001)
    assert portions.of(1) == 200
    portions.answered(1, 200, held_ms=1)
    portions.answered(1, 100, held_ms=0)  # there was no more, or it is the long poll of another connection
    assert portions.of(1) == 200
    for _ in range(3):
        portions.given_up(1, portions.of(1))
    assert portions.of(1) == 30
    for _ in range(8):
        portions.answered(1, portions.of(1), held_ms=0)
    assert portions.of(1) == 1600


@pytest.mark.parametrize("tasks", [1, 8])
@pytest.mark.parametrize("quota", [25_000, 50_000, 400_000, 3_000_000])
def test_no_quota_holds_answers_back_for_too_long_again_and_again(quota: int, tasks: int) -> None:
    """A broker counts what it gave in the last ten seconds, and holds an answer back until that would fit (KIP-13)."""
    portions = [Portions(16 << 20, 64 << 10) for _ in range(tasks)]
    now, given, copied = 0.0, list[tuple[float, int]](), 0
    due, in_a_row, last_lost = [0.0] * tasks, [0] * tasks, 0.0
    while now < 3600:
        task = min(range(tasks), key=due.__getitem__)
        now, size = due[task], portions[task].of(0)
        given = [(at, count) for at, count in given if at > now - 10] + [(now, size)]
        held_s = max(0.0, sum(count for _, count in given) / quota - 10)
        due[task] = now + min(max(held_s, 0.01), SILENCE_S)
        if held_s > SILENCE_S:
            portions[task].given_up(0, size)
            in_a_row[task], last_lost = in_a_row[task] + 1, now
            assert in_a_row[task] <= 4  # by the next one the partitions would be given up (`retries.PATIENCE_S`)
        else:
            portions[task].answered(0, size, round(held_s * 1000))
            in_a_row[task], copied = 0, copied + size
    assert last_lost < 300 and copied > 0.9 * 3600 * quota
