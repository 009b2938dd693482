"""One run of one system: seconds, CPU and memory, by one rule for everybody.

The clock runs from the moment in which the first records are seen on the target until the last one is there (or, for a
system that is slow, until its time is over). Records that were there at the first look are not counted, so that nobody
gains by when that look happened. CPU is read at both moments, so that the start of a JVM or of Spark is left out on both
sides. Both are also kept for the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_mirror.wire.cluster import WireCluster
from benchmarks.processes import JVM, TASK, cpu_of
from benchmarks.systems import MIRRORMAKERS, Running, Task, proof, start

_POLL_S = 0.02
_TREE_EVERY_S = 0.5
_START_S = 300.0  # on a machine that others use too
_STALL_S = 45.0
_SURPLUS_S = 0.5  # who writes more than there is shows it within this time


@dataclass(frozen=True)
class Run:
    """What one run of one system showed. Times in seconds, sizes in MB.

    :param records: that reached the target while the clock ran.
    :param seconds: that it ran.
    :param second_half_per_s: records a second from the moment in which half of them were there: a JVM is warm by then.
    :param cpu_s: of the copier's processes while the clock ran; ``cpu_tasks_s`` of that by Spark's Python tasks.
    :param brokers_cpu_s: of the brokers of both clusters meanwhile.
    :param start_s: from the start of the process to the first record; ``whole_s`` and ``whole_cpu_s`` count all of it.
    :param task_mb: peak resident size of the largest Python task; ``jvm_mb`` of the largest JVM.
    :param cut: its time was over before it had copied everything.
    :param failed: what was wrong; then no figure counts.
    """

    system: str
    round: int
    records: int = 0
    seconds: float = 0.0
    second_half_per_s: float = 0.0
    cpu_s: float = 0.0
    cpu_tasks_s: float = 0.0
    brokers_cpu_s: float = 0.0
    start_s: float = 0.0
    whole_s: float = 0.0
    whole_cpu_s: float = 0.0
    task_mb: float = 0.0
    jvm_mb: float = 0.0
    cut: bool = False
    failed: str | None = None

    @property
    def per_s(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def per_cpu_s(self) -> float:
        """Records per CPU second of the copier."""
        return self.records / self.cpu_s if self.cpu_s else 0.0


class _Failed(Exception):
    """The run showed nothing; the text says why."""


class _Look:
    """What was seen at one moment."""

    def __init__(self, at: float, records: int, running: Running, brokers: list[int]) -> None:
        running.tree.look()
        self.at, self.records = at, records
        self.cpu = running.tree.cpu_s()
        self.brokers_s = cpu_of(brokers)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the whole tree."""
        return sum(self.cpu.values())


def measure(
    system: str, task: Task, total: int, round_number: int, box_s: float, note: Callable[[str], None],
    on_failure: Callable[[str], None],
) -> Run:  # fmt: skip
    """Run a system once on a fresh target topic. A run that fails says so in its result and does not raise.

    :param total: records to copy.
    :param box_s: a run is cut after so many seconds of copying when it is MirrorMaker 2's.
    :param on_failure: is given the end of the system's log.
    """
    target = task.world.target
    target.create(task.target_topic, task.case.partitions)
    begun = time.monotonic()
    with start(system, task) as running:
        try:
            return _watch(system, running, task, total, round_number, box_s, note, begun)
        except _Failed as e:
            on_failure(running.tail_of_log())
            return Run(system, round_number, failed=str(e))


def _watch(
    system: str, running: Running, task: Task, total: int, round_number: int, box_s: float,
    note: Callable[[str], None], begun: float,
) -> Run:  # fmt: skip
    brokers = task.world.source.pids() + task.world.target.pids()
    with WireCluster(task.world.target.plain) as wire:

        def appended() -> int:
            return sum(task.world.target.ends(wire, task.target_topic, task.case.partitions))

        first = _await_first(running, appended, brokers, note, begun)
        last, half_at = _await_end(running, appended, brokers, total, first, _box(system, box_s), note)
        cut = last.records < total
        if not cut:
            time.sleep(_SURPLUS_S)
            if (now := appended()) != total:
                raise _Failed(f"{now} records on the target, {total} on the source")
    if not cut and (wrong := proof(system, running, total)) is not None:
        raise _Failed(wrong)
    running.tree.look()
    return _result(system, round_number, running, begun, first, last, half_at, cut)


def _box(system: str, box_s: float) -> float:
    return box_s if system in MIRRORMAKERS else float("inf")


def _result(
    system: str, round_number: int, running: Running, begun: float, first: _Look, last: _Look,
    half: tuple[float, int], cut: bool,
) -> Run:  # fmt: skip
    half_s = last.at - half[0]
    tree = running.tree
    return Run(
        system, round_number,
        records=last.records - first.records,
        seconds=round(last.at - first.at, 3),
        second_half_per_s=round((last.records - half[1]) / half_s) if half_s > 0 else 0,
        cpu_s=round(last.cpu_s - first.cpu_s, 2),
        cpu_tasks_s=round(last.cpu[TASK] - first.cpu[TASK], 2),
        brokers_cpu_s=round(last.brokers_s - first.brokers_s, 2),
        start_s=round(first.at - begun, 2),
        whole_s=round(time.monotonic() - begun, 2),
        whole_cpu_s=round(sum(tree.cpu_s().values()), 2),
        task_mb=round(tree.peak_mb(TASK)),
        jvm_mb=round(tree.peak_mb(JVM)),
        cut=cut,
    )  # fmt: skip


def _await_first(
    running: Running, appended: Callable[[], int], brokers: list[int], note: Callable[[str], None], begun: float
) -> _Look:
    looked = 0.0
    while True:
        now = time.monotonic()
        records = appended()
        if records:
            return _Look(time.monotonic(), records, running, brokers)
        if running.ended() is not None:
            raise _Failed(f"ended with status {running.ended()} before it copied a record")
        if now - begun > _START_S:
            raise _Failed(f"no record after {_START_S:.0f} s")
        if now - looked > _TREE_EVERY_S:
            looked = now
            running.tree.look()
            note("starting")
        time.sleep(_POLL_S)


def _await_end(
    running: Running, appended: Callable[[], int], brokers: list[int], total: int, first: _Look, box_s: float,
    note: Callable[[str], None],
) -> tuple[_Look, tuple[float, int]]:  # fmt: skip
    """Return the last look, and (time, records) of the middle."""
    series = [(first.at, first.records)]
    looked = moved = first.at
    while True:
        records = appended()
        now = time.monotonic()
        if records != series[-1][1]:
            moved = now
        series.append((now, records))
        if records >= total or now - first.at >= box_s:
            return _Look(now, records, running, brokers), _middle(series)
        if now - moved > _STALL_S or (running.ended() is not None and now - moved > 2):
            raise _Failed(f"stopped at {records} of {total} records, exit status {running.ended()}")
        if now - looked > _TREE_EVERY_S:
            looked = now
            running.tree.look()
            note(f"{records:,} of {total:,} records")
        time.sleep(_POLL_S)


def _middle(series: list[tuple[float, int]]) -> tuple[float, int]:
    half = (series[0][1] + series[-1][1]) / 2
    return next((look for look in series if look[1] >= half), series[-1])
