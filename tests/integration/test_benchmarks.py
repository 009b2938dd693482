"""The benchmark runs: both systems copy, what is stored makes sense, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.cases import CASES
from benchmarks.measure import measure
from benchmarks.results import Results, per_s
from benchmarks.systems import LIMIT, MM2, OURS, READING_LIMIT, Task
from benchmarks.window import WHOLE
from benchmarks.worlds import Endpoint, World
from sandbox import Cluster

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
SYSTEMS = MM2, OURS, LIMIT, READING_LIMIT


def bench(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks", "--out", str(tmp_path / "found.json"), "--rounds", "1", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def left_over(tmp_path: Path) -> list[str]:
    # The sandbox keeps its clusters' data in a directory that all of a user's clusters share.
    shared = tmp_path / f"airflow-mirror-sandbox-{os.getuid()}"
    return [
        p.name
        for p in (*tmp_path.iterdir(), *shared.iterdir())
        if p not in (shared, tmp_path / "found.json", shared / ".lock")
    ]


def test_a_tiny_benchmark_measures_both_systems_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with bench(tmp_path, "--cases", "big", "--scale", "0.01", "--systems", ",".join(SYSTEMS)) as process:
        out, err = process.communicate(timeout=1800)
    assert process.returncode == 0, err[-4000:]
    assert "Throughput" in out and "1 KB, lz4" in out, out
    assert "no targets at scale 0.01" in err and "Targets" not in out, err[-4000:]
    found = Results.load((tmp_path / "found.json").read_text())
    (case,) = found.cases
    assert case.records == 76_800 and [r.system for r in case.runs] == list(SYSTEMS)
    assert not found.failures, err
    ours, theirs = case.runs[1], case.runs[0]
    # A watcher that was paused finds nearly all of a fast copy there at its first look: then no figure says anything.
    watched = [run for run in case.runs if run.records > case.records / 4]  # of MirrorMaker 2, the second half counts
    assert all(run.seconds > 0 and case.median(run.system, per_s) == run.per_s > 0 for run in watched), err
    assert ours.whole_cpu_s > 0 and theirs.whole_cpu_s > 0
    assert all(0 < run.cpu_s < run.whole_cpu_s for run in (ours, theirs) if run in watched), err
    assert 50 < ours.task_mb < 1000 < ours.task_mb + theirs.jvm_mb + 1000
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("surplus", "said"),
    [(1, "stopped at 25600 of 25601 records"), (-1, "25600 records on the target, 25599 on the source"), (0, None)],
    ids=["a-record-is-missing", "a-record-too-many", "as-many-as-there-are"],
)
def test_run_counts_only_if_target_holds_the_expected_records(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, surplus: int, said: str | None
) -> None:
    case = next(c for c in CASES if c.name == "big")
    world = World(Endpoint(source_cluster), Endpoint(target_cluster))
    task = Task(case, world, 0.003, topic_name, tmp_path / "run")
    logs: list[str] = []
    run = measure(LIMIT, task, case.total(0.003) + surplus, 1, WHOLE, lambda text: None, logs.append)
    assert (run.failed and run.failed.partition(", exit")[0], len(logs)) == (said, int(said is not None))


def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    with bench(tmp_path, "--cases", "big", "--scale", "tiny", "--systems", "ours") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "records," in line:  # the topic is filled; Spark is starting next
                break
        wait_for_spark(process.pid)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(300) == 130
    assert len(started) >= 4, started  # two brokers, Spark's JVM, its driver
    _, alive = psutil.wait_procs(started, timeout=240)
    assert alive == []
    assert left_over(tmp_path) == []


def wait_for_spark(pid: int) -> None:
    """Wait until Spark's JVM has started the job's own Python."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = child.cmdline()
                if command and "python" in command[0] and command[1].endswith("bulk_copy.py"):
                    return
        time.sleep(0.1)
    raise AssertionError("Spark did not start")
