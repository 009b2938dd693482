"""The runner's rules, with real child processes: find again, never twice, never half."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError, JobFailed, JobNeedsHuman, TryAgain, WriterRuns
from airflow_mirror.jobs.runner import directory, local, process
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.command import Submission
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.jobs.runner.spec import JobSpec
from tests.waiting import wait_until

FAKE = str(Path(__file__).with_name("fake_job.py"))
SECRETS = {
    "source": ClientConfig({"bootstrap.servers": "s:1", "sasl.password": "hunter2-source"}, "source"),
    "target": ClientConfig({"bootstrap.servers": "t:1", "sasl.password": "hunter2-target"}, "target"),
}


def submit(submission: Submission) -> list[str]:
    return [sys.executable, FAKE, *submission.arguments, submission.conf["behaviour"]]


def spec(behaviour: str = "sleep", kind: str = "bulk_copy", **mirror: Any) -> JobSpec:
    given = {"name": "m", "source": "a", "target": "b", **mirror}
    return JobSpec(kind=kind, mirror=given, spark_conf={"behaviour": behaviour})


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[LocalRunner | None]:
    runner = LocalRunner(tmp_path / "m", ThisHost(submit))
    yield runner
    runner.cancel_all(grace_s=0.5)
    for job_dir in (tmp_path / "m" / "jobs").glob("*/*"):
        process.end_job(job_dir, grace_s=0)


def ended(runner: LocalRunner, handle: dict[str, Any]) -> str:
    wait_until(lambda: runner.status(handle) != "RUNNING")
    return runner.status(handle)


def test_a_job_that_ends_well_leaves_its_summary(runner: LocalRunner) -> None:
    handle = runner.ensure_started("bulk", spec("quick"), SECRETS)
    assert ended(runner, handle) == "SUCCEEDED"
    assert runner.summary(handle) == {"records": 7, "kind": "bulk_copy", "source": True}
    runner.raise_for(handle)  # nothing to raise


def test_the_second_start_of_a_running_job_is_the_first(runner: LocalRunner) -> None:
    first = runner.ensure_started("bulk", spec(), SECRETS)
    assert LocalRunner(runner.jobs.parent, ThisHost(submit)).ensure_started("bulk", spec(), SECRETS) == first
    assert directory.generations(runner.jobs / "bulk") == [1]


def test_a_handle_survives_json(runner: LocalRunner) -> None:
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    assert runner.status(json.loads(json.dumps(handle))) == "RUNNING"


def test_running_job_with_another_spec_conflicts_naming_the_remedy(runner: LocalRunner) -> None:
    runner.ensure_started("bulk", spec(), SECRETS)
    with pytest.raises(
        InputError,
        match=r"^job 'bulk' is already running with another specification: \w+ runs, \w+ was requested; directory /.*"
        r"\. Stop it first \(StopMirrorOperator\), or wait until it ends.$",
    ):
        runner.ensure_started("bulk", spec(offsets="mapped"), SECRETS)


def test_mirror_has_one_writer_but_verification_runs_beside_it(runner: LocalRunner) -> None:
    runner.ensure_started("tail", spec(kind="streaming_tail"), SECRETS)
    with pytest.raises(WriterRuns, match="'tail' is already running"):
        runner.ensure_started("bulk", spec(), SECRETS)
    assert runner.status(runner.ensure_started("verify", spec(kind="verify"), SECRETS)) == "RUNNING"


def test_job_started_after_one_ended_is_a_new_generation(runner: LocalRunner) -> None:
    """The job that ended is left alone, and its summary can still be read."""
    first = runner.ensure_started("bulk", spec("quick"), SECRETS)
    ended(runner, first)
    second = runner.ensure_started("bulk", spec("quick"), SECRETS)
    assert (first["generation"], second["generation"]) == (1, 2)
    assert ended(runner, second) == "SUCCEEDED"
    assert runner.summary(first)["records"] == 7


def test_killed_job_is_lost_and_restart_leaves_no_worker(runner: LocalRunner) -> None:
    first = runner.ensure_started("bulk", spec("stubborn_worker"), SECRETS)
    wait_until(lambda: {os.getpgid(pid) for pid in process.members(Path(first["dir"]))} - {first["pid"]})
    os.killpg(first["pid"], signal.SIGKILL)
    assert ended(runner, first) == "LOST"
    assert len(process.members(Path(first["dir"]))) == 1, "the worker has its own process group and outlives the kill"
    with pytest.raises(JobFailed, match="bulk/1.* ended LOST"):
        runner.raise_for(first)
    runner.ensure_started("bulk", spec("stubborn_worker"), SECRETS)
    assert process.members(Path(first["dir"])) == []


def test_a_job_ends_with_its_driver_not_with_its_jvm(tmp_path: Path) -> None:
    """The next start waits for no JVM, and is no conflict with a job of which nobody is left."""
    jvm = "import subprocess, sys, time; subprocess.run(sys.argv[1:]); time.sleep(60)"
    runner = LocalRunner(tmp_path / "m", ThisHost(lambda one: [sys.executable, "-c", jvm, *submit(one)]))
    try:
        handle = runner.ensure_started("tail", spec("copying", "streaming_tail"), SECRETS)
        wait_until(lambda: runner.progress(handle).get("phase") == "copying")
        driver = directory.read_json(Path(handle["dir"], "driver.json"))
        assert driver is not None and runner.status(handle) == "RUNNING"
        os.kill(driver["pid"], signal.SIGKILL)
        wait_until(lambda: not process.is_alive(driver["pid"], driver["started"]))
        assert process.is_alive(handle["pid"], handle["started"]) and runner.status(handle) == "LOST"
        again = runner.ensure_started("tail", spec("copying", "streaming_tail", topics=["more"]), SECRETS)
        assert again["generation"] == 2 and not process.members(Path(handle["dir"]))
    finally:
        for job_dir in runner.jobs.glob("*/*"):
            process.end_job(job_dir, grace_s=0)


def test_job_whose_starter_died_before_job_json_is_found(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalRunner, "_record", die)
    with pytest.raises(KeyboardInterrupt):
        runner.ensure_started("bulk", spec(), SECRETS)
    monkeypatch.undo()
    assert not (runner.jobs / "bulk/1/job.json").exists()
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    assert handle["generation"] == 1
    assert process.members(Path(handle["dir"])) == [handle["pid"]]
    assert runner.status(handle) == "RUNNING"


@pytest.mark.parametrize("is_held", [False, True])
def test_job_whose_starter_is_still_at_it_is_left_to_it(
    runner: LocalRunner, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looked for a job while another host started it wrote that it had none: the job was lost to all."""
    job_dir = directory.open_generation(runner.jobs / "bulk", spec())
    theirs = {"name": "bulk", "generation": 1, "dir": str(job_dir), "where": "elsewhere", "pid": 7}

    def look(_: Path) -> bool:
        directory.write_json(job_dir / "job.json", theirs)
        return is_held

    monkeypatch.setattr(local, "is_locked", look)
    assert runner.find("bulk") == theirs == directory.read_json(job_dir / "job.json")


def test_job_of_a_host_that_has_the_home_elsewhere_is_read_here(runner: LocalRunner) -> None:
    """Its directory there is none here: it counted as lost, and a second copy began beside it."""
    job_dir = directory.open_generation(runner.jobs / "bulk", spec())
    theirs = {
        "name": "bulk", "generation": 1, "dir": "/mnt/their-home/jobs/bulk/1", "where": "elsewhere", "host": "w-3",
        "pid": 7, "started": 1, "place": "client", "kind": "bulk_copy", "spec": spec().hash,
    }  # fmt: skip
    directory.write_json(job_dir / "job.json", theirs)
    directory.write_json(job_dir / "status.json", {"state": "RUNNING", "updated": time.time(), "phase": "copying"})
    (job_dir / "log.txt").write_text("it copies")
    assert runner.status(theirs) == "RUNNING" and runner.progress(theirs)["phase"] == "copying"
    assert runner.log_tail(theirs) == "it copies"
    with pytest.raises(TryAgain, match="runs on host 'w-3' .directory /mnt/their-home"):
        runner.ensure_started("bulk", spec(), SECRETS)
    with pytest.raises(TryAgain, match="on this host before its last boot"):
        runner.cancel({**theirs, "host": process.hostname()})


@pytest.mark.parametrize("is_read", [True, False], ids=["its own", "another job's"])
def test_job_from_before_the_home_had_another_path_is_read_where_it_is(
    runner: LocalRunner, tmp_path: Path, is_read: bool
) -> None:
    """Of that name and number the new home has none, or another one's. It counted as lost, and began a second time."""
    job_dir = directory.open_generation(tmp_path / "before" / "jobs" / "bulk", spec())
    theirs = {
        "name": "bulk", "generation": 1, "dir": str(job_dir), "where": "elsewhere", "host": "w-3", "pid": 7, "started": 1,
        "place": "client", "kind": "bulk_copy", "spec": spec().hash,
    }  # fmt: skip
    directory.write_json(job_dir / "job.json", theirs if is_read else theirs | {"pid": 8})
    directory.write_json(job_dir / "status.json", {"state": "RUNNING", "updated": time.time()})
    assert runner.status(theirs) == ("RUNNING" if is_read else "LOST")


def test_generation_without_a_child_is_lost_and_next_is_new(runner: LocalRunner) -> None:
    """The starter died before the child existed."""
    directory.open_generation(runner.jobs / "bulk", spec())
    handle = runner.ensure_started("bulk", spec("quick"), SECRETS)
    assert handle["generation"] == 2
    assert runner.status({**handle, "dir": str(runner.jobs / "bulk/1"), "pid": 0}) == "LOST"


def test_starter_is_killed_and_the_job_lives_on(runner: LocalRunner, tmp_path: Path) -> None:
    code = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
from test_local_runner import *
handle = LocalRunner({str(runner.jobs.parent)!r}, ThisHost(submit)).ensure_started("bulk", spec(), SECRETS)
print(handle["pid"], flush=True); time.sleep(60)
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.wait()
    starter.stdout.close()
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    assert (handle["pid"], handle["generation"], runner.status(handle)) == (pid, 1, "RUNNING")


def test_a_recycled_pid_is_not_the_job(runner: LocalRunner) -> None:
    handle = runner.ensure_started("bulk", spec("quick"), SECRETS)
    ended(runner, handle)
    (Path(handle["dir"]) / "status.json").unlink()
    assert runner.status({**handle, "pid": os.getpid()}) == "LOST"


def test_job_of_another_host_is_not_judged_by_pid(runner: LocalRunner) -> None:
    handle = runner.ensure_started("bulk", spec("polite"), SECRETS)
    wait_until(lambda: (Path(handle["dir"]) / "driver.json").exists())
    there = {**handle, "host": "elsewhere", "where": "elsewhere"}
    directory.write_json(Path(handle["dir"]) / "job.json", there)
    assert runner.status({**there, "pid": 1}) == "RUNNING"
    with pytest.raises(TryAgain, match="runs on host 'elsewhere'"):
        runner.ensure_started("bulk", spec("polite"), SECRETS)
    with pytest.raises(TryAgain, match="only there"):
        runner.cancel(there)
    report = Path(handle["dir"]) / "status.json"
    directory.write_json(report, {**json.loads(report.read_text()), "updated": time.time() - 3600})
    assert runner.status(there) == "LOST"
    directory.write_json(Path(handle["dir"]) / "job.json", handle)


def test_what_a_silent_job_of_another_host_may_use_stays(runner: LocalRunner) -> None:
    """Its directory of shuffles was removed on a shared disk, although nobody could know that it had ended."""
    handle = runner.ensure_started("bulk", spec("quick"), SECRETS)
    ended(runner, handle)
    directory.write_json(Path(handle["dir"]) / "job.json", {**handle, "host": "elsewhere", "where": "elsewhere"})
    directory.write_json(Path(handle["dir"]) / "status.json", {"state": "RUNNING", "updated": 0.0})
    in_use = Path(handle["dir"], "spark")
    in_use.mkdir()
    assert runner.ensure_started("bulk", spec("quick"), SECRETS)["generation"] == 2 and in_use.exists()
    directory.write_json(Path(handle["dir"]) / "job.json", handle)
    runner._clean_up(handle)
    assert not in_use.exists()


def test_machines_of_one_name_are_not_one_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each declared the other's processes gone: outside of containers the namespace has the same number everywhere."""
    seen = set()
    monkeypatch.setattr(process, "_BOOT_ID", tmp_path / "boot_id")
    for text in ("one\n", "other\n"):
        (tmp_path / "boot_id").write_text(text)
        assert process.here() == process.here()
        seen.add(process.here())
    (tmp_path / "boot_id").unlink()
    assert len({*seen, process.here()}) == 3 and process.here().startswith(process.hostname())


def test_job_that_another_host_has_just_started_runs(runner: LocalRunner) -> None:
    """It takes seconds until it says its first word. It was called lost, and started again beside itself."""
    handle = runner.ensure_started("bulk", spec("slow_to_report"), SECRETS)
    there = {**handle, "host": "elsewhere", "where": "elsewhere"}
    directory.write_json(Path(handle["dir"]) / "job.json", there)
    assert runner.status(there) == "RUNNING" and runner.progress(there)["phase"] == "starting"
    with pytest.raises(TryAgain, match="runs on host 'elsewhere'"):
        runner.ensure_started("bulk", spec("slow_to_report"), SECRETS)
    directory.write_json(Path(handle["dir"]) / "job.json", handle)


@pytest.mark.parametrize(
    ("behaviour", "error"), [("wrong_input", InputError), ("damaged", JobNeedsHuman), ("broken", JobFailed)]
)
def test_the_branch_of_an_error_crosses_the_process_boundary(runner: LocalRunner, behaviour: str, error: type) -> None:
    handle = runner.ensure_started("bulk", spec(behaviour), SECRETS)
    assert ended(runner, handle) == "FAILED"
    with pytest.raises(error, match=r"log\.txt"):
        runner.raise_for(handle)


def test_stop_lets_the_driver_finish(runner: LocalRunner) -> None:
    handle = runner.ensure_started("tail", spec("polite", "streaming_tail"), SECRETS)
    wait_until(lambda: (Path(handle["dir"]) / "driver.json").exists())
    assert runner.cancel(handle, grace_s=10)
    assert runner.status(handle) == "SUCCEEDED"
    assert runner.summary(handle) == {"stopped": "cleanly"}
    assert runner.cancel(handle), "stopping twice is no error"


def test_stop_ends_what_does_not_listen(runner: LocalRunner) -> None:
    handle = runner.ensure_started("bulk", spec("stubborn_worker"), SECRETS)
    wait_until(lambda: len(process.members(Path(handle["dir"]))) == 2)
    runner.cancel(handle, grace_s=0.5)
    assert process.members(Path(handle["dir"])) == []
    assert runner.status(handle) == "LOST"


def test_a_process_that_ends_counts_until_it_is_gone(tmp_path: Path) -> None:
    """It gives up its environment, by which it is found, before: a cancelled job was called running."""
    gives_up = "os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(0.5)'], {})"
    ends_late = f"signal.signal(15, lambda *_: {gives_up})"
    code = f"import os, signal, sys, time; {ends_late}; print(1, flush=True); time.sleep(60)"
    environment = {**os.environ, process.JOB_DIR_VARIABLE: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None and job.stdout.readline()
        started = process.started_at(job.pid)

        def send(pids: list[int], number: int) -> None:
            process.end(pids, number)
            wait_until(lambda: not process.members(tmp_path))

        assert process.members(tmp_path) == [job.pid]
        assert process.end_job(tmp_path, grace_s=60, send=send) and not process.is_alive(job.pid, started)


def test_a_process_amid_an_exec_is_ended_as_well(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no environment for a moment: a job that was stopped right behind its start ran on."""
    handle = runner.ensure_started("bulk", spec("stubborn_worker"), SECRETS)
    wait_until(lambda: len(process.members(Path(handle["dir"]))) == 2)
    monkeypatch.setattr(process, "_members", lambda _: {})
    runner.cancel(handle, grace_s=0.1)
    assert not process.is_alive(handle["pid"], handle["started"])
    monkeypatch.undo()
    runner.cancel(handle, grace_s=0.1)


def test_secrets_are_in_no_job_file_or_command_line(runner: LocalRunner) -> None:
    handle = runner.ensure_started("tail", spec("polite", "streaming_tail"), SECRETS)  # it lives while it is looked at
    wait_until(lambda: (Path(handle["dir"]) / "driver.json").exists())
    files = [p for p in Path(handle["dir"]).rglob("*") if p.is_file()]
    assert {"spec.json", "request.json", "job.json", "log.txt"} <= {p.name for p in files}
    command = Path(f"/proc/{handle['pid']}/cmdline").read_bytes()
    asked = json.loads((Path(handle["dir"]) / "request.json").read_text())
    assert asked["source"] == "env:AIRFLOW_MIRROR_SOURCE"
    assert runner.cancel(handle, grace_s=60)
    assert not [p for p in files if b"hunter2" in p.read_bytes()] and b"hunter2" not in command


def test_the_job_does_not_inherit_airflows_settings(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://secret")
    handle = runner.ensure_started("bulk", spec(), SECRETS)
    wait_until(lambda: b"AIRFLOW_MIRROR_SOURCE" in Path(f"/proc/{handle['pid']}/environ").read_bytes())
    assert b"AIRFLOW__DATABASE" not in Path(f"/proc/{handle['pid']}/environ").read_bytes()


def test_job_names_are_file_names_and_differ_by_parts() -> None:
    assert directory.job_name("dag", "t", "manual__2026-01-01T00:00:00+00:00", -1) == (
        "dag--t--manual__2026-01-01T00_00_00+00_00"
    )
    assert directory.job_name("d", "t", "r", 0) != directory.job_name("d", "t", "r", 1)
    assert "/" not in directory.job_name("../../etc", "t", "r", 3)


def test_long_job_names_differ_by_what_stands_last() -> None:
    """Two mapped tasks, or two runs, of a DAG with a long name had one job: one took the other's result."""
    dag, task = "d" * 150, "group." + "t" * 60
    names = {directory.job_name("bulk_copy", dag, task, run, part) for run in ("r1", "r2") for part in (0, 1)}
    assert len(names) == 4 and {len(name) for name in names} == {200}
    assert directory.job_name(dag, task) == directory.job_name(dag, task)
    assert directory.job_name("d" * 200) == "d" * 200


def test_of_the_jobs_that_ended_only_the_last_are_kept(runner: LocalRunner) -> None:
    runner = LocalRunner(runner.jobs.parent, runner.place, keep=2)
    for n in range(4):
        handle = runner.ensure_started(f"window-{n}", spec("quick"), SECRETS)
        ended(runner, handle)
        wait_until(lambda h=handle: not process.is_alive(h["pid"], h["started"]))
        os.utime(handle["dir"], (n, n))
    runner.ensure_started("window-4", spec(), SECRETS)
    assert sorted(p.name for p in runner.jobs.iterdir() if p.is_dir()) == ["window-2", "window-3", "window-4"]


def test_old_jobs_of_a_home_that_was_moved_are_forgotten(runner: LocalRunner) -> None:
    """The task failed behind the start of its job, because the old ones' directories were looked for where they were."""
    for n in range(2):
        handle = runner.ensure_started(f"window-{n}", spec("quick"), SECRETS)
        ended(runner, handle)
        wait_until(lambda h=handle: not process.is_alive(h["pid"], h["started"]))
        os.utime(handle["dir"], (n, n))
    moved = runner.jobs.parent.rename(runner.jobs.parent.with_name("moved"))
    runner = LocalRunner(moved, runner.place, keep=1)
    handle = runner.ensure_started("window-2", spec(), SECRETS)
    assert runner.status(handle) == "RUNNING"
    assert sorted(p.name for p in runner.jobs.iterdir() if p.is_dir()) == ["window-1", "window-2"]
    runner.cancel(handle, grace_s=0.5)


def test_of_the_tails_starts_the_last_are_kept_and_each_that_runs(runner: LocalRunner) -> None:
    """Each is a generation of one job. An older one may run on another host that shares the directory."""
    runner = LocalRunner(runner.jobs.parent, runner.place, keep=3)
    elsewhere = runner.jobs / "tail" / "2"
    for n in range(1, 7):
        handle = runner.ensure_started("tail", spec("quick", "streaming_tail"), SECRETS)
        ended(runner, handle)
        wait_until(lambda h=handle: not process.is_alive(h["pid"], h["started"]))
        if n == 2:
            directory.write_json(elsewhere / "job.json", {**handle, "where": "another host"})
            directory.write_json(elsewhere / "status.json", {"state": "RUNNING", "updated": time.time()})
    assert directory.generations(runner.jobs / "tail") == [2, 4, 5, 6]
    directory.write_json(elsewhere / "status.json", {"state": "RUNNING", "updated": 0.0})
    ended(runner, runner.ensure_started("tail", spec("quick", "streaming_tail"), SECRETS))
    assert directory.generations(runner.jobs / "tail") == [5, 6, 7]


def test_job_that_ended_is_no_zombie_of_who_started_it(runner: LocalRunner) -> None:
    """`airflow-mirror run` lives for months, and starts a tail again and again."""
    handle = runner.ensure_started("bulk", spec("quick"), SECRETS)
    wait_until(lambda: not Path(f"/proc/{handle['pid']}").exists())
    assert runner.status(handle) == "SUCCEEDED"
