"""Children never outlive their parent, whatever way it goes, and are not taken along too early either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sandbox.process import Child
from tests.waiting import wait_until

SLEEPER = ["/bin/sh", "-c", "echo up; exec sleep 300"]
# A parent that starts one child, prints its pid, and then does what the test says.
PARENT = """
import os, signal, sys, threading, time
from pathlib import Path
from sandbox.process import Child
here = Path(sys.argv[1])
child = Child({argv!r}, here / "log", here)
while "up" not in (here / "log").read_text():  # before, the child would notice by itself that its parent has gone
    time.sleep(0.01)
print(child.pid, flush=True)
{then}
"""


def gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # ended; whoever adopted it has not asked yet
            return True
        time.sleep(0.02)
    return False


def parent(tmp_path: Path, then: str) -> tuple[subprocess.Popen[str], int]:
    script = PARENT.format(argv=SLEEPER, then=then)
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        return process, int(output.readline())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_parent_is_killed_and_the_child_goes_too(tmp_path: Path, number: int) -> None:
    process, child = parent(tmp_path, "time.sleep(300)")
    process.send_signal(number)
    assert process.wait(240) == -number
    assert gone(child)


@pytest.mark.parametrize("then", ["pass", "sys.exit(3)", "os._exit(0)", "raise ValueError"])
def test_parent_ends_without_a_word_and_the_child_goes_too(tmp_path: Path, then: str) -> None:
    process, child = parent(tmp_path, then)
    process.wait(240)
    assert gone(child)


def test_child_started_by_a_short_thread_lives_on(tmp_path: Path) -> None:
    children: list[Child] = []

    def start() -> None:
        children.append(Child(SLEEPER, tmp_path / "log", tmp_path))
        wait_until(lambda: "up" in (tmp_path / "log").read_text())  # the kernel has its order

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    try:
        assert not gone(children[0].pid, within_s=0.5)
        assert children[0].alive()
    finally:
        children[0].kill()
    assert gone(children[0].pid)


def test_forked_copy_of_the_parent_can_not_end_the_child(tmp_path: Path) -> None:
    child = Child(SLEEPER, tmp_path / "log", tmp_path)
    try:
        pid = os.fork()
        if pid == 0:
            child.kill()
            other = Child(["/bin/true"], tmp_path / "log", tmp_path)  # and it can start its own
            os._exit(0 if other.wait(240) == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert child.alive()
    finally:
        child.kill()


def test_terminate_turns_to_sigkill_when_it_is_ignored(tmp_path: Path) -> None:
    child = Child(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], tmp_path / "log", tmp_path)
    wait_until(lambda: "up" in (tmp_path / "log").read_text())
    child.terminate(timeout_s=0.3)
    assert child.status() == -signal.SIGKILL


def test_terminate_wakes_a_paused_child_first(tmp_path: Path) -> None:
    child = Child(SLEEPER, tmp_path / "log", tmp_path)
    wait_until(lambda: "up" in (tmp_path / "log").read_text())
    child.send(signal.SIGSTOP)
    assert child.alive()
    child.terminate(timeout_s=10)
    assert child.status() == -signal.SIGTERM


def test_missing_program_ends_with_a_status_and_a_log(tmp_path: Path) -> None:
    child = Child([str(tmp_path / "no-such-program")], tmp_path / "log", tmp_path)
    assert child.wait(240) == 1
    assert "FileNotFoundError" in (tmp_path / "log").read_text()
