"""A tail on one host, its successor on another: between the two there is nothing but Kafka.

A host is a process namespace with a hostname and a scratch directory of its own; killing its first process is the loss of
the host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from airflow_mirror.jobs.runner.active import Watch, active_tail, ask_to_stop, keys_of
from airflow_mirror.jobs.runner.command import JVM_OPTIONS, spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.policy import lease_id
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import assert_equal, config, create, ends, properties_of, wait_until, write

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]


class Host:
    """See the module. ``name`` is its hostname."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.name, self.scratch = name, scratch
        self._jobs: list[subprocess.Popen[bytes]] = []
        scratch.mkdir()
        live = f"hostname {name} && mount -t tmpfs tmpfs {scratch} && echo ready && exec sleep infinity"
        self._unshare = subprocess.Popen(
            ["unshare", "--pid", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", live],
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
        enter = ["nsenter", "--target", str(self._first), "--pid", "--uts", "--mount"]
        with log.open("wb") as out:
            started = subprocess.Popen(
                [*enter, *submit, str(ROOT / "spark_jobs" / job), *arguments, "--job-dir", str(self.scratch / "job")],
                env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self._jobs.append(started)
        return started

    def signal(self, number: int) -> None:
        """Send a signal to all its processes but the first."""
        namespace = os.readlink(f"/proc/{self._first}/ns/pid")
        pids: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == namespace:
                    pids.append(int(entry.name))
            except OSError:
                pass  # it ended, or is none of ours
        for pid in pids:
            if pid != self._first:
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


@contextmanager
def admin_of(cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(cluster)) as admin:
        yield admin


def held_mark(cluster: Cluster, mirror: str) -> tuple[int, int]:
    """Producer id and mark of the writer lease: another job's are other ones."""
    with WireCluster(config(cluster)) as wire:
        seen = TransactionClient(wire, lease_id(mirror)).describe()
    assert seen is not None
    return seen.producer_id, seen.timeout_ms


def wait_for(cluster: Cluster, topic: str, end: int, tail: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the tail has copied up to an offset."""

    def is_there() -> bool:
        assert tail.poll() is None, log.read_text()[-3000:]
        try:
            return ends(cluster, topic)[0][2] == end
        except Exception:  # the job creates the topic
            return False

    wait_until(is_there, f"{end} records are copied, see {log}", 300, 0.2)


def test_the_tail_of_a_lost_host_is_taken_over_on_another(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Refused while it lives, within a minute once its host is gone, and stopped from a third host."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 100, 1)
    arguments = [*properties_of(tmp_path, source_cluster, target_cluster), "--include", topic_name, "--name", topic_name]
    log = {name: tmp_path / f"{name}.log" for name in ("a", "refused", "b")}
    with Host("host-a", tmp_path / "a") as a, Host("host-b", tmp_path / "b") as b, admin_of(target_cluster) as target:
        first_job = a.start("streaming_tail.py", *arguments, log=log["a"])
        wait_for(target_cluster, topic_name, 100, first_job, log["a"])
        held = held_mark(target_cluster, topic_name)
        first = active_tail(Ledger(target).values(), topic_name)
        assert first is not None and first.host == "host-a" and not first.is_here

        refused = b.start("streaming_tail.py", *arguments, log=log["refused"])
        assert refused.wait(300) == 1
        assert f"the tail of mirror '{topic_name}' runs already, on host 'host-a'" in log["refused"].read_text()
        assert held_mark(target_cluster, topic_name) == held, "nobody touched the lease of the one that lives"

        watch = Watch(state_of(target, keys_of(topic_name)))
        assert watch.settled(first) == RUNNING
        a.lose()
        begun = time.monotonic()
        write(source_cluster, topic_name, 100, 2)
        second = b.start("streaming_tail.py", *arguments, log=log["b"])
        wait_for(target_cluster, topic_name, 200, second, log["b"])
        print(f"taken over {time.monotonic() - begun:.1f} s after the host was lost")
        assert held_mark(target_cluster, topic_name) != held

        tail = active_tail(Ledger(target).values(), topic_name)
        assert tail is not None and tail.host == "host-b"
        assert watch.status(tail) == RUNNING
        ask_to_stop(state_of(target), tail.name, tail.job, "a test")
        assert second.wait(120) == 0, log["b"].read_text()[-3000:]
        assert watch.status(tail) == SUCCEEDED and "a test asked for that" in log["b"].read_text()
    assert_equal(source_cluster, target_cluster, topic_name)


def test_a_tail_that_thaws_after_its_successor_began_ends(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Its driver and all its tasks were frozen. It deposes nobody, and no record is there twice."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 100, 1)
    arguments = [*properties_of(tmp_path, source_cluster, target_cluster), "--include", topic_name, "--name", topic_name]
    log = {name: tmp_path / f"{name}.log" for name in ("a", "b")}
    with Host("host-a", tmp_path / "a") as a, Host("host-b", tmp_path / "b") as b:
        frozen = a.start("streaming_tail.py", *arguments, log=log["a"])
        wait_for(target_cluster, topic_name, 100, frozen, log["a"])
        a.signal(signal.SIGSTOP)
        write(source_cluster, topic_name, 100, 2)
        second = b.start("streaming_tail.py", *arguments, log=log["b"])
        wait_for(target_cluster, topic_name, 200, second, log["b"])
        held = held_mark(target_cluster, topic_name)
        a.signal(signal.SIGCONT)
        assert frozen.wait(120) == 1
        assert "is another one now, on host 'host-b'" in log["a"].read_text()
        assert held_mark(target_cluster, topic_name) == held, "its successor still holds the lease"
        write(source_cluster, topic_name, 100, 3)
        wait_for(target_cluster, topic_name, 300, second, log["b"])
        b.lose()
    assert_equal(source_cluster, target_cluster, topic_name)
