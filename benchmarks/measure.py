"""One run of one system: seconds, CPU and memory, by one rule for everybody.

The clock starts in the moment in which the first records are seen on the target. Records that were there at the first
look are not counted, so that nobody gains by when that look happened. From then on records, CPU and the brokers' CPU are
read twice a second, and :mod:`benchmarks.window` says which of these moments count. The start of a JVM or of Spark is
left out on both sides. CPU and seconds are also kept for the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_mirror.wire.cluster import WireCluster
from benchmarks.processes import JVM, TASK, cpu_of
from benchmarks.systems import Running, Task, proof, start
from benchmarks.window import Moment, Window

_POLL_S = 0.02
_LOOK_EVERY_S = 0.5
_START_S = 300.0  # on a machine that others use too
_STALL_S = 45.0
_SURPLUS_S = 0.5  # who writes more than there is shows it within this time


@dataclass(frozen=True)
class Run:
    """What one run of one system showed. Times in seconds, sizes in MB.

    :param records: that reached the target in the window that counts.
    :param seconds: that the window was long. :param warm_s: from the first record to its begin.
    :param cpu_s: of the copier's processes in the window; ``cpu_tasks_s`` of that by Spark's Python tasks.
    :param brokers_cpu_s: of the brokers of both clusters meanwhile.
    :param start_s: from the start of the process to the first record; ``whole_s`` and ``whole_cpu_s`` count all of it.
    :param task_mb: peak resident size of the largest Python task; ``jvm_mb`` of the largest JVM.
    :param cut: the window was over before everything was copied.
    :param failed: what was wrong; then no figure counts.
    """

    system: str
    round: int
    records: int = 0
    seconds: float = 0.0
    warm_s: float = 0.0
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


def measure(
    system: str, task: Task, total: int, round_number: int, window: Window, note: Callable[[str], None],
    on_failure: Callable[[str], None],
) -> Run:  # fmt: skip
    """Run a system once on a fresh target topic. A run that fails says so in its result and does not raise.

    :param total: records to copy.
    :param window: which part counts; the run is cut when it is over.
    :param on_failure: is given the end of the system's log.
    """
    target = task.world.target
    target.create(task.target_topic, task.case.partitions)
    begun = time.monotonic()
    with start(system, task) as running:
        try:
            return _Watch(running, task, total, note).run(system, round_number, window, begun)
        except _Failed as e:
            on_failure(running.tail_of_log())
            return Run(system, round_number, failed=str(e))


class _Watch:
    """Sees how the records arrive."""

    def __init__(self, running: Running, task: Task, total: int, note: Callable[[str], None]) -> None:
        self._running, self._task, self._total, self._note = running, task, total, note
        self._brokers = task.world.source.pids() + task.world.target.pids()

    def run(self, system: str, round_number: int, window: Window, begun: float) -> Run:
        """Watch until the window is over or everything is there, and check what is there."""
        with WireCluster(self._task.world.target.plain) as wire:
            moments = [self._await_first(wire, begun)]
            self._await_end(wire, moments, window)
            cut = moments[-1].records < self._total
            if not cut:
                time.sleep(_SURPLUS_S)
                if (now := self._appended(wire)) != self._total:
                    raise _Failed(f"{now} records on the target, {self._total} on the source")
        if not cut and (wrong := proof(system, self._running, self._total)) is not None:
            raise _Failed(wrong)
        tree = self._running.tree
        tree.look()
        first, last = window.of(moments)
        return Run(
            system, round_number,
            records=last.records - first.records,
            seconds=round(last.at - first.at, 3),
            warm_s=round(first.at - moments[0].at, 1),
            cpu_s=round(last.cpu_s - first.cpu_s, 2),
            cpu_tasks_s=round(last.cpu[TASK] - first.cpu[TASK], 2),
            brokers_cpu_s=round(last.brokers_s - first.brokers_s, 2),
            start_s=round(moments[0].at - begun, 2),
            whole_s=round(time.monotonic() - begun, 2),
            whole_cpu_s=round(sum(tree.cpu_s().values()), 2),
            task_mb=round(tree.peak_mb(TASK)),
            jvm_mb=round(tree.peak_mb(JVM)),
            cut=cut,
        )  # fmt: skip

    def _appended(self, wire: WireCluster) -> int:
        return sum(self._task.world.target.ends(wire, self._task.target_topic, self._task.case.partitions))

    def _moment(self, at: float, records: int) -> Moment:
        self._running.tree.look()
        return Moment(at=at, records=records, cpu=self._running.tree.cpu_s(), brokers_s=cpu_of(self._brokers))

    def _await_first(self, wire: WireCluster, begun: float) -> Moment:
        looked = 0.0
        while True:
            now = time.monotonic()
            if records := self._appended(wire):
                return self._moment(time.monotonic(), records)
            if self._running.ended() is not None:
                raise _Failed(f"ended with status {self._running.ended()} before it copied a record")
            if now - begun > _START_S:
                raise _Failed(f"no record after {_START_S:.0f} s")
            if now - looked > _LOOK_EVERY_S:
                looked = now
                self._running.tree.look()
                self._note("starting")
            time.sleep(_POLL_S)

    def _await_end(self, wire: WireCluster, moments: list[Moment], window: Window) -> None:
        """Add moments up to the last one."""
        begin, before = moments[0].at, moments[0].records
        moved = begin
        while True:
            records, now = self._appended(wire), time.monotonic()
            if records != before:
                moved, before = now, records
            over = records >= self._total or now - begin >= window.over_s
            if over or now - moments[-1].at > _LOOK_EVERY_S:
                moments.append(self._moment(now, records))
                self._note(f"{records:,} of {self._total:,} records")
            if over:
                return
            if now - moved > _STALL_S or (self._running.ended() is not None and now - moved > 2):
                raise _Failed(f"stopped at {records} of {self._total} records, exit status {self._running.ended()}")
            time.sleep(_POLL_S)
