"""What a driver tells tasks that run: to copy partitions that have joined, each of them one task, or to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from airflow_mirror.copy.instructions import Instruction
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.progress.listener import Listener
from airflow_mirror.jobs.progress.table import Table
from tests.unit.jobs.reports.driver import PATIENT, RANGES, copies, listening, reporting, told
from tests.waiting import wait_until

OPTIONS = CopyOptions(mirror="m", max_batch_bytes={"new": 7}, tombstone_topics=frozenset({"new"}))
NEW = [CopyRange(source_topic="new", target_topic="new", partition=p, start_offset=5) for p in range(450)]
Task = Callable[..., list[tuple[Sequence[CopyRange], CopyOptions]]]


@pytest.fixture
def task(driver: Listener, table: Table) -> Iterator[Task]:
    """Begin a task of a deal, which has one partition; return what it is told to copy as well."""
    with ExitStack() as stack:

        def begin(partition: int, deal: int) -> list[tuple[Sequence[CopyRange], CopyOptions]]:
            taken: list[tuple[Sequence[CopyRange], CopyOptions]] = []
            own = copies(RANGES[partition : partition + 1])
            take_in = lambda *told: taken.append(told)  # noqa: E731
            stack.enter_context(reporting(driver.address, own, take_in=take_in, deal=deal))
            wait_until(lambda: ("orders", partition, partition) in told(table))
            return taken

        yield begin


def given(taken: list[tuple[Sequence[CopyRange], CopyOptions]]) -> list[CopyRange]:
    return [one for ranges, _ in taken for one in ranges]


def test_an_instruction_survives_the_way() -> None:
    end, more = Instruction(number=3), Instruction(number=4, ranges=tuple(NEW[:2]), options=OPTIONS)
    assert Instruction.from_line(end.to_line()) == end
    there = Instruction.from_line(more.to_line())
    assert there.options is not None and set(there.options.tombstone_topics) == {"new"}
    assert replace(there, options=OPTIONS) == more


def test_each_partition_that_joins_goes_to_one_task_and_no_line_is_long(driver: Listener, task: Task) -> None:
    first, second = task(0, deal=4), task(1, deal=4)
    driver.hand_out(NEW, OPTIONS, before=5)
    wait_until(lambda: len(given(first)) + len(given(second)) == len(NEW))
    assert {len(given(first)), len(given(second))} == {225}
    assert set(given(first)) | set(given(second)) == set(NEW)
    assert max(len(ranges) for ranges, _ in first) == 200
    assert {options.max_batch_bytes["new"] for _, options in first} == {7}
    wait_until(lambda: not driver._untaken)


def test_a_task_that_has_a_partition_by_its_deal_is_not_told_of_it(driver: Listener, task: Task) -> None:
    """Another task of the same deal copies it already: two writers of one partition."""
    of_before, of_this = task(0, deal=4), task(1, deal=5)
    driver.hand_out(NEW[:9], OPTIONS, before=5)
    wait_until(lambda: len(given(of_before)) + len(given(of_this)) == 9)
    assert not of_this


def test_partitions_that_no_task_can_take_end_the_turn(driver: Listener, task: Task) -> None:
    assert not driver.has_untaken()
    task(0, deal=5)
    driver.hand_out(NEW[:1], OPTIONS, before=5)
    wait_until(driver.has_untaken)
    driver.begin_turn()
    wait_until(lambda: not driver.has_untaken())


def test_partitions_that_a_task_does_not_take_end_the_turn(table: Table) -> None:
    """It was told, and its connection broke, or it is frozen: nobody else may have them meanwhile."""

    def fails(*_: object) -> None:
        raise ValueError("it can't")

    with (
        listening(table, replace(PATIENT, taken_within_s=0.2)) as driver,
        reporting(driver.address, copies(), take_in=fails, deal=1) as reporter,
    ):
        wait_until(lambda: len(told(table)) == 3)
        driver.hand_out(NEW[:1], OPTIONS, before=2)
        wait_until(driver.has_untaken)
        assert not reporter.is_connected, "it ends with its time, as it hears nothing any more"


def test_a_task_that_was_told_to_end_is_told_nothing_more(driver: Listener, task: Task) -> None:
    taken = task(0, deal=4)
    driver.end_tasks()
    driver.hand_out(NEW[:1], OPTIONS, before=5)
    wait_until(driver.has_untaken)
    time.sleep(0.1)
    assert not taken


def test_a_silent_task_is_told_nothing(table: Table) -> None:
    """It may be frozen, and nobody else could take over before the turn has ended."""
    taken: list[object] = []
    with (
        listening(table, replace(PATIENT, fresh_s=-1.0)) as driver,
        reporting(driver.address, copies(), take_in=lambda *told: taken.append(told), deal=4),
    ):
        wait_until(lambda: len(told(table)) == 3)
        driver.hand_out(NEW[:1], OPTIONS, before=5)
        wait_until(driver.has_untaken)
        assert not taken


def test_a_listener_that_is_closed_tells_nobody_anything(table: Table) -> None:
    """A tail's last turn ends behind it, and its results must not be lost for that."""
    listener = Listener(table)
    listener.close()
    listener.end_tasks()
    listener.hand_out(NEW[:1], OPTIONS, before=5)
    listener.begin_turn()
    assert not listener.has_untaken()
