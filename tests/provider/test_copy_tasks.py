"""Tasks that run a job: what they start, how they find it again, how it ends, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout

from airflow_mirror.errors import InvalidField, LedgerLost, LedgerMissing, MirrorError, TryAgain
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.spark_job import bounds
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan import Plan
from tests.provider.conftest import PLAN, Started, submitted
from tests.provider.tasks import by_airflow, the_time_is_over
from tests.unit.ledger.memory import MemoryLedger
from tests.waiting import wait_until


def ignores_sigterm(pid: Any) -> Any:
    try:
        (mask,) = re.findall(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_bulk_copy_returns_its_summary_and_forgets_its_job(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    result = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    assert result["records"] == 7
    assert context["task_state_store"] == {}, "clear means: run again"


def test_copies_keep_their_figures_where_airflow_is_told_to(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any],
    fake_spark: Started, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("AIRFLOW__MIRROR__METRICS_DIR", "/textfile")
    monkeypatch.setenv("AIRFLOW__MIRROR__ALARM", "company.oncall.page")
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    VerifyMirrorOperator(plan=PLAN, task_id="v", mirror=mirror).execute(context)
    copy, compare = fake_spark[0]
    assert copy["metrics_file"] == "/textfile/m.prom"
    assert "metrics_file" not in compare, "it has none"
    assert "alarm" not in {**copy, **compare}, "they guard no fence"


def test_tails_guard_calls_whom_airflow_is_told_to_call(
    monkeypatch: pytest.MonkeyPatch, mirror: dict[str, Any], plan: Plan
) -> None:
    """Of the worker that starts the tail, wherever its driver runs: nothing in the target's ledger names a function."""
    monkeypatch.setenv("AIRFLOW__MIRROR__ALARM", "company.oncall.page")
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail")
    assert task.spec(Mirror.from_dict(mirror), plan).alarm == "company.oncall.page"


def test_copys_figures_become_gauges_while_its_task_waits(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any],
    fake_spark: Started, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: list[Any] = []

    def tell(name: str, progress: dict[str, Any]) -> None:
        told.append((name, progress.get("phase")))

    monkeypatch.setattr("airflow_mirror.operators.spark_job.tell_copy", tell)
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    assert {name for name, _ in told} == {"m"}


def test_clearing_a_finished_copy_runs_a_new_job(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    dirs = [StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)["job_dir"] for _ in range(2)]
    assert [Path(d).name for d in dirs] == ["1", "2"]


@pytest.mark.parametrize(("try_number", "max_tries", "jobs"), [(2, 1, 1), (2, 2, 2)], ids=["retry", "cleared"])
def test_task_that_failed_behind_its_job_runs_it_again_once_it_is_cleared(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, monkeypatch: pytest.MonkeyPatch,
    try_number: int, max_tries: int, jobs: int,
) -> None:  # fmt: skip
    """Airflow keeps the job's handle: a comparison counted at the level that was asked for since."""

    def fails(*_: Any) -> None:
        raise TryAgain("the target does not answer")

    ti = context["ti"]
    ti.try_number, ti.max_tries = 1, 1
    with monkeypatch.context() as patched, pytest.raises(AirflowException, match="the target does not answer"):
        patched.setattr(StartMirrorOperator, "tell", fails)
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, retries=1).execute(context)
    ti.try_number, ti.max_tries = try_number, max_tries
    assert StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, retries=1).execute(context)["records"] == 7
    assert len(fake_spark[0]) == jobs and context["task_state_store"] == {}


def test_the_retry_of_a_killed_task_finds_the_running_job(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    first = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    monkeypatch.setattr(first, "poll_until_complete", die)
    with pytest.raises(Killed):
        first.execute(context)
    handle = context["task_state_store"]["mirror_job"]
    second = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    waiting = threading.Thread(target=lambda: pytest.raises(AirflowException, second.execute, context))  # type: ignore[call-overload]
    waiting.start()
    wait_until(lambda: second._job is not None or not waiting.is_alive())
    assert waiting.is_alive() and len(started) == 1
    assert process.members(Path(handle["dir"])) == [handle["pid"]]
    second.on_kill()
    waiting.join(timeout=240)
    assert not waiting.is_alive()


def test_crash_before_storing_the_job_id_starts_nothing_twice(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"
    jobs = []
    for _ in range(2):
        jobs.append(submitted(StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror), plan, context))
    assert jobs[0] == jobs[1] and len(started) == 1


def test_killing_the_task_stops_the_job_within_five_seconds(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, behaviour = fake_spark
    behaviour["is"] = "stubborn_worker"
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    handle = submitted(task, plan, context)
    job_dir = Path(handle["dir"])
    wait_until(lambda: len(process.members(job_dir)) == 2 and any(map(ignores_sigterm, process.members(job_dir))))
    graces, kills = list[float](), list[int]()
    wait_until_gone, kill = process.wait_until_gone, os.kill

    def waits(job_dir: Any, timeout_s: Any, *seen: Any) -> Any:
        if len(graces) < 2:  # how often it looks again after SIGKILL is up to the machine
            graces.append(timeout_s)
        return wait_until_gone(job_dir, timeout_s / 10, *seen)  # one that ignores the signal is waited for in vain

    def kills_one(pid: int, number: int) -> None:
        kills.extend([number] if number == signal.SIGKILL else [])
        kill(pid, number)

    monkeypatch.setattr(process, "wait_until_gone", waits)
    monkeypatch.setattr(os, "kill", kills_one)
    task.on_kill()
    assert kills and graces and sum(graces) <= 5
    assert process.members(Path(handle["dir"])) == []
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).on_kill()  # before submit: nothing to do


@pytest.mark.parametrize("kind", ["bulk copy", "comparison"])
def test_task_that_is_killed_while_it_starts_its_job_leaves_none(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path, kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """There was no handle yet, and Airflow's handler of SIGTERM does not end the task's process."""
    fake_spark[1]["is"] = "sleep"
    operator = StartMirrorOperator if kind == "bulk copy" else VerifyMirrorOperator
    task = operator(plan=PLAN, task_id="t", mirror=mirror)
    ensure_started = LocalRunner.ensure_started

    def killed_meanwhile(*given: Any) -> Any:
        task.on_kill()
        return ensure_started(*given)

    monkeypatch.setattr(LocalRunner, "ensure_started", killed_meanwhile)
    submitted(task, plan, context)
    assert len(fake_spark[0]) == 1 and LocalRunner(home / "m").running() == []
    again = operator(plan=PLAN, task_id="t", mirror=mirror)
    again.on_kill()
    with pytest.raises(TryAgain, match="job .* is not started: its task was killed"):
        submitted(again, plan, context)
    assert len(fake_spark[0]) == 1


def test_task_that_is_killed_before_it_looks_at_its_job_again_ends_that(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The job of an earlier try, whose handle Airflow has kept. Nothing is waited for."""
    fake_spark[1]["is"] = "sleep"
    monkeypatch.setattr("airflow_mirror.operators.spark_job.time", SimpleNamespace(monotonic=time.monotonic))
    first, retry = (StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror) for _ in range(2))
    context["task_state_store"].set("mirror_job", submitted(first, plan, context))
    retry.on_kill()
    with pytest.raises(AirflowException, match="JobFailed"):
        retry.execute(context)
    assert len(fake_spark[0]) == 1 and LocalRunner(home / "m").running() == []


def test_execution_timeout_stops_the_job(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Airflow's own runner: it raises in the task's thread, then calls on_kill."""
    fake_spark[1]["is"] = "sleep"
    task = StartMirrorOperator(task_id="t", mirror=mirror, plan=PLAN, execution_timeout=timedelta(hours=1))
    monkeypatch.setattr(task, "is_job_active", the_time_is_over)  # asked as soon as the job runs
    with pytest.raises(AirflowTaskTimeout):
        by_airflow(task, context)
    assert task._job is not None and process.members(Path(task._job["dir"])) == []


@pytest.mark.parametrize(
    ("behaviour", "final", "message"),
    [
        ("damaged", True, r"(?s)JobNeedsHuman: .*t-0 offsets \[3, 9\): foreign data"),
        ("wrong_input", True, "(?s)InputError: job .*log:"),
        ("broken", False, "(?s)JobFailed: .*a broker was down"),
        ("mute", False, "JobFailed: .*ended LOST"),
    ],
)
def test_how_a_job_ended_decides_about_a_retry(
    behaviour: str,
    final: bool,
    message: str,
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    fake_spark[1]["is"] = behaviour
    with pytest.raises(AirflowException, match=message) as caught:
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    assert isinstance(caught.value, AirflowFailException) == final


def test_secrets_stay_out_of_command_line_handle_and_result(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    result = task.execute(context)
    assert "hunter2" not in json.dumps([fake_spark[0], result, task._job])


def test_the_window_goes_to_the_job(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    start, end = "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"
    verifying = {**context, "ti": type("AnotherTI", (type(context["ti"]),), {"task_id": "verify"})()}
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, start=start, end=end, late_s=0).execute(context)
    VerifyMirrorOperator(plan=PLAN, task_id="v", mirror=mirror, start=start, end=end, late_s=0).execute(verifying)
    for asked in fake_spark[0]:
        assert (asked["start"], asked["end"], asked["late_s"]) == (start, end, 0)
    assert len(fake_spark[0]) == 2


@pytest.mark.parametrize(
    ("rendered", "passed"),
    [
        ("2026-05-01 10:00:00+02:00", "2026-05-01T10:00:00+02:00"),  # {{ data_interval_start }}
        ("2026-05-01", "2026-05-01T00:00:00+00:00"),  # {{ ds }}
        ("20260501T102000", "2026-05-01T10:20:00+00:00"),  # {{ ts_nodash }}
        (datetime(2026, 5, 1, 10), "2026-05-01T10:00:00+00:00"),  # native rendering
        (pendulum.datetime(2026, 5, 1, 10, tz="Europe/Paris"), "2026-05-01T10:00:00+02:00"),
        ("latest", "latest"),
    ],
)
def test_a_point_in_time_goes_to_the_job_with_its_zone(rendered: object, passed: str) -> None:
    assert bounds(None, rendered) == {"end": passed}


@pytest.mark.parametrize("rendered", ["yesterday", "10:00", "P1D", "2026-05-01/2026-05-02", "{{ ds }}", 7])
def test_what_is_no_point_in_time_fails_before_a_job_starts(rendered: object) -> None:
    with pytest.raises(InvalidField, match=r"^end=.*not a point in time"):
        bounds(None, rendered)


def test_tail_task_returns_while_the_tail_goes_on_copying(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second start finds the same tail; a stop ends it with all its processes. Both tasks link its log."""
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", "https://files")
    fake_spark[1]["is"] = "copying"
    start, found = (StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail") for _ in range(2))
    first, again = start.execute(context), found.execute(context)
    assert first == again and len(fake_spark[0]) == 1
    log = f"https://files/{Path(first['job_dir']).relative_to(home)}/log.txt"
    assert start.shown_links["_link_JobLogLink"] == found.shown_links["_link_JobLogLink"] == log
    tail = LocalRunner(home / "m").find("tail")
    assert tail is not None
    assert LocalRunner(home / "m").status(tail) == "RUNNING"
    stopped = StopMirrorOperator(task_id="s", mirror=mirror).execute(context)
    assert (stopped["stopped"], stopped["tail"]) == (1, "SUCCEEDED")
    assert process.members(Path(tail["dir"])) == []
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context)["stopped"] == 0


def test_stopping_what_never_ran_is_no_error(
    context: dict[str, Any], connections: Callable[..., None], home: Path, mirror: dict[str, Any]
) -> None:
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context) == {"stopped": 0}


@pytest.mark.parametrize(
    ("lost", "fails"), [(LedgerLost("records are missing"), True), (LedgerMissing(), False)], ids=["lost", "missing"]
)
def test_stop_that_can_not_know_of_a_tail_elsewhere_is_not_green(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path, ledger: MemoryLedger,
    monkeypatch: pytest.MonkeyPatch, lost: MirrorError, fails: bool,
) -> None:  # fmt: skip
    """What runs on this host is stopped all the same. A target without a ledger has no mirror."""
    fake_spark[1]["is"] = "copying"
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
    tail = LocalRunner(home / "m").find("tail")
    assert tail is not None

    def values() -> Any:
        raise lost

    monkeypatch.setattr(ledger, "values", values)
    stop = StopMirrorOperator(task_id="s", mirror=mirror)
    if fails:
        with pytest.raises(AirflowFailException, match=r"(?s)LedgerLost: .*on\s+another\s+one"):
            stop.execute(context)
    else:
        assert stop.execute(context) == {"stopped": 1}
    assert process.members(Path(tail["dir"])) == []


def test_tail_that_dies_at_once_fails_its_task(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    """The error has the tail's own cause."""
    fake_spark[1]["is"] = "damaged"
    with pytest.raises(AirflowFailException, match="foreign data"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
