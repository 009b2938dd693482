"""A host beside others on this machine: a process namespace with a hostname and a scratch directory of its own.

Killing its first process is the loss of the host. The network is shared: between two hosts there is nothing but Kafka.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_mirror.jobs.runner.command import JVM_OPTIONS, spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from sandbox.process import leashed

ROOT = Path(__file__).parents[2]


class Host:
    """See the module. ``name`` is its hostname."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.name, self.scratch = name, scratch
        self._jobs: list[subprocess.Popen[bytes]] = []
        scratch.mkdir()
        live = f"hostname {name} && mount -t tmpfs tmpfs {scratch} && echo ready && exec sleep infinity"
        unshare = [shutil.which("unshare") or "unshare", "--pid", "--uts", "--mount", "--fork", "--kill-child"]
        self._unshare = subprocess.Popen(
            leashed([*unshare, "--mount-proc", "sh", "-c", live]),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._unshare.stdout is not None and self._unshare.stdout.readline() == "ready\n"
        self._unshare.stdout.close()
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        self._first = int(children[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.lose()

    def start(self, job: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a Spark job on it."""
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
        submit += ["--driver-java-options", JVM_OPTIONS, "--conf", f"spark.local.dir={self.scratch}"]
        env = os.environ | {
            "JAVA_HOME": str(java_home_for_spark()), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT), "TMPDIR": str(self.scratch), "HOME": str(self.scratch),
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost",  # nobody resolves its name
        }  # fmt: skip
        command = [*submit, str(ROOT / "spark_jobs" / job), *arguments, "--job-dir", str(self.scratch / "job")]
        return self.run(command, env, log)

    def run(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program on it."""
        enter = ["nsenter", "--target", str(self._first), "--pid", "--uts", "--mount"]
        with log.open("wb") as out:
            started = subprocess.Popen(
                [*enter, *command], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self._jobs.append(started)
        return started

    @property
    def disk(self) -> Path:
        """Its scratch directory, as it is seen from here."""
        return Path(f"/proc/{self._first}/root{self.scratch}")

    def pids(self) -> list[int]:
        """Return its processes without the first one, by the numbers that they have here."""
        namespace = os.readlink(f"/proc/{self._first}/ns/pid")
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == namespace:
                    found.append(int(entry.name))
            except OSError:
                pass  # it ended, or is none of ours
        return [pid for pid in found if pid != self._first]

    def signal(self, number: int) -> None:
        """Send a signal to all its processes but the first."""
        for pid in self.pids():
            os.kill(pid, number)
        for job in self._jobs:
            if number == signal.SIGCONT and job.poll() is None:
                job.send_signal(number)  # nsenter stops when what it has started is stopped

    def lose(self) -> None:
        """Kill all that runs on it, at once."""
        if self._unshare.poll() is None:
            os.kill(self._first, signal.SIGKILL)
            self._unshare.wait()
        for job in self._jobs:
            job.wait(60)
