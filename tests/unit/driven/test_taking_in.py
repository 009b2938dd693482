"""Partitions that join a copy that runs: opened and copied like those with which it began, and the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from airflow_mirror.copy.loop.clusters import Clusters
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost
from airflow_mirror.jobs.progress.listener import Listener
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.waiting import wait_until

OPTIONS = CopyOptions(mirror="m")
FIRST, JOINS = (CopyRange(source_topic=t, target_topic=t, partition=0, start_offset=0) for t in ("first", "joins"))


def filled(source: DrivenCluster, target: DrivenCluster) -> Mapping[str, Writer]:
    for cluster in (source, target):
        for topic in ("first", "joins"):
            cluster.create(topic, 1)
    writers = {topic: Writer(source.topics[topic].logs[0]) for topic in ("first", "joins")}
    for writer in writers.values():
        writer.plain(50)
    return writers


def end(cluster: DrivenCluster, topic: str) -> int:
    return cluster.topics[topic].logs[0].end


def run(copy: CopyLoop, *steps: Callable[[], object]) -> None:
    """Run until every step has returned something true, one after the other."""
    left, deadline = list(steps), time.monotonic() + 60

    def should_stop() -> bool:
        assert time.monotonic() < deadline
        if left and left[0]():
            left.pop(0)
        return not left

    copy.run(should_stop)


def test_a_partition_joins_a_copy_that_runs(source: DrivenCluster, target: DrivenCluster) -> None:
    writers = filled(source, target)
    copy = CopyLoop([FIRST], Clusters.of(source.config, target.config), OPTIONS, lambda: None)
    run(
        copy,
        lambda: end(target, "first") == 50,
        lambda: [copy.take_in([JOINS, FIRST], OPTIONS)],  # type: ignore[func-returns-value]
        lambda: end(target, "joins") == 50,
        lambda: [writer.plain(5) for writer in writers.values()],  # type: ignore[func-returns-value]
        lambda: end(target, "first") == end(target, "joins") == 55,
    )
    assert [p.range for p in copy.partitions] == [FIRST, JOINS], "which it has, it does not take twice"
    for topic in ("first", "joins"):
        assert target.topics[topic].logs[0].rows() == source.topics[topic].logs[0].rows()
    assert copy.memory.used == 0


def test_a_partition_that_joins_is_not_written_without_the_lease(source: DrivenCluster, target: DrivenCluster) -> None:
    filled(source, target)
    lost = threading.Event()

    def check() -> None:
        if lost.is_set():
            raise LeaseLost("id", 1, "another took it")

    copy = CopyLoop([FIRST], Clusters.of(source.config, target.config), OPTIONS, check)

    def lose() -> bool:
        copy.take_in([JOINS], OPTIONS)
        lost.set()
        return True

    with pytest.raises(LeaseLost):
        run(copy, lambda: end(target, "first") == 50, lose, lambda: False)
    assert end(target, "joins") == 0


# --- a task and its driver --------------------------------------------------------------------------------------------


class Task:
    """One task in a thread, whose driver is ``driver``."""

    def __init__(self, source: str, target: str, token: lease.LeaseToken, report_to: str | None, s: float) -> None:
        work = CopyWork(source=source, target=target, options=OPTIONS, lease=token, report_to=report_to, deal=1)
        self.results: list[PartitionResult] = []
        self._thread = threading.Thread(target=lambda: self.results.extend(copy_ranges(work, [FIRST], s)))
        self._thread.start()

    def ends_within(self, s: float) -> bool:
        self._thread.join(s)
        return not self._thread.is_alive()


@pytest.fixture
def begin(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str | None, float], Task]]:
    monkeypatch.setenv("S", source.config.dump())
    monkeypatch.setenv("T", target.config.dump())
    tasks: list[Task] = []
    with WireCluster(target.config) as wire:
        token = lease.take(wire, "m")

        def one(report_to: str | None, s: float) -> Task:
            tasks.append(Task("env:S", "env:T", token, report_to, s))
            return tasks[-1]

        yield one
    assert all(task.ends_within(60) for task in tasks)


def test_a_task_lasts_until_its_driver_has_had_enough_of_it(
    source: DrivenCluster, target: DrivenCluster, begin: Callable[[str | None, float], Task]
) -> None:
    """Its time is for a driver that does not hear it. What joins is in its results."""
    filled(source, target)
    driver = Listener(Table([FIRST, JOINS]))
    try:
        heard = begin(driver.address, 0.3)
        wait_until(lambda: end(target, "first") == 50)
        assert not heard.ends_within(1.0)
        driver.hand_out([JOINS], OPTIONS, before=2)
        wait_until(lambda: end(target, "joins") == 50)
        driver.end_tasks()
        assert heard.ends_within(60)
        assert [(r.topic, r.position, r.error) for r in heard.results] == [("first", 50, None), ("joins", 50, None)]
    finally:
        driver.close()


def test_a_task_whose_driver_does_not_listen_ends_with_its_time(
    source: DrivenCluster, target: DrivenCluster, begin: Callable[[str | None, float], Task]
) -> None:
    filled(source, target)
    driver = Listener(Table([FIRST]))
    alone, left = begin(None, 0.3), begin(driver.address, 0.3)
    assert alone.ends_within(60)
    wait_until(lambda: end(target, "first") == 50)
    assert not left.ends_within(0.5)
    driver.close()
    assert left.ends_within(60)
