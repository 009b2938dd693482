"""Operators: what they refuse, how they find a running job again, what they leave behind."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.operators.cutover import CutoverOperator
from airflow_mirror.operators.drill import LoseSourceOperator, OpenDrillOperator
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.offsets import TranslateConsumerOffsetsOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.summaries import compact
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator

NEEDS_CLUSTERS = [
    PlanMirrorOperator, CreateTargetTopicsOperator, SyncTopicConfigsOperator, StartMirrorOperator, VerifyMirrorOperator,
    TranslateConsumerOffsetsOperator, CutoverOperator, OpenDrillOperator,
]  # fmt: skip


def until(question, timeout_s=240.0):
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ignores_sigterm(pid):
    try:
        (mask,) = re.findall(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("operator", NEEDS_CLUSTERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "nowhere"}, "UnknownConnection: connection 'nowhere'"),
        ({"target": "bare"}, "MissingSetting: connection 'bare' .*bootstrap.servers"),
        ({"topics": ["orders.*", "["]}, r"InvalidPattern: topics='\[': not a valid regular expression"),
        ({"target": "src"}, "InvalidField: target='src': source and target are the same connection"),
        ({"offset": "auto"}, "InvalidField: offset='auto': a Mirror has no such field"),
    ],
)
def test_wrong_input_fails_at_once_and_is_named(
    operator, change, message, context, connections, plan, mirror, fake_spark
):
    task = operator(task_id="t", mirror={**mirror, **change})
    with pytest.raises(AirflowFailException, match=message):
        task.execute(context)


def test_a_mirror_file_that_is_missing_is_named(context, home):
    with pytest.raises(AirflowFailException, match="mirror file '/no/where.yaml' can't be read"):
        PlanMirrorOperator(task_id="t", mirror="/no/where.yaml").execute(context)


def test_an_unreachable_source_is_retried(context, connections, home, mirror):
    with pytest.raises(AirflowException, match="ClusterUnreachable: source cluster: no broker at 127.0.0.1:1") as caught:
        PlanMirrorOperator(task_id="t", mirror=mirror).execute(context)
    assert not isinstance(caught.value, AirflowFailException)


def test_without_a_plan_the_remedy_is_said(context, connections, home, mirror, fake_spark):
    with pytest.raises(AirflowFailException, match="Run PlanMirrorOperator first"):
        StartMirrorOperator(task_id="t", mirror=mirror).execute(context)


def test_a_bulk_copy_returns_its_summary_and_forgets_its_job(context, connections, plan, mirror, fake_spark):
    result = StartMirrorOperator(task_id="t", mirror=mirror).execute(context)
    assert result["records"] == 7
    assert context["task_state_store"] == {}, "clear means: run again"


def test_clearing_a_finished_copy_runs_a_new_job(context, connections, plan, mirror, fake_spark):
    dirs = [StartMirrorOperator(task_id="t", mirror=mirror).execute(context)["job_dir"] for _ in range(2)]
    assert [Path(d).name for d in dirs] == ["1", "2"]


def test_the_retry_of_a_killed_task_finds_the_running_job(context, connections, plan, mirror, fake_spark, monkeypatch):
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    first = StartMirrorOperator(task_id="t", mirror=mirror)
    monkeypatch.setattr(first, "poll_until_complete", die)
    with pytest.raises(Killed):
        first.execute(context)
    handle = context["task_state_store"]["mirror_job"]
    second = StartMirrorOperator(task_id="t", mirror=mirror)
    waiting = threading.Thread(target=lambda: pytest.raises(AirflowException, second.execute, context))
    waiting.start()
    until(lambda: second._job is not None or not waiting.is_alive())
    assert waiting.is_alive() and len(started) == 1
    assert process.members(Path(handle["dir"])) == [handle["pid"]]
    second.on_kill()
    waiting.join(timeout=240)
    assert not waiting.is_alive()


def test_a_crash_before_the_job_id_was_stored_starts_nothing_twice(context, connections, plan, mirror, fake_spark):
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"
    jobs = []
    for _ in range(2):
        task = StartMirrorOperator(task_id="t", mirror=mirror)
        task._prepare(plan.mirror)
        jobs.append(task.submit_job(context))
    assert jobs[0] == jobs[1] and len(started) == 1


def test_killing_the_task_stops_the_job_within_five_seconds(context, connections, plan, mirror, fake_spark, monkeypatch):
    _, behaviour = fake_spark
    behaviour["is"] = "stubborn_worker"
    task = StartMirrorOperator(task_id="t", mirror=mirror)
    task._prepare(plan.mirror)
    handle = task.submit_job(context)
    job_dir = Path(handle["dir"])
    until(lambda: len(process.members(job_dir)) == 2 and any(map(ignores_sigterm, process.members(job_dir))))
    graces, kills = [], []
    wait_until_gone, end = process.wait_until_gone, process.end

    def waits(job_dir, timeout_s):
        if len(kills) < 2:  # how often it looks again after SIGKILL is up to the machine
            graces.append(timeout_s)
        return wait_until_gone(job_dir, timeout_s)

    def ends(pids, number):
        kills.extend([number] if number == signal.SIGKILL else [])
        end(pids, number)

    monkeypatch.setattr(process, "wait_until_gone", waits)
    monkeypatch.setattr(process, "end", ends)
    began = time.monotonic()
    task.on_kill()
    assert time.monotonic() - began < 40
    assert kills and graces and sum(graces) <= 5
    assert process.members(Path(handle["dir"])) == []
    StartMirrorOperator(task_id="t", mirror=mirror).on_kill()  # before submit: nothing to do


@pytest.mark.parametrize(
    ("behaviour", "final", "message"),
    [
        ("damaged", True, r"JobNeedsHuman: .*t-0 offsets \[3, 9\): foreign data"),
        ("wrong_input", True, "JobRefused"),
        ("broken", False, "JobFailed: .*a broker was down"),
        ("mute", False, "JobFailed: .*ended LOST"),
    ],
)
def test_how_a_job_ended_decides_about_a_retry(behaviour, final, message, context, connections, plan, mirror, fake_spark):
    fake_spark[1]["is"] = behaviour
    with pytest.raises(AirflowException, match=message) as caught:
        StartMirrorOperator(task_id="t", mirror=mirror).execute(context)
    assert isinstance(caught.value, AirflowFailException) == final


def test_no_secret_reaches_the_command_line_the_handle_or_the_result(context, connections, plan, mirror, fake_spark):
    task = StartMirrorOperator(task_id="t", mirror=mirror)
    result = task.execute(context)
    assert "hunter2" not in json.dumps([fake_spark[0], result, task._job])


def test_the_window_goes_to_the_job(context, connections, plan, mirror, fake_spark):
    start, end = "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"
    verifying = {**context, "ti": type("AnotherTI", (type(context["ti"]),), {"task_id": "verify"})()}
    StartMirrorOperator(task_id="t", mirror=mirror, start=start, end=end, late_s=0).execute(context)
    VerifyMirrorOperator(task_id="v", mirror=mirror, start=start, end=end, late_s=0).execute(verifying)
    for arguments in fake_spark[0]:
        given = {name: arguments[arguments.index(name) + 1] for name in ("--start", "--end", "--late-s")}
        assert given == {"--start": start, "--end": end, "--late-s": "0"}
    assert len(fake_spark[0]) == 2


def test_a_tail_task_returns_when_the_tail_copies_and_the_tail_lives_on(
    context, connections, plan, mirror, fake_spark, home
):
    fake_spark[1]["is"] = "copying"
    first = StartMirrorOperator(task_id="t", mirror=mirror, mode="tail").execute(context)
    again = StartMirrorOperator(task_id="t", mirror=mirror, mode="tail").execute(context)
    assert first == again and len(fake_spark[0]) == 1
    tail = LocalRunner(home / "m").find("tail")
    assert LocalRunner(home / "m").status(tail) == "RUNNING"
    stopped = StopMirrorOperator(task_id="s", mirror=mirror).execute(context)
    assert (stopped["stopped"], stopped["tail"]) == (1, "SUCCEEDED")
    assert process.members(Path(tail["dir"])) == []
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context)["stopped"] == 0


def test_stopping_what_never_ran_is_no_error(context, connections, home, mirror):
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context) == {"stopped": 0}


def test_a_tail_that_dies_at_once_fails_its_task_with_the_cause(context, connections, plan, mirror, fake_spark):
    fake_spark[1]["is"] = "damaged"
    with pytest.raises(AirflowFailException, match="foreign data"):
        StartMirrorOperator(task_id="t", mirror=mirror, mode="tail").execute(context)


def test_a_bulk_copy_beside_a_running_tail_is_refused(context, connections, plan, mirror, fake_spark):
    fake_spark[1]["is"] = "copying"
    StartMirrorOperator(task_id="t", mirror=mirror, mode="tail").execute(context)
    with pytest.raises(AirflowFailException, match="JobConflict: job 'tail' is already running"):
        StartMirrorOperator(task_id="b", mirror=mirror).execute(context)


def test_kill_9_of_a_tail_leaves_no_worker_after_stop(context, connections, plan, mirror, fake_spark, home):
    fake_spark[1]["is"] = "copying_with_worker"
    StartMirrorOperator(task_id="t", mirror=mirror, mode="tail").execute(context)
    tail = LocalRunner(home / "m").find("tail")
    os.kill(tail["pid"], signal.SIGKILL)
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context)["tail"] == "LOST"
    assert process.members(Path(tail["dir"])) == []


def test_numbers_from_native_templates_are_names_again(context, connections, plan, mirror, fake_spark, home):
    plan.save(home / "2026" / "plan.json")
    assert StartMirrorOperator(task_id="t", mirror={**mirror, "name": 2026}).execute(context)["records"] == 7


def test_wrong_modes_and_levels_are_refused(context, connections, plan, mirror, fake_spark):
    with pytest.raises(Exception, match="mode='bulkk': no such mode"):
        StartMirrorOperator(task_id="t", mirror=mirror, mode="bulkk")
    with pytest.raises(Exception, match="a tail has no end"):
        StartMirrorOperator(task_id="t", mirror=mirror, mode="tail", end="latest")
    with pytest.raises(AirflowFailException, match="level='all': unknown"):
        VerifyMirrorOperator(task_id="t", mirror=mirror, level="all").execute(context)
    with pytest.raises(AirflowFailException, match="fence='nope': can't be imported"):
        CutoverOperator(task_id="t", mirror=mirror, fence="nope").execute(context)


def test_a_drill_with_mapped_offsets_is_refused_before_anything_is_lost(context, connections, mirror, plan, home):
    with pytest.raises(AirflowFailException, match="offsets='mapped': a drill reads the same positions on both sides"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"], "offsets": "mapped"}).execute(context)
    replace(plan, topics=(replace(plan.topics[0], mode="mapped"),)).save(home / "m" / "plan.json")
    with pytest.raises(AirflowFailException, match="the plan maps the offsets of t"):
        LoseSourceOperator(task_id="t", mirror=mirror).execute(context)


def test_a_drill_deletes_only_a_topic_of_its_own(context, connections, mirror, home):
    with pytest.raises(AirflowFailException, match="a drill has one topic of its own"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": [".*"]}).execute(context)


def test_summaries_stay_small_and_say_where_the_rest_is():
    big = {"records": 1, "end_offsets": {f"t-{n}": n for n in range(10_000)}, "errors": []}
    small = compact(big, full="/x/status.json")
    assert len(json.dumps(small)) < 50_000
    assert small == {"records": 1, "end_offsets": "left out, see /x/status.json", "errors": []}
    assert compact({"a": 1}) == {"a": 1}
