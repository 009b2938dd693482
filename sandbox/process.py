"""Child processes that never outlive this one.

Three ways to go, and what ends the children in each:

- The program ends in an orderly way, or by Ctrl-C: ``Cluster.stop`` in a ``with`` block, or the atexit hook. Children sit
  in sessions of their own, so that the terminal's Ctrl-C reaches this process only, which then stops them in order.
- This process gets SIGTERM without a handler, SIGKILL, or crashes: the kernel kills each child (:mod:`sandbox.leash`).
- A child of this process was forked and ends: nothing happens, because only the process that started a node may end it.

The kernel's order is bound to the *thread* that started the child, not to the process: started from a worker thread, a
broker would be killed as soon as that thread is done. So one thread, which lives as long as the process, starts them all.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

_LEASH = Path(__file__).with_name("leash.py")
_Job = tuple[Future[subprocess.Popen[bytes]], Callable[[], subprocess.Popen[bytes]]]

_SESSION = 3  # field of /proc/<pid>/stat after the command's closing parenthesis


class _Starter:
    """The one thread that starts children; made on first use, and anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job] | None = None

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                # A daemon thread stays alive through the atexit hooks, which still have to stop the children in order.
                threading.Thread(target=self._serve, args=(self._jobs,), name="sandbox-starter", daemon=True).start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((future, start))
        return future.result()

    @staticmethod
    def _serve(jobs: queue.SimpleQueue[_Job]) -> None:
        while True:
            future, start = jobs.get()
            try:
                future.set_result(start())
            except Exception as e:
                future.set_exception(e)


_starter = _Starter()
os.register_at_fork(after_in_child=_starter.__init__)  # type: ignore[misc]  # a fork has no thread but its own


def leashed(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` wrapped so that the program dies with the thread that starts it."""
    return [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *argv]


class Child:
    """A running program. In a forked copy of the process that started it, it counts as ended and can't be signalled."""

    def __init__(self, argv: Sequence[str], log: Path, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        """Start ``argv`` with both outputs appended to ``log``."""
        command = leashed(argv)

        def start() -> subprocess.Popen[bytes]:
            with open(log, "ab") as output:
                return subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=cwd,
                    env=None if env is None else dict(env), start_new_session=True,
                )  # fmt: skip

        self._popen = _starter.run(start)

    @property
    def pid(self) -> int:
        """The process id; the program replaces the leash, so it is the program's own."""
        return self._popen.pid

    def status(self) -> int | None:
        """Return the exit status (``-n`` for signal n), or None while it runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; return the exit status, or None when it still runs after ``timeout_s`` seconds."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def alive(self) -> bool:
        """Whether it still runs (a stopped one does)."""
        return self._popen.poll() is None

    def send(self, signal_number: int) -> None:
        """Send a signal; nothing happens when it has ended."""
        if self.alive():
            self._popen.send_signal(signal_number)

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken it away."""
        self.send(signal.SIGKILL)
        self._popen.wait(30)

    def terminate(self, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL when it has not ended after ``timeout_s``. A paused one is woken first."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        if self.alive() and self.wait(timeout_s) is None:
            self.kill()


class Started(AbstractContextManager[Any]):
    """Something of child processes that ``with`` starts and ends; of a start that fails nothing is left behind."""

    def start(self) -> object:
        """Start it, and wait until it is of use."""
        raise NotImplementedError

    def stop(self) -> None:
        """End everything that was started. Safe to call twice, and after half a start."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def stands_still(pid: int | None) -> bool:
    """Say whether every thread of a process is stopped; True where the system does not tell (no /proc), or it is gone."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt" for task in tasks.iterdir())
    except OSError:
        return True


def in_sessions(*leaders: int) -> list[int]:
    """Return the pids of the sessions that these processes began, zombies not; no id is given away while one lives."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if fields[0] != "Z" and int(fields[_SESSION]) in leaders:
                found.append(int(entry))
    return found
