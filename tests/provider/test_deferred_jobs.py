"""Jobs whose drivers run on a cluster are waited for in the triggerer: no slot is held, and nothing is judged there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout, TaskDeferred

from airflow_mirror.errors import ClusterUnreachable, MirrorPaused
from airflow_mirror.hooks import job_reports
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.jobs.runner import cluster_mode, process, reports
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.operators import spark_job
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.triggers import job as job_trigger
from airflow_mirror.triggers.job import JobTrigger
from tests.provider.conftest import PLAN, InMemory, Started
from tests.unit.ledger.memory import MemoryState


@pytest.fixture(autouse=True)
def away(
    fake_spark: Started, clusters: InMemory, state: MemoryState, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake Spark's drivers are on a cluster: nothing of them is on this host, and they report to the target."""
    monkeypatch.setattr(ThisHost, "is_away", lambda *_: True)
    monkeypatch.setattr(cluster_mode, "state_of", lambda *_: state)
    fake_spark[1]["is"] = "slow"


def deferred(context: dict[str, Any], mirror: dict[str, Any], operator: Any = StartMirrorOperator) -> TaskDeferred:
    """Have a task of its own begin to wait."""
    with pytest.raises(TaskDeferred) as e:
        operator(plan=PLAN, task_id="t", mirror=mirror, deferrable=True).execute(context)
    return e.value


def trigger_of(wait: TaskDeferred) -> JobTrigger:
    path, kwargs = wait.trigger.serialize()
    assert path == "airflow_mirror.triggers.job.JobTrigger"
    return JobTrigger(**json.loads(json.dumps(kwargs)))


def event_of(trigger: JobTrigger) -> dict[str, Any]:
    async def heard() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    (one,) = asyncio.run(heard())
    return one


def resume(wait: TaskDeferred, event: Any, context: dict[str, Any], mirror: dict[str, Any], operator: Any) -> Any:
    """Go on in another process: nothing but what Airflow keeps is known there."""
    task = operator(plan=PLAN, task_id="t", mirror=mirror, deferrable=True)
    kwargs = json.loads(json.dumps(wait.kwargs))
    return getattr(task, wait.method_name)(context, event, **kwargs)


def ends(wait: TaskDeferred, behaviour: Callable[[Path], None]) -> None:
    """Let the job end: its process is gone, and its files say how."""
    handle = (wait.kwargs or {})["external_id"]
    os.killpg(handle["pid"], signal.SIGKILL)
    assert process.wait_until_dead(handle["pid"], handle["started"], 20)
    behaviour(Path(handle["dir"], "status.json"))


@pytest.mark.parametrize("operator", [StartMirrorOperator, VerifyMirrorOperator])
def test_task_frees_its_slot_and_returns_the_summary(
    operator: Any, context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    monkeypatch.setattr(operator, "tell", lambda *_: told.append("told"))
    wait = deferred(context, mirror, operator)
    assert not told and "mirror_job" in context["task_state_store"], "a retry would find the job"
    summary = {"records": 7, "end_offsets": {}}
    reports.write(state, reports.report_key("m", (wait.kwargs or {})["external_id"]["id"]), {
        "state": "SUCCEEDED", "updated": 1.5, "summary": summary,
    })  # fmt: skip
    event = event_of(trigger_of(wait))
    assert event == {"said": "the job said SUCCEEDED"}
    ends(wait, lambda path: path.write_text(json.dumps({"state": "SUCCEEDED", "summary": summary})) and None)
    found = resume(wait, event, context, mirror, operator)
    assert found["records"] == 7 and told == ["told"] and "mirror_job" not in context["task_state_store"]


def test_job_that_says_nothing_is_looked_after_by_the_task(
    context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for the cluster, or be lost: the task asks whoever knows, and waits again, or fails."""
    monkeypatch.setattr(job_trigger, "_SILENT_S", 0.05)
    wait = deferred(context, mirror)
    event = event_of(trigger_of(wait))
    assert event == {"said": "the job has said nothing for 0 s"}
    with pytest.raises(TaskDeferred) as again:
        resume(wait, event, context, mirror, StartMirrorOperator)
    assert again.value.kwargs == wait.kwargs and again.value.trigger.serialize() == wait.trigger.serialize()
    ends(wait, lambda path: path.unlink(missing_ok=True))
    with pytest.raises(AirflowException, match="its process is gone"):
        resume(wait, event, context, mirror, StartMirrorOperator)


def test_job_is_waited_for_on_while_the_target_is_away(
    context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits for the target, too: its task failed, and so did each of its tries."""
    wait = deferred(context, mirror)

    def away(*_: Any) -> Any:
        raise ClusterUnreachable("target cluster", "b:1", "refused")

    monkeypatch.setattr("airflow_mirror.operators.base.plan_by_hash", away)
    with pytest.raises(TaskDeferred) as again:
        resume(wait, {"said": "the job has said nothing for 120 s"}, context, mirror, StartMirrorOperator)
    assert again.value.kwargs == wait.kwargs


def test_how_a_job_failed_is_told_as_if_the_task_had_waited(context: dict[str, Any], mirror: dict[str, Any]) -> None:
    wait = deferred(context, mirror)
    report = {"state": "FAILED", "blame": "input", "error": "topics='[': not a pattern"}
    ends(wait, lambda path: path.write_text(json.dumps(report)) and None)
    with pytest.raises(AirflowFailException, match="not a pattern"):
        resume(wait, {"said": "the job said FAILED"}, context, mirror, StartMirrorOperator)


def test_target_that_is_away_is_silence_and_no_error(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    wait, tries = deferred(context, mirror), list[int]()
    real = job_reports.JobReports

    def twice_away(*given: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise ClusterUnreachable("target cluster", "b:1", "refused")
        return real(*given)

    monkeypatch.setattr(job_reports, "JobReports", twice_away)
    key = reports.report_key("m", (wait.kwargs or {})["external_id"]["id"])
    reports.write(state, key, {"state": "SUCCEEDED", "updated": 1.5})
    assert event_of(trigger_of(wait))["said"] == "the job said SUCCEEDED" and len(tries) == 3
    assert capsys.readouterr().out.count("the job is not heard: target cluster") == 1


def test_user_who_marks_the_waiting_task_ends_the_job_and_nobody_else_does(
    context: dict[str, Any], mirror: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triggerer that was thought dead comes back, and its triggers are another one's by now: it is told the same."""
    trigger, runner, states = trigger_of(deferred(context, mirror)), LocalRunner(home / "m"), list[Any]()

    def state(**of: Any) -> Any:
        assert (of["dag_id"], of["task_ids"], of["map_index"]) == ("kafka_migration", ["bulk_copy"], -1)
        if (found := states.pop()) is None:
            raise RuntimeError("the API server is away")
        return {of["run_ids"][0]: {"bulk_copy": found}}

    monkeypatch.setattr(job_reports, "runner_for", lambda *_: runner)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.RuntimeTaskInstance.get_task_states", state)
    monkeypatch.setattr(JobTrigger, "task_instance", context["ti"])
    for one in ("deferred", "scheduled", "running", None):
        states.append(one)
        asyncio.run(trigger.on_kill())
        assert len(runner.running()) == 1
    states.append("failed")
    asyncio.run(trigger.on_kill())
    assert runner.running() == []


def test_task_whose_time_is_over_in_the_triggerer_ends_the_job(
    context: dict[str, Any], mirror: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = partial(StartMirrorOperator, execution_timeout=timedelta(hours=1))
    wait, runner = deferred(context, mirror, limited), LocalRunner(home / "m")
    assert wait.timeout is not None and 3500 < wait.timeout.total_seconds() <= 3600
    monkeypatch.setattr(job_trigger, "_SILENT_S", 0.05)
    later = 1200 + time.time() - 3600  # of an hour that has begun 40 minutes ago
    with pytest.raises(TaskDeferred) as again:
        task = limited(plan=PLAN, task_id="t", mirror=mirror, deferrable=True)
        task.resume(context, {"said": "nothing"}, **{**(wait.kwargs or {}), "until": later + 3600})
    assert again.value.timeout is not None and 1100 < again.value.timeout.total_seconds() <= 1200, "no hour anew"
    monkeypatch.setattr(job_reports, "runner_for", lambda *_: runner)
    with pytest.raises(TaskDeferralTimeout):
        task.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    assert runner.running() == []


@pytest.mark.parametrize("stored", [True, False])
def test_job_of_a_task_that_is_not_durable_is_ended_as_well(
    context: dict[str, Any], mirror: dict[str, Any], home: Path, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It copied on, with the writer's lease: nothing had kept which job it was."""
    if not stored:
        context["task_state_store"] = None
    given = partial(StartMirrorOperator, durable=False)
    deferred(context, mirror, given)
    task, runner = given(plan=PLAN, task_id="t", mirror=mirror, deferrable=True), LocalRunner(home / "m")
    assert len(runner.running()) == 1
    with monkeypatch.context() as elsewhere, pytest.raises(TaskDeferralTimeout):
        if stored:  # on a worker with directories of its own
            elsewhere.setattr(LocalRunner, "find", lambda *_: None)
        task.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    assert runner.running() == []


def test_finished_copy_is_no_failure_where_its_plan_can_not_be_read_again(
    context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, without a retry, or was run again: only to tell assets that nobody had asked for."""
    wait = deferred(context, mirror)
    ends(wait, lambda path: path.write_text(json.dumps({"state": "SUCCEEDED", "summary": {"records": 7}})) and None)

    def away(*_: Any) -> Any:
        raise ClusterUnreachable("target cluster", "b:1", "refused")

    monkeypatch.setattr("airflow_mirror.operators.base.load_plan", away)
    for outlets in ([], [AssetAlias("copied")]):
        task = StartMirrorOperator(task_id="t", mirror=mirror, deferrable=True, outlets=outlets)
        assert task.resume(context, {"said": "it ended"}, **(wait.kwargs or {}))["records"] == 7
    assert context["task_state_store"] == {}


def test_job_that_was_asked_for_something_else_is_not_taken_for_the_tasks_own(
    context: dict[str, Any], mirror: dict[str, Any]
) -> None:
    """A comparison of offsets turned a task green whose DAG had been edited to compare records."""
    wait = deferred(context, mirror, partial(VerifyMirrorOperator, level="offsets"))
    context["ti"].try_number, context["ti"].max_tries = 2, 2  # cleared
    edited = partial(VerifyMirrorOperator, level="records", retries=1)
    with pytest.raises(AirflowFailException, match="still runs .*\n.*for another plan or with other"):
        edited(plan=PLAN, task_id="t", mirror=mirror, deferrable=True).execute(context)
    same = deferred(context, mirror, partial(VerifyMirrorOperator, level="offsets", retries=1))
    assert same.kwargs == wait.kwargs, "it is waited for"
    ends(wait, lambda path: path.write_text(json.dumps({"state": "SUCCEEDED", "summary": {}})) and None)
    before, after = ((one.kwargs or {})["external_id"] for one in (wait, deferred(context, mirror, edited)))
    assert (before["generation"], after["generation"]) == (1, 2)


@pytest.mark.parametrize("kept", ["handle", "not durable", "killed before", "no store"])
@pytest.mark.parametrize("said", ["SUCCEEDED", "FAILED"])
def test_retry_that_asks_for_something_else_runs_its_job_behind_the_one_that_runs(
    context: dict[str, Any], mirror: dict[str, Any], said: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had edited the DAG: a newer release knew more fields. It failed for good, and its job ran unattended."""
    wait = deferred(context, mirror)
    if kept == "killed before":
        context["task_state_store"].clear()
    elif kept == "no store":
        context["task_state_store"] = None
    context["ti"].try_number, context["ti"].max_tries = 2, 1
    pauses = list[float]()

    def pause(seconds: float) -> None:
        if not pauses:
            ends(wait, lambda path: path.write_text(json.dumps({"state": said})) and None)
        pauses.append(seconds)

    monkeypatch.setattr(spark_job, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic, time=time.time))
    settings: dict[str, Any] = {"retries": 1, "spark_conf": {"spark.app.name": "newer"}, "durable": kept != "not durable"}
    newer = partial(StartMirrorOperator, **settings)
    after = (deferred(context, mirror, newer).kwargs or {})["external_id"]
    assert pauses and after["generation"] == 2
    assert kept == "no store" or context["task_state_store"]["mirror_job"] == after


@pytest.mark.parametrize("kept", ["handle", "killed before", "of the try before"])
@pytest.mark.parametrize("operator", [StartMirrorOperator, VerifyMirrorOperator])
def test_retry_of_a_mirror_that_was_edited_fails_behind_the_job_that_runs(
    context: dict[str, Any], mirror: dict[str, Any], operator: Any, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan was made for another one: it failed for good, and the job ran on unattended."""
    wait = deferred(context, mirror, operator)
    if kept == "killed before":
        context["task_state_store"].clear()
    elif kept == "of the try before":  # another one was begun since, and its try killed before it could store that
        stored = dict(context["task_state_store"])
        ends(wait, lambda path: path.write_text(json.dumps({"state": "FAILED", "error": "x"})) and None)
        context["task_state_store"].clear()
        wait = deferred(context, mirror, operator)
        assert (wait.kwargs or {})["external_id"]["generation"] == 2
        context["task_state_store"].update(stored)
    context["ti"].try_number, context["ti"].max_tries = 2, 1
    pauses = list[float]()

    def pause(seconds: float) -> None:
        ends(wait, lambda path: path.write_text(json.dumps({"state": "SUCCEEDED", "summary": {}})) and None)
        pauses.append(seconds)

    monkeypatch.setattr(spark_job, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic, time=time.time))
    edited = operator(plan=PLAN, task_id="t", mirror=mirror | {"exclude_topics": ["x"]}, retries=1)
    with pytest.raises(AirflowFailException, match="was made for another mirror"):
        edited.execute(context)
    assert len(pauses) == 1


def test_retry_of_a_copy_that_rests_in_a_pause_waits_for_it(
    context: dict[str, Any], mirror: dict[str, Any], clusters: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused as a new one: each retry was used up, and the job went on unattended behind the pause."""
    wait = deferred(context, mirror)
    context["ti"].try_number, context["ti"].max_tries = 2, 1

    def paused(_: TailView) -> None:
        raise MirrorPaused("m", "somebody", "noon")

    def pause(_: float) -> None:
        ends(wait, lambda path: path.write_text(json.dumps({"state": "SUCCEEDED", "summary": {"records": 7}})) and None)

    monkeypatch.setattr(TailView, "require_not_paused", paused)
    monkeypatch.setattr(spark_job, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic, time=time.time))
    assert StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, retries=1).execute(context)["records"] == 7
    with pytest.raises(AirflowException, match="paused"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, retries=1).execute(context)


def test_retry_that_is_killed_while_it_waits_for_another_job_ends_that(
    context: dict[str, Any], mirror: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred(context, mirror)
    context["ti"].try_number, context["ti"].max_tries = 2, 1
    newer = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, retries=1, spark_conf={"spark.app.name": "newer"})

    def pause(_: float) -> None:
        newer.on_kill()
        raise KeyboardInterrupt

    monkeypatch.setattr(spark_job, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    with pytest.raises(KeyboardInterrupt):
        newer.execute(context)
    assert LocalRunner(home / "m").running() == []


def test_comparison_counts_at_the_level_that_the_job_has_compared_by(
    context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = list[str]()
    kept = SimpleNamespace(add=lambda plan, ids, level, proven: added.append(level))
    monkeypatch.setattr("airflow_mirror.operators.verify.proofs_of", lambda *_: kept)
    wait = deferred(context, mirror, partial(VerifyMirrorOperator, level="batches"))
    report = {"state": "SUCCEEDED", "summary": {"level": "batches"}}
    ends(wait, lambda path: path.write_text(json.dumps(report)) and None)
    resume(wait, {"said": "it ended"}, context, mirror, partial(VerifyMirrorOperator, level="records"))
    assert added == ["batches"]


def test_directory_that_only_keeps_another_hosts_status_is_no_job(home: Path) -> None:
    """Its job was taken for one that was never submitted, and said to be lost; a second copy began beside it."""
    runner = LocalRunner(home / "m")
    status = home / "m" / "jobs" / "bulk" / "1" / "status.json"
    status.parent.mkdir(parents=True)
    status.write_text('{"state": "RUNNING"}')
    assert (
        runner.running() == [] and runner.find("bulk") is None and json.loads(status.read_text()) == {"state": "RUNNING"}
    )


def test_job_of_this_worker_is_waited_for_here(
    context: dict[str, Any], mirror: dict[str, Any], fake_spark: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else sees its files, and its driver is a process of this host."""
    monkeypatch.setattr(ThisHost, "is_away", lambda *_: False)
    fake_spark[1]["is"] = "quick"
    found = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, deferrable=True).execute(context)
    assert found["records"] == 7
