"""What gets killed: a copier in a process of its own, and whole Spark jobs with all their processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.jobs.runner.command import JVM_OPTIONS, spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from sandbox import Cluster
from tests.integration.copying import config, properties_of, ranges_of
from tests.soak.referee import Unequal
from tests.soak.topics import TOPICS, Topic

ROOT = Path(__file__).parents[2]
NAMES = tuple(topic.name for topic in TOPICS)
COPIER = ROOT / "tests" / "integration" / "copier_main.py"


class Victim:
    """A process with a log, alone in its session; everything below it is found again to be ended at the very end."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                command, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        """Whether it ended, by itself or not."""
        return self.popen.poll() is not None

    def kill(self) -> None:
        """SIGKILL to the whole process group, and wait."""
        self.signal(signal.SIGKILL)
        self.popen.wait(240)

    def signal(self, number: int) -> None:
        """Send a signal to the process group, if it is still there."""
        if not self.ended:
            os.killpg(self.popen.pid, number)

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]


@dataclass
class Flow:
    """What one mirror copies.

    :param options: of its copiers (`CopyOptions`); empty for identical offsets.
    :ivar clean_end: the last copier's end is proven, so that the next one need not wait for its lease.
    """

    mirror: str
    topics: tuple[Topic, ...]
    options: dict[str, Any]
    clean_end: bool = True


class Copier(Victim):
    """A plain copier (no Spark): the task as Spark would run it, under a lease of its own.

    :param follow: go on until killed, instead of stopping where the source ends now.
    :param wait: wait for older copiers as the lease demands; False only where their end is proven.
    """

    def __init__(
        self, source: Cluster, target: Cluster, flow: Flow, log: Path, *, follow: bool = True, wait: bool = False
    ) -> None:
        found = ranges(source, flow, follow)
        spec = {"mirror": flow.mirror, "ranges": [r.to_dict() for r in found], "wait": wait, "options": flow.options}
        env = {
            "TEST_SOURCE": config(source).dump(), "TEST_TARGET": config(target).dump(), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        super().__init__([sys.executable, str(COPIER), json.dumps(spec)], env, log)

    def results(self, timeout_s: float) -> list[PartitionResult]:
        """Wait for the end and return what it reported.

        :raises Unequal: if it did not end, or not in order.
        """
        try:
            status = self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Unequal(f"a copier did not end within {timeout_s:.0f} s", {"log": self.said()}) from None
        rows = [line for line in self.log.read_text(errors="replace").splitlines() if line.startswith("{")]
        if status != 0 or not rows:
            raise Unequal(f"a copier failed with status {status}", {"log": self.said()})
        return [PartitionResult(**json.loads(row)) for row in rows]


def ranges(source: Cluster, flow: Flow, follow: bool = False) -> list[CopyRange]:
    """Return the whole of a flow's topics, without an end when following."""
    found = [r for topic in flow.topics for r in ranges_of(source, topic.name, topic.partitions)]
    found = [replace(r, mode="mapped" if flow.options else "identical") for r in found]
    return [replace(r, end_offset=None) for r in found] if follow else found


class SparkJob(Victim):
    """A real Spark job by spark-submit on ``local[2,4]``: a task whose worker died is tried again by Spark itself."""

    def __init__(
        self, script: str, source: Cluster, target: Cluster, mirror: str, log: Path, extra: Sequence[str] = (),
        topics: Sequence[str] = NAMES,
    ) -> None:  # fmt: skip
        files = properties_of(log.parent, source, target)
        include = [arg for topic in topics for arg in ("--include", topic)]
        self.script = script
        env = {
            "JAVA_HOME": str(java_home_for_spark()), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        submit = [
            str(spark_home() / "bin" / "spark-submit"), "--master", "local[2,4]", "--conf", "spark.ui.enabled=false",
            "--driver-java-options", JVM_OPTIONS,
        ]  # fmt: skip
        arguments = [*files, *include, "--name", mirror, "--offsets", "identical", *extra]
        super().__init__([*submit, str(ROOT / "spark_jobs" / script), *arguments], env, log)

    def tree(self) -> list[psutil.Process]:
        """Every process of the job, the JVM first."""
        try:
            jvm = psutil.Process(self.popen.pid)
            return [jvm, *jvm.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def find(self, victim: str, ports: set[int]) -> psutil.Process | None:
        """Return the process to kill: ``jvm``, ``driver``, or a ``worker`` that is connected to one of ``ports``."""
        for process in self.tree():
            try:
                line = " ".join(process.cmdline())
                if victim == "jvm" and "org.apache.spark.deploy.SparkSubmit" in line:
                    return process
                if victim == "driver" and self.script in line and "SparkSubmit" not in line:
                    return process
                if victim == "worker" and "pyspark.daemon" in line and talks_to(process, ports):
                    return process
            except psutil.NoSuchProcess:
                continue
        return None


def talks_to(process: psutil.Process, ports: set[int]) -> bool:
    return any(c.raddr and c.raddr.port in ports for c in process.net_connections("tcp"))


class Graveyard:
    """Processes that were orphaned by a kill: they must end by themselves; what has not is ended here."""

    def __init__(self) -> None:
        self._seen: list[psutil.Process] = []

    def add(self, processes: list[psutil.Process]) -> None:
        """Remember."""
        self._seen += processes

    def still_alive(self) -> list[psutil.Process]:
        """Return those that did not end (a recycled pid is not one of them)."""
        self._seen = [p for p in self._seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        return self._seen

    def clear(self, timeout_s: float) -> list[str]:
        """Wait for them, then end the rest; return the command lines of those that had to be ended."""
        deadline = time.monotonic() + timeout_s
        while (left := self.still_alive()) and time.monotonic() < deadline:
            time.sleep(0.2)
        lines = []
        for process in left:
            try:
                lines.append(" ".join(process.cmdline())[:200])
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return lines


def as_json(rows: list[PartitionResult]) -> list[dict[str, Any]]:
    """For evidence."""
    return [row.to_dict() for row in rows]
