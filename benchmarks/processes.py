"""What a system's processes use, from /proc: CPU seconds and memory, of the whole tree below its roots.

A process that ended keeps the CPU it had when it was last seen. Nothing counts twice: a process is its id and its start.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")
_MB = 1024  # /proc counts in kB
JVM, TASK, DRIVER = "jvm", "task", "driver"


@dataclass
class Process:
    """One process as it was last seen. ``kind``: a JVM, a Spark task's Python, or any other (a driver)."""

    pid: int
    parent: int
    started: int
    kind: str
    cpu_s: float
    peak_mb: float = 0.0


class Tree:
    """The processes below some roots; :meth:`look` finds new ones and reads all of them."""

    def __init__(self, roots: Iterable[int]) -> None:
        self._roots = set(roots)
        self._known: dict[tuple[int, int], Process] = {}

    def look(self) -> None:
        """Read /proc."""
        found = {process[0]: process for process in _all_processes()}
        wanted = set(self._roots)
        wanted |= {pid for (pid, started) in self._known if pid in found and found[pid][2] == started}
        queue = list(wanted)
        children: dict[int, list[int]] = {}
        for pid, parent, _, _ in found.values():
            children.setdefault(parent, []).append(pid)
        while queue:
            for child in children.get(queue.pop(), ()):
                if child not in wanted:
                    wanted.add(child)
                    queue.append(child)
        for pid in wanted & found.keys():
            self._see(*found[pid])

    def _see(self, pid: int, parent: int, started: int, cpu_s: float) -> None:
        process = self._known.get((pid, started))
        if process is None:
            process = self._known[pid, started] = Process(pid, parent, started, DRIVER, cpu_s)
        process.cpu_s = cpu_s
        # Read anew each time: a child is its parent's copy until it becomes another program.
        process.kind = _kind(pid, parent)
        process.peak_mb = max(process.peak_mb, peak_mb_of(pid))

    def cpu_s(self) -> dict[str, float]:
        """Return CPU seconds by kind of process."""
        sums = {JVM: 0.0, TASK: 0.0, DRIVER: 0.0}
        for process in self._known.values():
            sums[process.kind] += process.cpu_s
        return sums

    def peak_mb(self, kind: str) -> float:
        """Return the largest resident size that a single process of a kind ever had, in MB."""
        return max((p.peak_mb for p in self._known.values() if p.kind == kind), default=0.0)

    def find(self, text: str) -> int | None:
        """Return a process (no JVM) whose command line holds ``text``."""
        for process in self._known.values():
            if process.kind != JVM and text.encode() in _command(process.pid):
                return process.pid
        return None

    def end(self, timeout_s: float = 10.0) -> None:
        """Kill what is left of the tree, and wait until it is gone."""
        self.look()
        deadline = time.monotonic() + timeout_s
        while (left := [p for p in self._known.values() if _is_alive(p)]) and time.monotonic() < deadline:
            for process in left:
                try:
                    os.kill(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it ended by itself
            time.sleep(0.05)


def cpu_of(pids: Iterable[int]) -> float:
    """Return CPU seconds of single processes, without their children."""
    return sum(stat[3] for pid in pids if (stat := _stat(pid)) is not None)


def _all_processes() -> Iterator[tuple[int, int, int, float]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _stat(int(name))) is not None:
            yield stat


def _stat(pid: int) -> tuple[int, int, int, float] | None:
    """Return (pid, parent, start in ticks, CPU seconds), None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return pid, int(fields[1]), int(fields[19]), (int(fields[11]) + int(fields[12])) / _TICKS_S


def _is_alive(process: Process) -> bool:
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == process.started and fields[0] != b"Z"


def _kind(pid: int, parent: int) -> str:
    command = _command(pid)
    if command.partition(b"\0")[0].endswith(b"java"):
        return JVM
    # The daemon forks a process for each task; both have the daemon's command line.
    return TASK if b"pyspark.daemon" in command and b"pyspark.daemon" in _command(parent) else DRIVER


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def peak_mb_of(pid: int) -> float:
    """Return the largest resident size that a process ever had, in MB; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in text.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) / _MB
