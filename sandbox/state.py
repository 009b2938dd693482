"""What ``up`` tells ``status`` and ``down``: a file in the user's cache, true only while its writer holds the lock on it.

The lock, not the process id, says whether the sandbox is up: ids are used again, locks end with their process.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, TypedDict

from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.jobs.runner.java import cache_dir


class Description(TypedDict):
    """One cluster; ``pids`` in the order of node ids, None for a node that is down.

    ``kerberos``: a ``principal``, its ``keytab``, and the realm's ``config``.
    """

    name: str
    version: str
    bootstrap: str
    bootstrap_sasl: str | None
    kerberos: dict[str, str] | None
    directory: str
    pids: list[int | None]


@dataclass(frozen=True)
class Running:
    """The sandbox that is up. No clusters: it is still starting. ``since`` is in seconds of the epoch."""

    pid: int
    since: float
    clusters: list[Description]


class AlreadyUp(InputError):
    """There is one sandbox per user at a time."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(
            f"a sandbox is up already (process {pid}); 'python -m sandbox down' stops it, 'status' shows it."
        )


class DoesNotStop(TryAgain):
    """The process behind the sandbox got SIGTERM and is still there."""

    def __init__(self, pid: int, timeout_s: float) -> None:
        self.pid = pid
        super().__init__(
            f"process {pid} is still there {timeout_s:g} s after SIGTERM; 'kill -9 {pid}' ends all its nodes."
        )


def path() -> Path:
    """Return the state file's path; it may not exist."""
    return cache_dir() / "sandbox.json"


class Claim:
    """Being the one sandbox of this user, in a ``with`` block.

    :raises AlreadyUp: when another process is it.
    """

    def __enter__(self) -> Self:
        path().parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path(), "a+", encoding="utf-8")  # noqa: SIM115 - held open: the lock is on it
        deadline = time.monotonic() + 1.0
        while not _lock(self._file, fcntl.LOCK_EX):
            running = read()
            if running is not None or time.monotonic() > deadline:
                self._file.close()
                raise AlreadyUp(running.pid if running else 0)
            time.sleep(0.02)  # it was only somebody who looked: reading takes the lock for a moment
        self.publish([])
        return self

    def publish(self, clusters: Sequence[Description]) -> None:
        """Write what runs. In place, not by a rename: the lock belongs to this very file."""
        text = json.dumps({"pid": os.getpid(), "since": time.time(), "clusters": list(clusters)})
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()  # what it says is void without the lock; removing it would race with the next one


def read() -> Running | None:
    """Return the sandbox that is up, or None."""
    for _ in range(20):
        try:
            with open(path(), encoding="utf-8") as file:
                if _lock(file, fcntl.LOCK_SH):
                    return None
                return Running(**json.load(file))
        except FileNotFoundError:
            return None
        except ValueError:
            time.sleep(0.05)  # just being written
    return None


def stop(running: Running, timeout_s: float = 60.0) -> None:
    """Ask the sandbox to end and wait until it has.

    :raises DoesNotStop: after ``timeout_s`` seconds.
    """
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while (now := read()) is not None and now.pid == running.pid:
        if time.monotonic() > deadline:
            raise DoesNotStop(running.pid, timeout_s)
        time.sleep(0.1)


def _lock(file: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
