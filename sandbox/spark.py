"""A Spark standalone cluster on this machine, from the pyspark package alone.

    with SparkCluster(workers=2) as spark:
        subprocess.run([..., "spark-submit", "--master", spark.master, *spark.submit_options(), ...])

The package has no scripts that start a master or a worker, and none is needed. Workers get an environment of their own:
nothing of this process's ``PYTHONPATH`` or working directory reaches an executor, as on another host.

What a worker starts (executors, and their Python processes, which put themselves into process groups of their own) stays
in the worker's *session*, and that is how it is found and ended.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.jobs.runner.command import spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from sandbox.home import Home
from sandbox.ports import HOST, ReservedPort, reserve
from sandbox.process import Child, Started, in_sessions

_running: set[SparkCluster] = set()


class SparkCluster(Started):
    """A master and some workers; start it with ``with``.

    :param workers: how many; the directory of each is its working directory.
    :param cores: of each worker; a core runs one task at a time.
    :param memory_mb: of each worker, for its executors.
    :param env: more environment variables for the workers, and so for their executors.
    :param ready_timeout_s: how long master and workers may take, in seconds.
    """

    def __init__(
        self, workers: int = 2, cores: int = 1, memory_mb: int = 1024, env: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
    ) -> None:  # fmt: skip
        self._count, self._cores, self._memory_mb = workers, cores, memory_mb
        self._more_env = dict(env or {})
        self._ready_timeout_s = ready_timeout_s
        self._home: Home | None = None
        self._ports: list[ReservedPort] = []
        self._master: Child | None = None
        self._workers: list[Child] = []
        self._sessions: list[int] = []
        self._owner = os.getpid()

    def start(self) -> None:
        """Start master and workers and wait until all have registered.

        :raises InputError: when there is nothing to start.
        :raises TryAgain: when they don't come up; with the end of their logs.
        """
        _running.add(self)
        self._home = Home("spark")
        self._ports = [reserve("spark master"), reserve("spark web page")]
        self._master = self._child("master", "Master", *self._listen())
        self._await(lambda state: True, "the master answers")
        for number in range(1, self._count + 1):
            self._workers.append(self._worker(number))
        self._await(lambda state: state["aliveworkers"] == self._count, f"{self._count} workers register")

    def stop(self) -> None:
        """End everything that was started and give ports and directory back. Safe to call twice."""
        if os.getpid() != self._owner:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 5.0
            while (left := self._members()) and time.monotonic() < deadline:
                _signal(left, number)
                time.sleep(0.1)
        for child in [*self._workers, *([self._master] if self._master else [])]:
            child.kill()
        for port in self._ports:
            port.release()
        if self._home is not None:
            self._home.release()
        self._home, self._ports, self._master, self._workers, self._sessions = None, [], None, [], []
        _running.discard(self)

    # --- what a driver needs ------------------------------------------------------------------------------------------

    @property
    def master(self) -> str:
        """``spark://host:port``."""
        if not self._ports:
            raise InputError("the Spark cluster is not started; use it in a 'with' block.")
        return f"spark://{self._ports[0].address}"

    @property
    def directory(self) -> Path:
        """Logs, and each worker's directory (``worker-1`` ...), while it is started."""
        if self._home is None:
            raise InputError("the Spark cluster is not started; use it in a 'with' block.")
        return self._home.path

    def submit_options(self, cores_max: int | None = None) -> list[str]:
        """Return options for ``spark-submit`` that let an application fit in here.

        :param cores_max: without it the application takes every core, and a second one waits without a word.
        """
        conf = {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.memory": "512m",
            "spark.cores.max": str(cores_max or self._count * self._cores),
        }
        return ["--master", self.master, *(part for k, v in conf.items() for part in ("--conf", f"{k}={v}"))]

    def state(self) -> dict[str, Any]:
        """Return what the master says: ``aliveworkers``, ``activeapps`` and more."""
        with urllib.request.urlopen(f"http://{self._ports[1].address}/json/", timeout=5) as answer:
            return dict(json.load(answer))

    # --- single workers -----------------------------------------------------------------------------------------------

    def processes(self, worker: int) -> list[int]:
        """Return the pids of worker ``worker`` (from 1) and of all that it started, executors and Python included."""
        return in_sessions(self._workers[worker - 1].pid)

    def kill(self, worker: int, spare: tuple[int, ...] = ()) -> None:
        """End a worker with SIGKILL, and its executors with it, as when a host goes down; ``spare`` pids stay."""
        _signal([pid for pid in self.processes(worker) if pid not in spare], signal.SIGKILL)

    def start_worker(self, worker: int) -> None:
        """Start a worker that was killed again; it registers by itself."""
        self._workers[worker - 1].kill()  # that it was killed is known, but nobody has waited for its end
        self._workers[worker - 1] = self._worker(worker)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _listen(self) -> list[str]:
        return ["--host", HOST, "--port", str(self._ports[0].number), "--webui-port", str(self._ports[1].number)]

    def _worker(self, number: int) -> Child:
        return self._child(
            f"worker-{number}", "Worker", "--host", HOST, "--webui-port", "0", "--cores", str(self._cores),
            "--memory", f"{self._memory_mb}m", "--work-dir", str(self.directory / f"worker-{number}"), self.master,
        )  # fmt: skip

    def _child(self, name: str, kind: str, *arguments: str) -> Child:
        folder = self.directory / name
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        child = Child([*command, *arguments], folder / "log.txt", folder, self._env(folder))
        self._sessions.append(child.pid)
        return child

    def _env(self, folder: Path) -> dict[str, str]:
        """Nothing of ours but Java and Spark: executors inherit this."""
        return {
            "PATH": os.defpath,
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "JAVA_HOME": str(java_home_for_spark()),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:-UsePerfData -Djava.io.tmpdir={folder / 'tmp'}",
            **self._more_env,
        }

    def _await(self, ready: Any, what: str) -> None:
        deadline = time.monotonic() + self._ready_timeout_s
        while True:
            try:
                if ready(self.state()):
                    return
            except (OSError, ValueError):
                pass  # not listening yet, or only the page for people
            dead = [child for child in [self._master, *self._workers] if child is not None and not child.alive()]
            if dead or time.monotonic() > deadline:
                raise TryAgain(f"Spark cluster: not within {self._ready_timeout_s:.0f} s: {what}.\n{self._logs()}")
            time.sleep(0.1)

    def _logs(self) -> str:
        logs = sorted(self.directory.glob("*/log.txt"))
        return "\n".join(f"--- {log.parent.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)

    def _members(self) -> list[int]:
        return in_sessions(*self._sessions)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it ended by itself


@atexit.register
def _stop_what_runs() -> None:
    for cluster in list(_running):
        cluster.stop()
