"""The commands ``copy`` and ``follow`` as people run them, for tests that stop, kill and freeze them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.integration.copying import wait_until

ROOT = Path(__file__).parents[2]


def copy(*arguments: str, log: Path) -> int:
    """Run a copy to its end; return its exit status."""
    return start(*arguments, log=log).wait(600)


def start(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a copy, and return its process."""
    with log.open("wb") as out:
        return subprocess.Popen(command("copy", *arguments), env=_env(), stdout=out, stderr=out)


def command(name: str, *arguments: str) -> list[str]:
    """Return the command line."""
    return [sys.executable, "-m", "airflow_mirror.console.main", name, *arguments]


def summary_of(log: Path) -> dict[str, Any]:
    """Return the summary, which is the last line of standard output."""
    return dict(json.loads(log.read_text().strip().splitlines()[-1]))


class Follow:
    """A ``follow`` that runs in a process group of its own; a context manager that leaves nothing running.

    :ivar log: of standard output and error.
    """

    def __init__(self, *arguments: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command("follow", *arguments), env=_env(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.kill()
        self.process.wait(60)

    @property
    def said(self) -> str:
        """What it has logged."""
        return self.log.read_text()

    def workers(self) -> list[int]:
        """Return the pids of its copying processes."""
        # Python starts children from any of its threads.
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [int(pid) for task in tasks for pid in task.read_text().split()]
        return [pid for pid in children if b"plain.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def says(self, text: str, timeout_s: float = 240.0) -> None:
        """Return once it has logged something."""
        wait_until(lambda: text in self.said or self.process.poll() is not None, f"{text!r} in {self.log}", timeout_s)
        assert text in self.said, self.said[-3000:]

    def stop(self, status: int = 0, within_s: float = 60.0) -> dict[str, Any]:
        """End it by SIGTERM; return its summary."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(within_s) == status, self.said[-3000:]
        return summary_of(self.log)

    def kill(self) -> None:
        """Kill it, as a machine does that loses its power: with its copying processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
