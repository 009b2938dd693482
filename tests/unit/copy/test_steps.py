"""Steps in threads of their own: nobody waits for a full pipe, and a long hole holds up neither others nor the end."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop import steps as steps_module
from airflow_mirror.copy.loop.asked import Pad
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.steps import Steps
from airflow_mirror.copy.loop.worker import Worker
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import padding
from airflow_mirror.errors import MirrorError, TryAgain
from tests.unit.coordinator import MARKERS, Coordinator
from tests.unit.peer import HangUp
from tests.waiting import wait_until

LONG = 10**9


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as one:
        yield one


@pytest.fixture
def mailbox(selector: selectors.BaseSelector) -> Iterator[Mailbox]:
    with closing(Mailbox(selector)) as one:
        yield one


class Judge:
    """Notes what failed."""

    def __init__(self) -> None:
        self.errors: list[MirrorError] = []

    def failed(self, p: PartitionCopy, error: MirrorError) -> None:
        self.errors.append(error)

    def stop(self, p: PartitionCopy, error: MirrorError) -> None:
        raise AssertionError(error)

    def retry_later(self, p: PartitionCopy, cause: Exception | str) -> None:
        raise AssertionError(cause)


def partition(number: int) -> PartitionCopy:
    p = PartitionCopy(CopyRange(source_topic="t", target_topic="t", partition=number, start_offset=0), True, 1 << 20)
    p.begin_opening()
    p.reopen(Opening(position=0, producer_id=5, epoch=0, sequence=0))
    return p


def taken(mailbox: Mailbox, selector: selectors.BaseSelector, until: Callable[[], bool]) -> None:
    """Turn the loop until a condition holds."""

    def turn() -> bool:
        if selector.select(0.05):
            mailbox.receive()
        return until()

    wait_until(turn, "the outcome arrives")


class StillWorker:
    """A worker whose steps are finished by the test."""

    def __init__(self, *_: object) -> None:
        self.futures: list[Future[Any]] = []

    def pad(self, *_: object) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]

    def end(self) -> None:
        for future in self.futures:
            future.cancel()

    def join(self) -> None:
        pass


@pytest.mark.repeats
def test_close_does_not_wait_for_a_loop_that_never_wakes(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step that ends calls; a pipe that nobody empties holds a few hundred calls."""
    monkeypatch.setattr(steps_module, "Worker", StillWorker)
    steps = Steps(lambda _: None, CopyOptions(mirror="m"), mailbox, lambda: None, Judge(), time.monotonic)  # type: ignore[arg-type,return-value]
    several = [partition(number) for number in range(3000)]
    for p in several:
        steps.start(p, Pad(0, 1))
    closed = threading.Thread(target=steps.close, daemon=True)
    closed.start()
    closed.join(60)
    assert not closed.is_alive()


@pytest.mark.repeats
def test_long_hole_delays_neither_another_partition_nor_the_end(
    coordinator: Coordinator, mailbox: Mailbox, selector: selectors.BaseSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_WORKERS", 1)
    judge = Judge()
    steps = Steps(lambda _: coordinator.cluster(), CopyOptions(mirror="m"), mailbox, lambda: None, judge, time.monotonic)
    long, short = partition(0), partition(1)
    steps.start(long, Pad(0, LONG))
    wait_until(lambda: coordinator.ends[long.range.target] > 1, "the long hole is begun")
    steps.start(short, Pad(0, 3))
    taken(mailbox, selector, lambda: short.position == 3)
    assert long.position == 0
    steps.cut_short()
    taken(mailbox, selector, lambda: not steps.busy)
    assert 0 < long.position == coordinator.ends[long.range.target] == long.counters.padded < LONG
    steps.close()
    assert not judge.errors


def test_closing_cancels_what_waits_and_gives_the_partitions_back(
    coordinator: Coordinator, mailbox: Mailbox, selector: selectors.BaseSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padding, "_BULK", 100)  # larger requests are work for the coordinator alone
    steps = Steps(
        lambda _: coordinator.cluster(), CopyOptions(mirror="m"), mailbox, lambda: None, Judge(), time.monotonic
    )
    several = [partition(number) for number in range(8)]
    for p in several:
        steps.start(p, Pad(0, LONG))
    wait_until(lambda: sum(coordinator.ends.values()) > 1000, "they are begun")
    steps.close()
    held = [e for e in coordinator.ids.values() if e.timeout_ms == 60_000]
    assert coordinator.ids and not held
    before = coordinator.ends.copy()
    assert coordinator.keys.count(MARKERS) > 0
    assert all(end < LONG for end in before.values())


def test_abandoned_step_writes_nothing_more(
    coordinator: Coordinator, mailbox: Mailbox, selector: selectors.BaseSelector
) -> None:
    steps = Steps(
        lambda _: coordinator.cluster(), CopyOptions(mirror="m"), mailbox, lambda: None, Judge(), time.monotonic
    )
    p = partition(0)
    steps.start(p, Pad(0, LONG))
    wait_until(lambda: coordinator.ends[p.range.target] > 1, "it is begun")
    p.fail()  # as when it is opened again
    taken(mailbox, selector, lambda: not steps.busy)
    assert coordinator.ends[p.range.target] < LONG and p.position == 0
    steps.close()


def test_partitions_that_must_rest_wait_together(coordinator: Coordinator) -> None:
    """Half a second for each, one after another, was five minutes for six hundred of them."""
    tps = [TopicPartition("t", number) for number in range(8)]
    first = Worker(0, coordinator.cluster(), "m", lambda: None, True)
    for future in [first.pad(tp, 0, 2) for tp in tps]:
        assert future.result(240).written == 2
    second = Worker(1, coordinator.cluster(), "m", lambda: None, True)
    looked = threading.Event()
    waiting = [second.pad(tp, 2, 4) for tp in tps]
    wait_until(lambda: all(e.epoch > 0 for e in coordinator.ids.values()), "all are taken over")
    looked.set()
    assert [future.result(240).written for future in waiting] == [2] * 8
    for worker in (first, second):
        worker.end()
        worker.join()


def test_an_error_of_one_step_is_its_own(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "_DOUBT_S", 0.0)  # test_padding.py holds how long it is
    worker = Worker(0, coordinator.cluster(timeout_s=0.2), "m", lambda: None, True)
    good = coordinator.answers[MARKERS]

    def hang_up(_: object) -> object:
        raise HangUp

    coordinator.answers[MARKERS] = hang_up
    with pytest.raises(TryAgain):
        worker.pad(TopicPartition("t", 0), 0, 9).result(240)
    coordinator.answers[MARKERS] = good
    assert worker.pad(TopicPartition("t", 0), 0, 9).result(240).at == 9
    worker.end()
    worker.join()
