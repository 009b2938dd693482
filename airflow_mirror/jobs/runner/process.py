"""Processes of this host: check whether one is still the one that was started, and end all that it started.

A pid alone proves nothing, because the kernel reuses pids; pid and start tick together identify a process. Spark's
Python workers put themselves into their own process groups, so a signal to the job's group misses them. They stay in
the job's *session* and inherit its environment, by which they are found.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

JOB_DIR_VARIABLE = "AIRFLOW_MIRROR_JOB_DIR"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _SESSION, _START_TICK = 0, 3, 19  # fields of /proc/<pid>/stat after the command's closing parenthesis


def hostname() -> str:
    """Return the name of this host, for people."""
    return socket.gethostname()


def here() -> str:
    """Return where a pid means something: the host since it was booted, and the process namespace of a container.

    Names are not enough: machines made of one image may share theirs, and the number of the first namespace is the same
    on all.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    try:
        boot = _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        boot = ""
    return " ".join(filter(None, (hostname(), namespace, boot)))


def started_at(pid: int) -> int | None:
    """Return the tick (since boot) at which ``pid`` was started; None if it does not exist or is a zombie."""
    fields = _stat(pid)
    return int(fields[_START_TICK]) if fields and fields[_STATE] != "Z" else None


def is_alive(pid: int, started: int | None) -> bool:
    """Return whether the process with pid ``pid`` that started at tick ``started`` still runs on this host."""
    return started is not None and started_at(pid) == started


def own(handle: Mapping[str, Any]) -> dict[int, int]:
    """Return the start tick, by pid, of the process that a job's handle names, if it does."""
    return {} if handle.get("started") is None else {int(handle["pid"]): int(handle["started"])}


def members(job_dir: Path) -> list[int]:
    """Return the pids of all live processes of this user that belong to the job in ``job_dir``, oldest first."""
    found = _members(job_dir)
    return sorted(found, key=lambda pid: (found[pid], pid))


def end(pids: list[int], number: int) -> None:
    """Send a signal to each of ``pids``; a process that is gone is no error."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it ended by itself


def end_job(
    job_dir: Path, grace_s: float, send: Callable[[list[int], int], object] = end,
    known: Mapping[int, int] = MappingProxyType({}),
) -> bool:  # fmt: skip
    """End every process of a job: SIGTERM, after ``grace_s`` SIGKILL. Return whether SIGTERM was enough.

    New processes may appear while it stops (a worker about to be started), so this repeats until none is left.

    :param send: sends them a signal.
    :param known: start ticks by pid of processes of the job: one amid an exec has no environment, by which it is found.
    """

    def left() -> list[int]:
        return [*{*members(job_dir), *(pid for pid, tick in known.items() if is_alive(pid, tick))}]

    seen = {**known, **_members(job_dir)}
    send(left(), signal.SIGTERM)
    if wait_until_gone(job_dir, grace_s, seen):
        return True
    for _ in range(50):
        send(left(), signal.SIGKILL)
        if wait_until_gone(job_dir, 0.2, seen):
            break
    return False


def wait_until_dead(pid: int, started: int, timeout_s: float) -> bool:
    """Wait until one process has ended; return whether it did within ``timeout_s``."""
    return _wait_until(lambda: not is_alive(pid, started), timeout_s)


def wait_until_gone(job_dir: Path, timeout_s: float, seen: Mapping[int, int] = MappingProxyType({})) -> bool:
    """Wait until no process of the job is left; return whether that happened within ``timeout_s``.

    :param seen: start ticks by pid of processes that were found before. One that ends gives up its environment, by which
        it is found, some time before it is gone.
    """
    known = dict(seen)

    def are_gone() -> bool:
        known.update(_members(job_dir))
        return not any(is_alive(pid, tick) for pid, tick in known.items())

    return _wait_until(are_gone, timeout_s)


def _wait_until(question: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not question():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def _members(job_dir: Path) -> dict[int, int]:
    """Return the start tick of each live process of a job, by pid."""
    mark = f"{JOB_DIR_VARIABLE}={job_dir}".encode()
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    found = {pid: started_at(pid) for pid in pids if pid != os.getpid() and _environment_has(pid, mark)}
    return {pid: tick for pid, tick in found.items() if tick is not None}


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _environment_has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # another user's, or it has just ended
