"""The Spark jobs on a cluster: two workers that see nothing of this checkout, and clusters that ask for a password."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from airflow_mirror.jobs.runner import package
from airflow_mirror.jobs.runner.command import spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.wire import heart
from sandbox import Cluster, clusters
from sandbox.ports import ReservedPort, reserve
from sandbox.settings import USERS
from sandbox.spark import SparkCluster
from tests.integration.copying import assert_equal, create, ends, wait_until, write, write_transactions
from tests.integration.test_spark_jobs import driver_of, end_job, summary_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
SECRET = USERS["mirror"].encode()
# Executors that come late are not asked, so nothing begins before both are there.
BOTH = {
    "spark_scheduler_minRegisteredResourcesRatio": "1.0",
    "spark_scheduler_maxRegisteredResourcesWaitingTime": "600s",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, cores=1, ready_timeout_s=240) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded() -> Iterator[list[Cluster]]:
    """Source and target on which the jobs have to log in; the referee uses their open listeners."""
    with clusters("source", "target", authorizer=True, ready_timeout_s=240) as both:
        yield both


class Job:
    """A job as its user submits it: settings in two variables of the driver, the package as a zip."""

    def __init__(self, spark: SparkCluster, guarded: list[Cluster], name: str, folder: Path, ui: ReservedPort) -> None:
        self.spark, self.name, self.folder, self.ui = spark, name, folder, ui
        self.log, self.events = folder / "log.txt", folder / "events"
        self.events.mkdir(parents=True)
        (folder / "tmp").mkdir()
        self._env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder / "tmp"),
            "JAVA_HOME": str(java_home_for_spark()), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable,
            "FROM": json.dumps(guarded[0].properties("mirror")), "TO": json.dumps(guarded[1].properties("mirror")),
        }  # fmt: skip

    def submit(self, script: str, *arguments: str, **conf: str) -> subprocess.Popen[bytes]:
        zipped = package.build(self.folder / "airflow_mirror.zip")
        settings = {
            "spark.ui.port": str(self.ui.number), "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self.events.as_uri(), "spark.local.dir": str(self.folder / "tmp"),
            **{k.replace("_", "."): v for k, v in conf.items()},
        }  # fmt: skip
        command = [str(spark_home() / "bin" / "spark-submit"), *self.spark.submit_options(), "--py-files", str(zipped)]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        command += [str(ROOT / "spark_jobs" / script), "--source", "env:FROM", "--target", "env:TO"]
        command += ["--include", self.name, "--name", self.name, *arguments]
        with self.log.open("wb") as out:
            return subprocess.Popen(
                command, env=self._env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    def assert_no_secret_anywhere(self) -> None:
        """Look into every file that driver, workers and executors wrote, event logs included, and every command line."""
        read = 0
        for folder in (self.folder, self.spark.directory):
            for file in folder.rglob("*"):
                if file.is_file():
                    read += 1
                    assert SECRET not in file.read_bytes(), file
        assert read > 10 and list(self.events.iterdir()), "nothing was looked at"
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                assert SECRET not in _bytes_of(process / "cmdline"), process
        for worker in (1, 2):
            for pid in self.spark.processes(worker):
                assert SECRET not in _bytes_of(Path(f"/proc/{pid}/environ")), pid


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has just ended


@pytest.fixture
def job(spark: SparkCluster, guarded: list[Cluster], topic_name: str, tmp_path: Path) -> Iterator[Job]:
    ui = reserve("the job's web page")
    try:
        yield Job(spark, guarded, topic_name, tmp_path / "job", ui)
    finally:
        ui.release()


def await_all(question: Callable[[], bool], what: str, process: subprocess.Popen[bytes], job: Job) -> None:
    """Wait for something that a running job brings about; a job that ended can't any more."""
    wait_until(lambda: question() or process.poll() is not None, what, 900, 0.1)
    assert process.poll() is None, job.log.read_text(errors="replace")[-3000:]


def copied(cluster: Cluster, topic: str) -> list[int]:
    try:
        return [end for _, _, end in ends(cluster, topic, PARTITIONS).values()]
    except Exception:  # the job creates the topic
        return [0]


def fill(cluster: Cluster, topic: str, transactions: int = 20) -> None:
    """Codecs, old timestamps and transactions, so that holes are padded."""
    create(cluster, topic, PARTITIONS)
    for seed, codec in enumerate(("lz4", "none", "zstd", "snappy")):
        write(cluster, topic, 700 + 300 * seed, seed, codec, partition=seed)
        write_transactions(cluster, topic, seed=seed, transactions=transactions, partitions=PARTITIONS)


def test_executors_import_the_shipped_zip_without_exposing_the_password(guarded: list[Cluster], job: Job) -> None:
    """The tail tells it to its tasks; no page of Spark's and no file shows it."""
    source, target = guarded
    fill(source, job.name, transactions=4)
    tail = job.submit("streaming_tail.py", "--turn-s", "4", **BOTH)
    try:
        await_all(lambda: copied(target, job.name) == copied(source, job.name), "the tail copies", tail, job)
        write(source, job.name, 500, 9, "lz4", partition=1)
        await_all(lambda: copied(target, job.name) == copied(source, job.name), "the tail follows", tail, job)
        time.sleep(4)  # into another lease: its tasks are planned anew
        page = f"http://{job.ui.address}/api/v1/applications"
        (application,) = json.load(urllib.request.urlopen(page, timeout=120))
        shown = urllib.request.urlopen(f"{page}/{application['id']}/environment", timeout=120).read()
        shown += urllib.request.urlopen(f"{page}/{application['id']}/sql?planDescription=true", timeout=120).read()
        assert b"spark.executor.memory" in shown and SECRET not in shown
        job.assert_no_secret_anywhere()
        os.kill(driver_of(tail.pid), signal.SIGTERM)
        assert tail.wait(900) == 0, job.log.read_text()[-3000:]
    finally:
        end_job(tail)
    # Each executor unpacks the shipped files into its own directory below its worker's.
    places = set(re.findall(r"has what a copy needs; package from (\S+)", job.log.read_text()))
    assert len(places) == 2, places
    for place in places:
        assert place.startswith(str(job.spark.directory)) and "/airflow_mirror.zip/" in place
    assert summary_of(job.log)["heart"] == heart.name(), "the compiled one is in the zip, where this machine has it"
    assert_equal(source, target, job.name, PARTITIONS)


def test_orphaned_task_of_a_killed_worker_leaves_an_equal_target(guarded: list[Cluster], job: Job) -> None:
    """The worker is killed in the middle of a copy, and its task writes on. Nobody does beside it under its lease."""
    source, target = guarded
    fill(source, job.name)
    total = copied(source, job.name)
    number = 1
    bulk = job.submit("bulk_copy.py", "--max-bytes-per-second", "12000")  # more than a minute
    try:
        await_all(lambda: all(copied(target, job.name)), "every partition is being copied", bulk, job)
        # Spark may give all tasks to the executor that came first.
        number, orphan = next((n, p) for n in (1, 2) if (p := copying_python(job.spark.processes(n), target)) is not None)
        daemon = orphan.ppid()
        # Without this the driver has the lost task done again at once, and that ends the orphan before it is looked at.
        os.kill(bulk.pid, signal.SIGSTOP)
        os.kill(daemon, signal.SIGSTOP)  # or it would end its workers when the executor is gone
        job.spark.kill(number, spare=(daemon, orphan.pid))
        at = copied(target, job.name)
        assert sum(at) < sum(total), "killed too late to prove anything"
        assert orphan.is_running() and talks_to(orphan, target), "no orphan is left to prove anything"
        os.kill(bulk.pid, signal.SIGCONT)
        assert bulk.wait(900) == 0, job.log.read_text()[-3000:]
    finally:
        end_job(bulk)
        restart(job.spark, number)
    summary = summary_of(job.log)
    assert summary["partitions"] == PARTITIONS and summary["errors"] == []
    assert "Spark runs its task again (attempt 1)" in job.log.read_text(), "no round has followed for its partitions"
    assert_equal(source, target, job.name, PARTITIONS)
    job.assert_no_secret_anywhere()


def test_tail_with_a_killed_worker_follows_before_its_turn_ends(guarded: list[Cluster], job: Job) -> None:
    """Of two lists of partitions one has to wait for the other's task then, unless they are dealt out anew."""
    source, target = guarded
    fill(source, job.name, transactions=4)
    tail = job.submit("streaming_tail.py", "--turn-s", "3600", **BOTH)
    number = 1
    try:
        await_all(lambda: copied(target, job.name) == copied(source, job.name), "the tail copies", tail, job)
        busy = [n for n in (1, 2) if copying_python(job.spark.processes(n), target) is not None]
        assert busy == [1, 2], "both have a task"
        job.spark.kill(number)
        for partition in range(PARTITIONS):
            write(source, job.name, 300, partition, "zstd", partition=partition)
        await_all(lambda: copied(target, job.name) == copied(source, job.name), "the tail follows", tail, job)
        os.kill(driver_of(tail.pid), signal.SIGTERM)
        assert tail.wait(900) == 0, job.log.read_text()[-3000:]
    finally:
        end_job(tail)
        restart(job.spark, number)
    assert_equal(source, target, job.name, PARTITIONS)


def restart(spark: SparkCluster, worker: int) -> None:
    """End what is left of a worker and start it again."""
    spark.kill(worker)
    spark.start_worker(worker)
    wait_until(lambda: spark.state()["aliveworkers"] == 2, "both workers are there", poll_s=0.2)


def copying_python(processes: list[int], target: Cluster) -> psutil.Process | None:
    """Return the Python process that copies, among those of a worker and its executors."""
    for pid in processes:
        if b"pyspark.daemon" in _bytes_of(Path(f"/proc/{pid}/cmdline")):
            process = psutil.Process(pid)
            if talks_to(process, target):
                return process
    return None


def talks_to(process: psutil.Process, cluster: Cluster) -> bool:
    port = int(cluster.bootstrap_sasl.rpartition(":")[2])
    return any(c.raddr and c.raddr.port == port for c in process.net_connections("tcp"))


def test_executor_lacking_a_package_ends_the_job_naming_it(guarded: list[Cluster], job: Job) -> None:
    """The job ends at its start with host, package and remedy; nothing is copied."""
    source, target = guarded
    fill(source, job.name, transactions=1)
    # A Python that is the same but for one package, as on a host where somebody forgot it.
    hidden = job.folder / "hidden"
    hidden.mkdir()
    (hidden / "xxhash.py").write_text("raise ModuleNotFoundError(\"No module named 'xxhash'\")\n")
    lacking = job.folder / "python"
    lacking.write_text(f'#!/bin/sh\nPYTHONPATH={hidden}:$PYTHONPATH exec {sys.executable} "$@"\n')
    lacking.chmod(0o755)
    bulk = job.submit(
        "bulk_copy.py", spark_pyspark_python=str(lacking), spark_pyspark_driver_python=sys.executable
    )  # fmt: skip
    try:
        assert bulk.wait(900) == 2, job.log.read_text()[-3000:]
    finally:
        end_job(bulk)
    said = job.log.read_text()
    assert "package 'xxhash' can't be imported" in said and "Install xxhash==" in said and socket.gethostname() in said
    assert sum(copied(target, job.name)) == 0
