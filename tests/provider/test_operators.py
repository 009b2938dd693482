"""Operators: what they refuse, how they find a running job again, what they leave behind."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pendulum
import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout
from airflow.sdk.execution_time import task_runner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.fence import CallableFence, Fence, fence_of
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.request import CutoverRequest, Limits
from airflow_mirror.errors import InputError, InvalidField, PlanNotKept, TryAgain
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.failback import FailbackReport
from airflow_mirror.extras.drill.groups import GroupOutlook, Outlook
from airflow_mirror.extras.drill.page import render
from airflow_mirror.extras.drill.rehearsal import planned
from airflow_mirror.extras.drill.report import DrillReport
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.jobs.health.judging import TailFacts
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.kafka import session
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators import tail as tail_module
from airflow_mirror.operators.acls import SyncAclsOperator
from airflow_mirror.operators.base import PlannedOperator, flag, load_plan, number
from airflow_mirror.operators.cutover import CutoverOperator, LiftFenceOperator, PreviewCutoverOperator, approval_of
from airflow_mirror.operators.drill import (
    CleanUpDrillOperator,
    FailBackDrillOperator,
    FailOverDrillOperator,
    LoseSourceOperator,
    OpenDrillOperator,
    RehearseFaultsOperator,
    RehearseGroupsOperator,
)
from airflow_mirror.operators.health import CheckMirrorOperator
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.offsets import TranslateConsumerOffsetsOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.spark_job import bounds
from airflow_mirror.operators.summaries import compact
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan import Plan, PlanDirectory
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import amend, keep
from airflow_mirror.plan.ownership import mark_cut_over
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor
from airflow_mirror.sync.configs import ConfigsReport
from airflow_mirror.sync.lag import PartitionLag
from airflow_mirror.sync.seen_configs import dump
from tests.builders import topic_plan
from tests.provider.conftest import PLAN, InMemory, Started, store_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState

NEEDS_CLUSTERS = [
    PlanMirrorOperator, CreateTargetTopicsOperator, SyncTopicConfigsOperator, SyncAclsOperator, StartMirrorOperator,
    VerifyMirrorOperator, TranslateConsumerOffsetsOperator, CutoverOperator, OpenDrillOperator, CheckMirrorOperator,
    PreviewCutoverOperator,
]  # fmt: skip

EVERY_OPERATOR = [
    *NEEDS_CLUSTERS, StopMirrorOperator, LiftFenceOperator, LoseSourceOperator, FailOverDrillOperator,
    CleanUpDrillOperator, FailBackDrillOperator, RehearseGroupsOperator, RehearseFaultsOperator,
    WaitForCatchUpSensor,
]  # fmt: skip


def until(question: Any, timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ignores_sigterm(pid: Any) -> Any:
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
        ({"target": "bare"}, "(?s)MissingSetting: connection 'bare' .*bootstrap.servers"),
        ({"topics": ["orders.*", "["]}, r"InvalidField: topics='\['\n  why: not a valid regular expression"),
        ({"target": "src"}, r"InvalidField: target='src'\n  why: source and target are the same connection"),
        ({"offset": "auto"}, r"InvalidField: offset='auto'\n  why: a Mirror has no such field"),
    ],
)
def test_wrong_input_fails_at_once_and_is_named(
    operator: Any,
    change: dict[str, Any],
    message: str,
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    given = {}
    if issubclass(operator, PlannedOperator):
        other = change.get("target") not in (None, mirror["source"])
        planned = replace(plan, mirror=replace(plan.mirror, **change)) if other else plan
        given["plan"] = store_plan(home, planned).hash
    task = operator(task_id="t", mirror={**mirror, **change}, **given)
    with pytest.raises(AirflowFailException, match=message):
        task.execute(context)


def test_a_mirror_file_that_is_missing_is_named(context: dict[str, Any], home: Path) -> None:
    with pytest.raises(AirflowFailException, match="mirror file '/no/where.yaml' can't be read"):
        PlanMirrorOperator(task_id="t", mirror="/no/where.yaml").execute(context)


def test_an_unreachable_source_is_retried(
    context: dict[str, Any],
    connections: Callable[..., None],
    home: Path,
    mirror: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.2)  # how long it takes is held in kafka/test_session.py
    with pytest.raises(AirflowException, match="ClusterUnreachable: source cluster: no broker at 127.0.0.1:1") as caught:
        PlanMirrorOperator(task_id="t", mirror=mirror).execute(context)
    assert not isinstance(caught.value, AirflowFailException)


def test_without_a_plan_the_remedy_is_said(
    context: dict[str, Any],
    connections: Callable[..., None],
    home: Path,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    with pytest.raises(AirflowFailException, match="Run PlanMirrorOperator first"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)


def test_a_bulk_copy_returns_its_summary_and_forgets_its_job(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    result = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    assert result["records"] == 7
    assert context["task_state_store"] == {}, "clear means: run again"


def test_copies_keep_their_figures_where_airflow_is_told_to(
    context: dict[str, Any], connections: Callable[..., None], plan: Plan, mirror: dict[str, Any],
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
    context: dict[str, Any], connections: Callable[..., None], plan: Plan, mirror: dict[str, Any],
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
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    dirs = [StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)["job_dir"] for _ in range(2)]
    assert [Path(d).name for d in dirs] == ["1", "2"]


def test_the_retry_of_a_killed_task_finds_the_running_job(
    context: dict[str, Any],
    connections: Callable[..., None],
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
    until(lambda: second._job is not None or not waiting.is_alive())
    assert waiting.is_alive() and len(started) == 1
    assert process.members(Path(handle["dir"])) == [handle["pid"]]
    second.on_kill()
    waiting.join(timeout=240)
    assert not waiting.is_alive()


def test_crash_before_storing_the_job_id_starts_nothing_twice(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"
    jobs = []
    for _ in range(2):
        task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
        task._prepare(plan.mirror)
        task._context = context
        jobs.append(task.submit_job(context))
    assert jobs[0] == jobs[1] and len(started) == 1


def test_killing_the_task_stops_the_job_within_five_seconds(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, behaviour = fake_spark
    behaviour["is"] = "stubborn_worker"
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    task._prepare(plan.mirror)
    task._context = context
    handle = task.submit_job(context)
    job_dir = Path(handle["dir"])
    until(lambda: len(process.members(job_dir)) == 2 and any(map(ignores_sigterm, process.members(job_dir))))
    graces, kills = list[float](), list[int]()
    wait_until_gone, end = process.wait_until_gone, process.end

    def waits(job_dir: Any, timeout_s: Any, *seen: Any) -> Any:
        if len(kills) < 2:  # how often it looks again after SIGKILL is up to the machine
            graces.append(timeout_s)
        return wait_until_gone(job_dir, timeout_s / 10, *seen)  # one that ignores the signal is waited for in vain

    def ends(pids: Any, number: Any) -> None:
        kills.extend([number] if number == signal.SIGKILL else [])
        end(pids, number)

    monkeypatch.setattr(process, "wait_until_gone", waits)
    monkeypatch.setattr(process, "end", ends)
    task.on_kill()
    assert kills and graces and sum(graces) <= 5
    assert process.members(Path(handle["dir"])) == []
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).on_kill()  # before submit: nothing to do


def the_time_is_over(*_: Any) -> bool:
    """Do now what the timer does that Airflow sets for an execution timeout."""
    signal.raise_signal(signal.SIGALRM)
    return True


def by_airflow(task: Any, context: dict[str, Any]) -> None:
    ti: Any = SimpleNamespace(task=task, _ti_context_from_server=None)
    task_runner._execute_task(context, ti, task_runner.log)  # type: ignore[arg-type]


def test_execution_timeout_stops_the_job(
    context: dict[str, Any],
    connections: Callable[..., None],
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


def test_execution_timeout_makes_a_cutover_back_out(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    cut_over_by: Callable[..., None],
) -> None:
    def cut_over(*_: Any, stop: Any, **__: Any) -> None:
        the_time_is_over()
        stop.wait(240)

    cut_over_by(cut_over)
    task = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, execution_timeout=timedelta(hours=1))
    with pytest.raises(AirflowTaskTimeout):
        by_airflow(task, context)
    assert task._stop.wait(30)


def test_cutover_is_told_which_revisions_were_compared_before_it(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    cut_over_by: Callable[..., None],
) -> None:
    """By all comparisons of its plan upstream, also mapped ones."""
    seen = list[Any]()

    def cut_over(request: CutoverRequest, *_: Any, **__: Any) -> None:
        seen.append((request.compared, request.course))
        raise InputError("far enough")

    cut_over_by(cut_over)
    with DAG("d"):
        verify = [VerifyMirrorOperator(task_id=f"verify{n}", mirror=mirror, plan=PLAN) for n in range(3)]
        cutover = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN)
        caught_up = WaitForCatchUpSensor(task_id="caught_up", mirror=mirror, plan=PLAN)
        [caught_up, *verify] >> cutover  # type: ignore[operator]
    course = [{"at": 1.0, "lag": 9, "copied": 0}, {"at": 3.0, "lag": 0, "copied": 9}]
    context["ti"].returned = {
        "caught_up": {"mirror": "m", "lag_records": 0, "course": course},
        "verify0": {"mirror": "m", "plan": PLAN, "revision": "r0", "records": 7},
        "verify1": [
            {"mirror": "m", "plan": PLAN, "revision": "r1"},
            {"mirror": "m", "plan": "another", "revision": "r2"},
            {"mirror": "other", "plan": PLAN, "revision": "r3"},
            None,
        ],
    }
    with pytest.raises(AirflowFailException, match="far enough"):
        cutover.execute(context)
    assert seen == [(["r0", "r1"], course)], "and it reports how the mirror has caught up"


def test_cutover_reports_who_has_approved_it_and_when(context: dict[str, Any], mirror: dict[str, Any]) -> None:
    """What Airflow's own ApprovalOperator has returned, also by its default after a timeout."""
    with DAG("d"):
        asked = [ApprovalOperator(task_id=f"ask{n}", subject="?") for n in range(3)]
        cutover = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN)
        asked >> cutover  # type: ignore[operator]
    assert approval_of(cutover, context) is None
    for n, user in ((0, {"id": "1", "name": "ann"}), (1, None)):
        payload = {
            "chosen_options": ["Approve"], "params_input": {}, "responded_at": datetime(2026, 1, 1, n, tzinfo=UTC),
            "responded_by_user": user,
        }  # fmt: skip
        context["ti"].returned[f"ask{n}"] = asked[n].execute_complete(context, payload)
    assert approval_of(cutover, context) == {
        "answer": "Approve", "by": "nobody: the default answer", "at": "2026-01-01 01:00:00+00:00",
    }  # fmt: skip
    del context["ti"].returned["ask1"]
    found = approval_of(cutover, context)
    assert found is not None and found["by"] == "ann"


def test_key_of_reports_is_read_before_anything_is_done_and_never_shown(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    cut_over_by: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []

    def cut_over(*_: Any, signer: Any, **__: Any) -> None:
        seen.append(signer)
        raise InputError("far enough")

    cut_over_by(cut_over)
    task = CutoverOperator(task_id="t", mirror=mirror, plan=PLAN)
    with pytest.raises(AirflowFailException, match="far enough"):
        task.execute(context)
    monkeypatch.setenv("AIRFLOW__MIRROR__REPORT_KEY", "env:REPORT_KEY")
    with pytest.raises(AirflowFailException, match="variable REPORT_KEY is not set"):
        task.execute(context)
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    monkeypatch.setenv("REPORT_KEY", pem)
    with pytest.raises(AirflowFailException, match="far enough"):
        task.execute(context)
    assert seen[0] is None and seen[1].sign(b"").keys() == {"signature", "key"} and len(seen) == 2
    assert pem.splitlines()[1] not in caplog.text + repr(seen) + str(vars(task))


def test_every_limit_of_a_cutover_is_the_tasks_own(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    cut_over_by: Callable[..., None],
) -> None:
    given = {
        "drain_timeout_s": "11", "quiet_s": 12, "transactions_timeout_s": 13.5,
        "wait_groups_s": "14", "group_quiet_s": "65",
    }  # fmt: skip
    seen = []

    def cut_over(request: CutoverRequest, *_: Any, **__: Any) -> None:
        seen.append(request.limits)
        raise InputError("far enough")

    cut_over_by(cut_over)
    for arguments in (given, {}):
        with pytest.raises(AirflowFailException, match="far enough"):
            CutoverOperator(task_id="t", mirror=mirror, plan=PLAN, **arguments).execute(context)
    assert seen == [Limits(**{name: float(value) for name, value in given.items()}), Limits()]


@pytest.mark.parametrize("operator", EVERY_OPERATOR)
def test_queue_pool_and_timeout_are_the_tasks_own(operator: Any, mirror: dict[str, Any]) -> None:
    task = operator(task_id="t", mirror=mirror, queue="edge", pool="kafka", execution_timeout=timedelta(minutes=3))
    assert (task.queue, task.pool, task.execution_timeout) == ("edge", "kafka", timedelta(minutes=3))


@pytest.mark.parametrize("operator", EVERY_OPERATOR)
def test_fields_of_a_task_can_be_templates(operator: Any, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    """All but those that decide what kind of task it is, when the DAG is parsed, and what leads to secrets."""
    fixed = {"mode", "deferrable", "durable", "secrets"}
    ours = [c for c in operator.__mro__ if c.__module__.startswith("airflow_mirror.") and "__init__" in vars(c)]
    named = {p for c in ours for p in inspect.signature(vars(c)["__init__"]).parameters} - {"self", "kwargs"}
    assert named - fixed <= set(operator.template_fields)


@pytest.mark.parametrize(("text", "value"), [("True", True), ("false", False), (True, True), (False, False)])
def test_yes_or_no_may_be_text(text: str | bool, value: bool) -> None:
    assert flag("hold", text) is value


@pytest.mark.parametrize("text", ["", "yes", None, 1])
def test_neither_yes_nor_no_is_refused(text: str | int | None) -> None:
    with pytest.raises(InvalidField, match="neither true nor false"):
        flag("hold", text)


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
    connections: Callable[..., None],
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
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    result = task.execute(context)
    assert "hunter2" not in json.dumps([fake_spark[0], result, task._job])


def test_the_window_goes_to_the_job(
    context: dict[str, Any],
    connections: Callable[..., None],
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
    connections: Callable[..., None],
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


def test_tail_that_dies_at_once_fails_its_task(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    """The error has the tail's own cause."""
    fake_spark[1]["is"] = "damaged"
    with pytest.raises(AirflowFailException, match="foreign data"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)


# --- the run after a rejected cutover: its tail is still there --------------------------------------------------------


@pytest.fixture
def tail(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> Any:
    """A tail that copies what the stored plan says; returns its handle."""
    fake_spark[1]["is"] = "copying"
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
    fake_spark[1]["is"] = "quick"
    return LocalRunner(home / "m").find("tail")


def test_plan_that_another_worker_made_is_fetched(
    plan: Plan, mirror: dict[str, Any], home: Path, connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
    ledger: MemoryLedger, state: MemoryState,
) -> None:  # fmt: skip
    """This one's disk is empty. The file is for the job that it starts, and for people."""
    keep(plan, state, ledger)
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", str(home / "another"))
    assert load_plan(PLAN, plan.mirror) == plan
    assert PlanDirectory(home / "another" / "m" / "plans").load(PLAN) == plan
    state.write(dict.fromkeys(state.read()))
    assert load_plan(PLAN, plan.mirror) == plan, "it is here now"
    with pytest.raises(PlanNotKept, match="neither this host nor the target's ledger holds plan 0000"):
        load_plan("0" * 64, plan.mirror)


def planned_again(plan: Any, home: Any, *, topic_id: str = "id-1") -> Any:
    """Another plan of the mirror: same topics, unless one was created again."""
    topic = replace(plan.topics[0], source_topic_id=topic_id, ends={0: 50, 1: 50})
    return store_plan(home, replace(plan, topics=(topic,))).hash


def test_bulk_copy_waits_for_the_running_tail_instead(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tail copies the same topics, and no second job is started."""
    ends, positions = [100, 100, 300], iter([0, 40, 100])

    def measure(*_: Any) -> Any:
        position = next(positions)
        return [PartitionLag(TopicPartition("t", 0), position, ends.pop(0))]

    told: list[Any] = []
    monkeypatch.setattr("airflow_mirror.sync.lag.measure", measure)
    looked = Mock()
    monkeypatch.setattr("airflow_mirror.sync.lag.require_planned_topics", looked)
    monkeypatch.setattr(
        "airflow_mirror.operators.mirror.tell_lag", lambda name, found: told.append((name, found["lag_records"]))
    )
    result = StartMirrorOperator(plan=planned_again(plan, home), task_id="b", mirror=mirror).execute(context)
    assert (result["job"], result["job_dir"]) == ("tail", tail["dir"])
    assert told == [("m", 60)] and looked.call_count == 1
    assert len(fake_spark[0]) == 1 and process.members(Path(tail["dir"])), "no second job; the tail lives"


def test_tail_that_dies_fails_the_waiting_bulk_copy(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any) -> Any:
        os.kill(tail["pid"], signal.SIGKILL)
        until(lambda: not process.is_alive(tail["pid"], tail["started"]))
        return [PartitionLag(TopicPartition("t", 0), 0, 100)]

    monkeypatch.setattr("airflow_mirror.sync.lag.measure", measure)
    with pytest.raises(AirflowException, match="JobFailed: .*LOST"):
        StartMirrorOperator(plan=PLAN, task_id="b", mirror=mirror).execute(context)


def test_new_plan_of_the_same_topics_keeps_the_tail(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    other = {**mirror, "principals": {"User:a": "User:b"}}  # no tail has to do with them
    again = StartMirrorOperator(plan=planned_again(plan, home), task_id="t", mirror=other, mode="tail").execute(context)
    assert again["job_dir"] == tail["dir"] and len(fake_spark[0]) == 1


def test_tail_whose_rights_follow_has_the_map_of_principals(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    connections: Callable[..., None],
) -> None:  # fmt: skip
    """Without it the source's names would get the rights, whoever they are on the target."""
    fake_spark[1]["is"] = "copying"
    follows = {**mirror, "sync_acls": True, "principals": {"User:a": "User:b"}}
    for kind, wanted in (("tail", {"User:a": "User:b"}), ("bulk", None)):
        task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=follows, mode=kind)
        assert task.spec(Mirror.coerce(follows), plan).mirror.get("principals") == wanted
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=follows, mode="tail").execute(context)
    other = {**follows, "principals": {"User:a": "User:c"}}
    with pytest.raises(AirflowFailException, match="principals: .*User:b.* there, .*User:c.* asked for"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=other, mode="tail").execute(context)


def test_new_plan_with_topics_that_joined_the_old_one_keeps_the_tail(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    ledger: MemoryLedger, state: MemoryState, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And tasks of the old one see them, whatever file their host has. The tail has some time to take them in."""
    waited: list[float] = []
    monkeypatch.setattr(tail_module, "sleep", waited.append)
    monkeypatch.setattr(tail_module, "_JOIN_MARGIN_S", -1000.0)
    joined = topic_plan("t2", {0: 0}, source_topic_id="id-2")
    wider = store_plan(home, replace(plan, topics=(*plan.topics, joined)))
    with pytest.raises(AirflowFailException, match="topic 't2': not in the tail's plan"):
        StartMirrorOperator(plan=wider.hash, task_id="t", mirror=mirror, mode="tail").execute(context)
    assert not waited
    monkeypatch.setattr(tail_module, "_JOIN_MARGIN_S", 1000.0)
    amendment = next_amendment(plan, [joined], [], "2026-02-01T00:00:00+00:00")
    monkeypatch.setattr(tail_module, "sleep", lambda s: (waited.append(s), amend(amendment, "m", state, ledger)))
    StartMirrorOperator(plan=wider.hash, task_id="t", mirror=mirror, mode="tail").execute(context)
    assert len(waited) == 1
    assert load_plan(PLAN, plan.mirror).topics == wider.topics
    for one in (wider.hash, PLAN):
        again = StartMirrorOperator(plan=one, task_id="t", mirror=mirror, mode="tail").execute(context)
        assert again["job_dir"] == tail["dir"] and len(fake_spark[0]) == 1


def test_topic_that_the_source_has_no_more_keeps_the_tail(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    ledger: MemoryLedger, state: MemoryState,
) -> None:  # fmt: skip
    """The tail gave it up. The plan of another rule may not have it for another reason."""
    gone, stays = (topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in ("gone", "stays"))
    amend(next_amendment(plan, [gone, stays], [], "2026-02-01T00:00:00+00:00"), "m", state, ledger)
    later = store_plan(home, replace(plan, topics=(stays, *plan.topics)))
    again = StartMirrorOperator(plan=later.hash, task_id="t", mirror=mirror, mode="tail").execute(context)
    assert again["job_dir"] == tail["dir"] and len(fake_spark[0]) == 1
    narrower = store_plan(home, replace(later, mirror=replace(plan.mirror, exclude_topics=("gone",))))
    task = StartMirrorOperator(plan=narrower.hash, task_id="t", mirror=narrower.mirror, mode="tail")
    with pytest.raises(AirflowFailException, match="topic 'gone': copied by the tail, not in this plan"):
        task.execute(context)


@pytest.mark.parametrize("mode", ["bulk", "tail"])
def test_a_tail_of_another_plan_is_not_stopped_unasked(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    mode: str,
) -> None:
    added = replace(plan.topics[0], source_topic="u", target_topic="u")
    changed = replace(plan.mirror, topics=("t", "u"), merge_below=0)
    other = store_plan(home, replace(plan, mirror=changed, topics=(*plan.topics, added)))
    task = StartMirrorOperator(plan=other.hash, task_id="b", mirror=changed, mode=mode)
    with pytest.raises(AirflowFailException, match="InputError: the mirror's tail is running") as caught:
        task.execute(context)
    for said in (tail["dir"], PLAN[:12], "topic 'u': not in the tail's plan", "topics: ['t'] there, ['t', 'u'] asked for",
                 "merge_below: ", "StopMirrorOperator", "replace=True"):  # fmt: skip
        assert said in str(caught.value)
    assert process.members(Path(tail["dir"])) and len(fake_spark[0]) == 1


def test_tail_of_another_plan_is_described_even_without_it(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], home: Path
) -> None:
    """With that plan the error names the difference, without it the plan's hash."""
    other = planned_again(plan, home, topic_id="id-2")
    task = StartMirrorOperator(plan=other, task_id="b", mirror=mirror, mode="tail")
    with pytest.raises(AirflowFailException, match="topic 't': created again on the source"):
        task.execute(context)
    PlanDirectory(home / "m" / "plans").path(PLAN).unlink()
    with pytest.raises(AirflowFailException, match=f"(?s){PLAN[:12]}.*other topics"):
        task.execute(context)


def test_tail_is_not_stopped_for_an_unstartable_one(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SRC")
    task = StartMirrorOperator(
        plan=planned_again(plan, home, topic_id="id-2"), task_id="b", mirror=mirror, mode="tail", replace=True
    )
    with pytest.raises(AirflowFailException, match="UnknownConnection: connection 'src'"):
        task.execute(context)
    assert process.members(Path(tail["dir"]))


@pytest.mark.parametrize("ends", [True, False])
def test_a_tail_whose_writing_a_cutover_has_ended_is_not_taken_for_one_that_copies(
    context: dict[str, Any], tail: Any, mirror: dict[str, Any], fake_spark: Started, ends: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It still says that it copies, for as long as it takes to end: then nobody would."""
    fake_spark[1]["is"] = "ended"

    def it_ends(_: float) -> None:
        if ends and fake_spark[1]["is"] == "ended":
            os.kill(tail["pid"], signal.SIGKILL)
            until(lambda: not process.is_alive(tail["pid"], tail["started"]))
            fake_spark[1]["is"] = "copying"

    monkeypatch.setattr("airflow_mirror.operators.tail.sleep", it_ends)
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail", start_timeout_s=300 if ends else 0)
    if ends:
        assert task.execute(context)["job_dir"] != tail["dir"] and len(fake_spark[0]) == 2
    else:
        with pytest.raises(AirflowException, match="its writing was ended, by a cutover, and it does not end"):
            task.execute(context)
        assert process.members(Path(tail["dir"])) and len(fake_spark[0]) == 1


@pytest.mark.parametrize("mode", ["bulk", "tail"])
def test_a_tail_of_another_plan_makes_way_when_asked_to(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    mode: str,
) -> None:
    fake_spark[1]["is"] = "quick" if mode == "bulk" else "copying"
    other = planned_again(plan, home, topic_id="id-2")
    task = StartMirrorOperator(plan=other, task_id="b", mirror=mirror, mode=mode, replace="True")
    result = task.execute(context)
    assert result["job_dir"] != tail["dir"]
    assert process.members(Path(tail["dir"])) == []
    assert fake_spark[0][-1]["plan"] == str(PlanDirectory(home / "m" / "plans").path(other))


def test_tail_between_other_clusters_is_left_alone(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], connections: Callable[..., None], home: Path
) -> None:
    connections("elsewhere", **{"bootstrap.servers": "127.0.0.1:3"})
    other = store_plan(home, replace(plan, mirror=replace(plan.mirror, target="elsewhere")))
    task = StartMirrorOperator(plan=other.hash, task_id="b", mirror={**mirror, "target": "elsewhere"}, replace=True)
    with pytest.raises(
        AirflowFailException, match=r"InputError: the name 'm' is taken\n  why: its tail .* on host .* goes from"
    ):
        task.execute(context)
    assert process.members(Path(tail["dir"]))


def test_a_window_is_not_copied_beside_a_tail(context: dict[str, Any], tail: Any, mirror: dict[str, Any]) -> None:
    window = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T01:00:00+00:00"}
    with pytest.raises(AirflowFailException, match="WriterRuns: job 'tail' is already running"):
        StartMirrorOperator(plan=PLAN, task_id="b", mirror=mirror, **window).execute(context)


def test_copies_of_two_windows_wait_for_each_other(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"
    first = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    first._prepare(plan.mirror)
    first._context = context
    handle = first.submit_job(context)
    behaviour["is"] = "quick"
    second = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    another_run = {**context, "ti": type("AnotherTI", (type(context["ti"]),), {"run_id": "manual__2"})()}
    results = []
    waiting = threading.Thread(target=lambda: results.append(second.execute(another_run)))
    waiting.start()
    until(lambda: second._runner is not None)
    assert waiting.is_alive() and len(started) == 1
    LocalRunner(home / "m").cancel(handle, grace_s=0.2)
    waiting.join(timeout=240)
    assert results[0]["records"] == 7 and len(started) == 2


# --- one plan, by its hash ----------------------------------------------------------------------------------------------


def in_a_dag(*planners: Any) -> Any:
    """A DAG in which a copy has PlanMirrorOperators of these (task id, mirror) upstream, with a task between."""
    with DAG("a_dag") as dag:
        between = EmptyOperator(task_id="between")
        for task_id, mirror in planners:
            PlanMirrorOperator(task_id=task_id, mirror=mirror) >> between
        between >> StartMirrorOperator(
            task_id="copy", mirror={"name": "m", "source": "src", "target": "dst", "topics": ["t"]}
        )
    return dag.get_task("copy")


def test_task_carries_out_the_plan_of_its_own_run(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    later = planned_again(plan, home)
    context["ti"].returned = {"plan": {"mirror": "m", "hash": PLAN}, "other": {"mirror": "o", "hash": "0" * 64}}
    in_a_dag(("plan", mirror), ("other", {**mirror, "name": "o"})).execute(context)
    assert later != PLAN and f"{PLAN}.json" in fake_spark[0][-1]["plan"]


def test_the_returned_plan_may_be_handed_over_as_it_is(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    task = StartMirrorOperator(task_id="t", mirror=mirror, plan={"mirror": "m", "hash": PLAN})
    assert task.execute(context)["records"] == 7


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({}, "no plan of mirror 'm' upstream in this DAG run. Run PlanMirrorOperator first"),
        ({"plan": {"mirror": "o", "hash": PLAN}}, "no plan of mirror 'm' upstream"),
        (
            {"plan": {"mirror": "m", "hash": PLAN}, "again": {"mirror": "m", "hash": "f" * 64}},
            "2 plans of mirror 'm'.*Pass plan=",
        ),
        ({"plan": {"mirror": "m", "hash": "f" * 64}}, "Run PlanMirrorOperator first"),
    ],
    ids=["not-planned", "another-mirror", "two-plans", "not-stored"],
)
def test_without_exactly_one_plan_nothing_starts(
    returned: dict[str, Any],
    message: str,
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    context["ti"].returned = returned
    with pytest.raises(AirflowFailException, match=message):
        in_a_dag(("plan", mirror), ("again", mirror)).execute(context)
    assert fake_spark[0] == []


@pytest.mark.parametrize("operator", [o for o in NEEDS_CLUSTERS if issubclass(o, PlannedOperator)])
def test_operators_refuse_blocked_plans_and_those_of_other_mirrors(
    operator: Any,
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    blocked = store_plan(home, replace(plan, findings=(Finding("block", "same_cluster", "x", "y", "z"),)))
    with pytest.raises(AirflowFailException, match=r"InputError: .*\n.*same_cluster"):
        operator(task_id="t", mirror=mirror, plan=blocked.hash).execute(context)
    with pytest.raises(AirflowFailException, match="InputError: .*topics: planned .*'t'.*, now .*'u'"):
        operator(task_id="t", mirror={**mirror, "topics": ["u"]}, plan=PLAN).execute(context)
    assert fake_spark[0] == []


# --- after the cutover --------------------------------------------------------------------------------------------------


@pytest.fixture
def cut_over(ledger: MemoryLedger, plan: Plan, clusters: InMemory) -> None:
    """The mirror was cut over; its target topic is the one that was opened."""
    opened = clusters.target.create("t", 2)
    mark_cut_over(ledger, plan, {"t": opened.topic_id}, "2026-02-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        (CreateTargetTopicsOperator, {}), (SyncTopicConfigsOperator, {}), (SyncTopicConfigsOperator, {"hold": True}),
        (StartMirrorOperator, {}), (StartMirrorOperator, {"mode": "tail"}),
    ],
)  # fmt: skip
def test_a_cleared_task_of_a_finished_migration_touches_nothing(
    operator: Any,
    given: dict[str, Any],
    context: dict[str, Any],
    connections: Callable[..., None],
    mirror: dict[str, Any],
    plan: Plan,
    cut_over: Any,
    fake_spark: Started,
    home: Path,
) -> None:
    for one in (PLAN, planned_again(plan, home)):
        with pytest.raises(AirflowFailException, match="(?s)MirrorCutOver: .*target topics t are in production"):
            operator(task_id="t", mirror=mirror, plan=one, **given).execute(context)
    assert fake_spark[0] == []


def test_the_sources_settings_still_go_into_force_after_the_cutover(
    context: dict[str, Any],
    connections: Callable[..., None],
    mirror: dict[str, Any],
    plan: Plan,
    cut_over: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr("airflow_mirror.sync.holding._require_ended", lambda *_: None)
    monkeypatch.setattr(
        "airflow_mirror.sync.holding.sync_configs",
        lambda *_, **given: asked.append(given) or ConfigsReport(given["hold"], (), True),
    )
    for given in ({"hold": False}, {"hold": True, "dry_run": True}):
        SyncTopicConfigsOperator(task_id="t", mirror=mirror, plan=PLAN, **given).execute(context)
    assert [a["hold"] for a in asked] == [False, True]


def test_settings_of_a_lost_source_are_those_seen_last(
    context: dict[str, Any],
    connections: Callable[..., None],
    mirror: dict[str, Any],
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr("airflow_mirror.sync.holding._require_ended", lambda *_: None)
    noted = {"configs/m/t": dump({"retention.ms": "5"}, int(time.time() * 1000))}
    monkeypatch.setattr(
        "airflow_mirror.sync.holding.state_of",
        lambda target, prefix: SimpleNamespace(read=lambda: {k: v for k, v in noted.items() if k.startswith(prefix)}),
    )
    monkeypatch.setattr(
        "airflow_mirror.sync.holding.sync_configs",
        lambda plan, source, *_, **given: asked.append(source) or ConfigsReport(given["hold"], (), True),
    )
    for lost in ("true", False):
        given = {"mirror": mirror, "plan": PLAN, "hold": False, "source_lost": lost}
        SyncTopicConfigsOperator(task_id="t", **given).execute(context)
    seen, source = asked
    assert seen.topic_configs(["t"])["t"]["retention.ms"].value == "5"
    assert isinstance(source, ClusterAdmin) and source.role == "source"


def test_kill_9_of_a_tail_leaves_no_worker_after_stop(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    fake_spark[1]["is"] = "copying_with_worker"
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
    tail = LocalRunner(home / "m").find("tail")
    assert tail is not None
    os.kill(tail["pid"], signal.SIGKILL)
    # Whoever looks before the kernel has ended it gives its worker the time that Spark takes to end.
    until(lambda: process.started_at(tail["pid"]) is None)
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context)["tail"] == "LOST"
    assert process.members(Path(tail["dir"])) == []


def test_numbers_from_native_templates_are_names_again(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    of_2026 = store_plan(home, replace(plan, mirror=replace(plan.mirror, name="2026")))
    task = StartMirrorOperator(plan=of_2026.hash, task_id="t", mirror={**mirror, "name": 2026})
    assert task.execute(context)["records"] == 7


@pytest.mark.parametrize("value", ["soon", "nan", "inf", "-1", "", None, [3]])
def test_what_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(InvalidField, match=re.escape(f"seconds={value!r}: not a number")):
        number("seconds", value)
    assert (number("seconds", "2.5"), number("seconds", 0)) == (2.5, 0.0)


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        (StartMirrorOperator, "start_timeout_s"), (StopMirrorOperator, "grace_s"), (CutoverOperator, "drain_timeout_s"),
        (CutoverOperator, "quiet_s"), (CutoverOperator, "wait_groups_s"), (OpenDrillOperator, "partitions"),
        (LoseSourceOperator, "seconds"), (LoseSourceOperator, "per_second"), (OpenDrillOperator, "rpo_objective_s"),
        (OpenDrillOperator, "rto_objective_s"), (WaitForCatchUpSensor, "max_lag_records"),
        (WaitForCatchUpSensor, "samples"), (WaitForCatchUpSensor, "stuck_after_s"),
    ],
)  # fmt: skip
def test_what_is_no_number_fails_before_anything_is_done(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    operator: Any,
    name: str,
) -> None:
    """A tail was started, or a disaster rehearsed, before the limit was found to be no number; and that was retried."""
    given = {"plan": PLAN} if "plan" in operator.template_fields else {}
    task = operator(task_id="t", mirror=mirror, **given, **{name: "soon"})
    with pytest.raises(AirflowFailException, match=f"InvalidField: {name}='soon'\n  why: not a number"):
        task.execute(context)
    assert fake_spark[0] == [] and not (home / "m" / "runs").exists()


def no_fence(source: object) -> None:
    """Return nothing, as a function does that was meant to return a fence."""


@pytest.mark.usefixtures("connections", "home")
def test_fence_of_whichever_run_is_lifted_on_request(
    context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror has one fence. Whose it is the core finds, and one that can't be lifted fails the task."""
    seen, answers = list[tuple[str, str, bool]](), True

    def lift(_: Platform, name: str, fence: Fence, *, run: str, include_retained: bool, runs: Path) -> list[str]:
        assert fence.kind == "acl" and runs.name == "runs"
        seen.append((name, run, include_retained))
        if not answers:
            raise TryAgain("no broker answered")
        return ["DENY of friday"]

    monkeypatch.setattr("airflow_mirror.cutover.lifting.lift_leftover_fence", lift)
    reports, others = MemoryState(), MemoryState()
    others.write({"report/other/x/000001-00000000/0/1": b""})
    of = {"report/m/": reports, "report/": others}
    monkeypatch.setattr("airflow_mirror.cutover.platform.state_of", lambda _, prefix, **__: of[prefix])
    with pytest.raises(
        AirflowFailException, match=r"name='m'\n  why: the target has no report of a cutover of it; .* of: other"
    ):
        LiftFenceOperator(task_id="t", mirror=mirror, any_run=True).execute(context)
    assert seen == []
    reports.write({"report/m/monday/000001-00000000/0/1": b""})
    assert LiftFenceOperator(task_id="t", mirror=mirror).execute(context)["lifted"] == ["DENY of friday"]
    LiftFenceOperator(task_id="t", mirror=mirror, any_run="True", include_retained="True").execute(context)
    assert seen == [("m", "manual__1", False), ("m", "", True)]
    answers = False
    with pytest.raises(AirflowException, match="TryAgain: no broker answered"):
        LiftFenceOperator(task_id="t", mirror=mirror, any_run=True).execute(context)


@pytest.mark.usefixtures("connections", "plan")
def test_a_function_that_returns_no_fence_is_named(context: Any, mirror: dict[str, Any]) -> None:
    """It was found when the fence was to be raised, as an AttributeError that is tried again."""
    for operator in (CutoverOperator, LiftFenceOperator):
        given = {"plan": PLAN} if operator is CutoverOperator else {}
        with pytest.raises(AirflowFailException, match=r"(?s)InvalidField: fence=.*returned no fence: None"):
            operator(task_id="t", mirror=mirror, fence=f"{__name__}.no_fence", **given).execute(context)
    made = CallableFence(lambda: None, lambda: None)
    assert fence_of("acl", None).kind == "acl"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"{__name__}.no_fence", lambda _: made)
        assert fence_of(f"{__name__}.no_fence", None) is made


def test_wrong_modes_and_levels_are_refused(
    context: dict[str, Any],
    connections: Callable[..., None],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    with pytest.raises(Exception, match="mode='bulkk': no such mode"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="bulkk")
    with pytest.raises(Exception, match="a tail has no end"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail", end="latest")
    with pytest.raises(AirflowFailException, match=r"level='all'\n  why: unknown"):
        VerifyMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, level="all").execute(context)
    with pytest.raises(AirflowFailException, match="fence='nope'\n  why: can't be imported"):
        CutoverOperator(plan=PLAN, task_id="t", mirror=mirror, fence="nope").execute(context)


def test_drill_with_mapped_offsets_is_refused_beforehand(
    context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any], plan: Plan, home: Path
) -> None:
    """Nothing has been lost by then."""
    with pytest.raises(
        AirflowFailException, match=r"offsets='mapped'\n  why: a drill reads the same positions on both sides"
    ):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"], "offsets": "mapped"}).execute(context)
    mapped = store_plan(home, replace(plan, topics=(replace(plan.topics[0], mode="mapped"),)))
    with pytest.raises(AirflowFailException, match="the plan maps the offsets of t"):
        LoseSourceOperator(plan=mapped.hash, task_id="t", mirror=mirror).execute(context)


def test_tail_on_another_host_makes_no_disaster(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be killed from here, and no canary is written."""
    monkeypatch.setattr("airflow_mirror.extras.drill.disaster.warm_up", lambda *_: pytest.fail("canaries were written"))
    job = Path(tail["dir"], "job.json")
    job.write_text(json.dumps({**tail, "host": "another", "where": "another"}))
    monkeypatch.setattr(LocalRunner, "status", lambda *_: "RUNNING")
    with pytest.raises(AirflowException, match="TryAgain: job 'tail' runs on host 'another'"):
        LoseSourceOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    monkeypatch.undo()
    job.write_text(json.dumps(tail))


def test_tail_that_died_before_its_disaster_is_no_measurement(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its own fault would be the disaster's loss."""
    statuses = iter(["RUNNING", "FAILED"])
    monkeypatch.setattr("airflow_mirror.extras.drill.disaster.warm_up", lambda *_: 0.0)
    monkeypatch.setattr("airflow_mirror.extras.drill.disaster.write_canaries", lambda *_, disaster, **__: disaster())
    monkeypatch.setattr(LocalRunner, "status", lambda *_: next(statuses))
    with pytest.raises(
        AirflowFailException,
        match=r"the drill did not show what it is for\n  why: the tail was FAILED before it was killed",
    ):
        LoseSourceOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)
    monkeypatch.undo()


@pytest.mark.usefixtures("connections")
def test_groups_of_a_real_mirror_are_in_the_drills_report(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look(name: str, source: ClusterAdmin, target: ClusterAdmin) -> Outlook:
        asked.append(f"{name} from {source.role} to {target.role}")
        one = GroupOutlook(group="app", partitions=1, reread=5, unplaced=["t-0: why"])
        return Outlook(mirror=name, at_ms=7, groups=(one,), left_behind=())

    monkeypatch.setattr("airflow_mirror.extras.drill.groups.look", look)
    assert RehearseGroupsOperator(task_id="t", mirror=mirror, groups_of="").execute(context) == {}
    assert RehearseGroupsOperator(task_id="t", mirror=mirror, groups_of=None).execute(context) == {}  # type: ignore[arg-type]
    assert asked == [] and state.read() == {}
    found = RehearseGroupsOperator(task_id="t", mirror=mirror, groups_of=7).execute(context)  # type: ignore[arg-type]
    assert found == {"mirror": "7", "count": 1, "reread": 5, "skipped": 0, "unplaced": 1}
    assert asked == ["7 from source to target"]
    (drill,) = Drills(state, "m").all()
    assert drill.groups["rows"][0]["group"] == "app"
    assert json.loads((home / "m" / "runs" / drill.run / "drill.json").read_text())["groups"] == drill.groups


@pytest.mark.usefixtures("connections")
def test_what_a_drill_measured_is_kept_before_it_fails(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = DrillReport(
        topic="t", acknowledged=9, on_target=8, lost=1, rpo_s=6.0, rto_s=2.0, first_read_s=1.0, first_write_s=2.0,
        skipped=0, reread=0,
    )  # fmt: skip
    monkeypatch.setattr("airflow_mirror.extras.drill.failover.fail_over", lambda *_: figures)
    Canaries(topic="t", group="t").save(report_dir(Mirror.coerce(mirror), context["ti"].run_id) / "canaries.json")
    note(state, Drill(run="manual__1", at_ms=7, wanted={"rpo_s": 5.0, "rto_s": 120.0}))
    assert FailOverDrillOperator(task_id="t", mirror=mirror).execute(context)["rpo_s"] == 6.0
    (drill,) = Drills(state, "m").all()
    assert drill.figures == figures.to_dict() and drill.missed is None, "nothing fails before the clean-up"


def note(state: MemoryState, drill: Drill) -> None:
    Drills(state, "m").save(drill)


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics that were deleted, on either side."""
    topics: list[str] = []

    def clean_up(_clusters: Any, topic: str, group: str) -> list[str]:
        assert topic == group
        topics.append(topic)
        return ["target: no broker answered"] if topic.endswith("stuck") else []

    monkeypatch.setattr("airflow_mirror.extras.drill.clean_up.clean_up", clean_up)
    return topics


GOOD = {"rpo_s": 1.0, "rto_s": 2.0, "lost": 3, "skipped": 0, "reread": 0, "acknowledged": 9, "first_read_s": 1.0,
        "first_write_s": 2.0}  # fmt: skip
WANTED = {"rpo_s": 5.0, "rto_s": 30.0}
BACK = {"surplus": 3, "nowhere": 0, "records": 9, "differing": [], "skipped": 0, "reread": 0, "took_s": 3.0}


_MISSED = r"DrillMissed: the drill did not show what it is for\n  why: "


@pytest.mark.usefixtures("connections", "home")
@pytest.mark.parametrize(
    ("figures", "error"),
    [
        ({}, _MISSED + r"nothing was measured"),
        ({**GOOD, "rpo_s": 6.5}, _MISSED + r"RPO 6.50 s \(3 records lost\), wanted at most 5 s"),
        ({**GOOD, "reread": 7}, _MISSED + r"the group skipped 0 and re-read 7 records"),
    ],
)  # fmt: skip
def test_a_drill_is_judged_after_its_clean_up(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str], figures: Any, error: str
) -> None:
    """Whatever ended it: a run that is marked as failed runs its teardowns, and must not turn green by them."""
    note(state, Drill(run="manual__1", at_ms=7, topics=["drill-1"], figures=figures, wanted=WANTED, failback=BACK))
    with pytest.raises(AirflowFailException, match=error):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    (drill,) = Drills(state, "m").all()
    assert cleaned == ["drill-1"] and drill.topics == [] and drill.missed


@pytest.mark.usefixtures("connections", "home", "cleaned")
def test_cleared_run_is_not_judged_by_what_it_measured_before(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory
) -> None:
    """Whatever ends it on its second way: figures of the first one would say that it met its objectives."""
    drills = {**mirror, "topics": ["drill-1"]}
    rows = [{"fault": "kill_tail", "at_ms": 1, "noticed_s": 2.0, "how": "tail: lost"}]
    before = Drill(run="manual__1", at_ms=7, figures=GOOD, wanted=WANTED, failback=BACK, rehearsal=rows, missed=[])
    note(state, before)
    OpenDrillOperator(task_id="t", mirror=drills, rehearse=["kill_tail"]).execute(context)
    OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1.faults"]}).execute(context)
    assert list(clusters.source.topics) == ["drill-1", "drill-1.faults"]
    (drill,) = Drills(state, "m").all()
    assert drill.at_ms > 7 and drill.missed is None and drill.topics == ["drill-1", "drill-1.faults"]
    with pytest.raises(AirflowFailException, match="nothing was measured(.|\n)*no failback(.|\n)*it was not injected"):
        CleanUpDrillOperator(task_id="t", mirror=drills).execute(context)


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize("wanted", ["True", "False"])
def test_way_back_is_kept_and_can_be_left_out(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, home: Path, wanted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A source before 3.0 can't be a target."""
    monkeypatch.setattr("airflow_mirror.extras.drill.failback.fail_back", lambda *_: FailbackReport(**BACK))  # type: ignore[arg-type]
    Canaries(topic="t", group="t").save(report_dir(Mirror.coerce(mirror), context["ti"].run_id) / "canaries.json")
    expected = BACK if wanted == "True" else {"left_out": True}
    assert FailBackDrillOperator(task_id="t", mirror=mirror, failback=wanted).execute(context) == expected
    (drill,) = Drills(state, "m").all()
    assert drill.failback == expected
    drill.figures = GOOD
    page = render(drill, [])
    assert ("9 records copied back" in page) is (wanted == "True")


@pytest.mark.usefixtures("connections", "home")
def test_faults_that_were_planned_and_never_injected_fail_the_drill(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    rows = planned(["kill_tail"])
    note(state, Drill(run="manual__1", at_ms=7, figures=GOOD, wanted=WANTED, failback=BACK, rehearsal=rows))
    with pytest.raises(AirflowFailException, match="rehearsal of kill_tail: it was not injected"):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)


@pytest.mark.usefixtures("connections", "home")
def test_unknown_fault_is_named_before_anything_is_done(context: dict[str, Any], mirror: dict[str, Any]) -> None:
    opens = OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, rehearse="pull_the_plug")
    with pytest.raises(AirflowFailException, match=r"rehearse=\['pull_the_plug'\]\n  why: no such fault"):
        opens.execute(context)


@pytest.mark.usefixtures("connections", "home")
def test_drill_begins_the_ledger_of_a_fresh_target_before_it_notes_anything(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its note alone looked like what a lost ledger leaves: nothing could be begun on that target any more."""
    begun = list[object]()

    def begin(_: MemoryLedger) -> None:
        begun.append((dict(state.read()), list(clusters.source.topics)))

    monkeypatch.setattr(MemoryLedger, "begin", begin)
    topic = OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)["topic"]
    assert begun == [({}, [])] and list(clusters.source.topics) == [topic]
    assert any(key.startswith("drill/") for key in state.read())


def test_faults_are_injected_and_what_notices_them_is_kept(
    context: dict[str, Any], tail: Any, mirror: dict[str, Any], state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail that is killed is found to be lost; a look that fails has found nothing."""
    looks = iter(["RUNNING", TryAgain("no broker answered"), "LOST"])

    def look(_view: object, _mirror: object) -> TailFacts:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return TailFacts(active=_tail(), status=found)

    def _tail() -> Any:
        return SimpleNamespace(host="h", differing=())

    statuses = iter(["RUNNING", "RUNNING"])
    monkeypatch.setattr(TailView, "look", look)
    monkeypatch.setattr(LocalRunner, "status", lambda *_: next(statuses))
    task = RehearseFaultsOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, rehearse=["kill_tail"])
    (noticed,) = task.execute(context).values()
    monkeypatch.undo()
    (drill,) = Drills(state, "m").all()
    (row,) = drill.rehearsal
    assert noticed == row["noticed_s"] is not None and row["how"].startswith("tail: ") and "not known" not in row["how"]
    assert process.members(Path(tail["dir"])) == [], "it was killed"


@pytest.mark.usefixtures("connections")
def test_good_drill_is_cleaned_up_once_and_its_page_is_linked(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str], home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", "https://files.example.com/mirror")
    note(state, Drill(run="manual__1", at_ms=7, topics=["drill-1"], figures=GOOD, wanted=WANTED, failback=BACK))
    for deleted in (["drill-1"], []):
        task = CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]})
        assert task.execute(context) == {"deleted": deleted}
    assert cleaned == ["drill-1"] and list(task.shown_links.values()) == [
        "https://files.example.com/mirror/m/runs/manual__1/drill.html"
    ]
    assert "Met its objectives." in (home / "m" / "runs" / "manual__1" / "drill.html").read_text()


@pytest.mark.usefixtures("connections", "home")
def test_what_could_not_be_deleted_is_tried_again(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    """A broker that is away for a minute leaves no topic behind; and what is left stays noted."""
    note(
        state,
        Drill(run="manual__1", at_ms=7, topics=["drill-1.stuck", "drill-1"], figures=GOOD, wanted=WANTED, failback=BACK),
    )
    for _ in range(2):
        with pytest.raises(
            AirflowException, match="could not delete 'drill-1.stuck' on the target: no broker answered"
        ) as e:
            CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
        assert not isinstance(e.value, AirflowFailException)
    (drill,) = Drills(state, "m").all()
    assert drill.topics == ["drill-1.stuck"]
    assert drill.missed == ["left behind: 'drill-1.stuck' on the target: no broker answered"]
    assert cleaned == ["drill-1.stuck", "drill-1", "drill-1.stuck"]


@pytest.mark.usefixtures("connections", "home")
def test_clean_up_of_a_drill_that_was_never_opened_deletes_nothing(
    context: dict[str, Any], mirror: dict[str, Any], cleaned: list[str]
) -> None:
    """Its topic may be somebody else's: that may be just why it was not opened."""
    with pytest.raises(AirflowFailException, match="nothing was measured"):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    assert cleaned == []


@pytest.mark.usefixtures("connections", "home")
def test_topic_is_noted_as_the_drills_before_it_is_created(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory
) -> None:
    """A task that is killed right after its creation leaves a topic that the clean-up knows."""

    class Dies(Exception):
        pass

    def dies() -> None:
        (drill,) = Drills(state, "m").all()
        assert (drill.topics, drill.source_id) == (["drill-1"], clusters.source.cluster_id)
        assert drill.wanted == {"rpo_s": 1.0, "rto_s": 2.0}
        assert [row["fault"] for row in drill.rehearsal] == ["recreate_topic", "kill_tail"]
        raise Dies

    clusters.after["create topics"] = dies
    opens = OpenDrillOperator(
        task_id="t",
        mirror={**mirror, "topics": ["drill-1"]},
        rpo_objective_s="1",
        rto_objective_s=2,
        rehearse=["kill_tail", "recreate_topic"],
    )
    with pytest.raises(Dies):
        opens.execute(context)
    with pytest.raises(AirflowFailException, match="exists on the source already"):
        opens.execute(context)


@pytest.mark.usefixtures("connections", "home")
def test_what_a_drill_of_a_lost_airflow_left_is_deleted_by_the_next_one(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str],
    clusters: InMemory, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One that began today may still run. What can't be deleted doesn't keep the new drill from being opened."""
    now_ms = int(time.time() * 1000)
    note(
        state, Drill(run="old", at_ms=7, topics=["dr.left", "dr.stuck", "payments"], source_id=clusters.source.cluster_id)
    )
    note(state, Drill(run="forged", at_ms=8, topics=["dr.left"]))
    note(state, Drill(run="running", at_ms=now_ms, topics=["dr.running"], source_id=clusters.source.cluster_id))
    said: list[str] = []
    log = SimpleNamespace(warning=lambda *line: said.append(line[-1]), info=print)
    monkeypatch.setattr(OpenDrillOperator, "log", log)
    opens = OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, prefix="dr.")
    assert opens.execute(context) == {"topic": "drill-1"}
    assert cleaned == ["dr.left", "dr.stuck"], "a name that no drill has is not deleted, whatever the ledger says"
    assert {one.run: one.topics for one in Drills(state, "m").all()} == {
        "old": ["dr.stuck", "payments"], "forged": ["dr.left"], "running": ["dr.running"], "manual__1": ["drill-1"]
    }  # fmt: skip
    assert said[-4:] == [
        "dr.left of drill old is deleted",
        "drill old: could not delete 'dr.stuck' on the target: no broker answered",
        "drill old: could not delete 'payments' on the clusters: no name of a drill, which begins with 'dr.'",
        "dr.left of drill forged stay: on a source with cluster id ''",
    ]


@pytest.mark.usefixtures("connections", "home")
def test_clean_up_deletes_no_topic_that_only_its_record_names(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, cleaned: list[str]
) -> None:
    note(state, Drill(run="manual__1", at_ms=7, topics=["payments"], figures=GOOD, wanted=WANTED, failback=BACK))
    with pytest.raises(AirflowException, match="'payments' on the clusters: no name of a drill"):
        CleanUpDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    assert cleaned == []


@pytest.mark.usefixtures("connections", "home")
def test_topic_that_somebody_creates_in_the_last_moment_is_theirs(
    context: dict[str, Any], mirror: dict[str, Any], state: MemoryState, clusters: InMemory
) -> None:
    """Between the look and the creation; the clean-up would delete it."""
    clusters.before["create topics"] = lambda: clusters.source.create("drill-1")
    with pytest.raises(AirflowException, match="TOPIC_ALREADY_EXISTS"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}).execute(context)
    (drill,) = Drills(state, "m").all()
    assert drill.topics == []


@pytest.mark.usefixtures("connections", "home")
def test_prefix_that_would_fit_any_topic_is_refused(context: dict[str, Any], mirror: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="(?s)prefix.*what begins with it is deleted"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": ["drill-1"]}, prefix="").execute(context)


def test_a_drill_deletes_only_a_topic_of_its_own(
    context: dict[str, Any], connections: Callable[..., None], mirror: dict[str, Any], home: Path
) -> None:
    with pytest.raises(AirflowFailException, match="a drill has one topic of its own"):
        OpenDrillOperator(task_id="t", mirror={**mirror, "topics": [".*"]}).execute(context)


def test_summaries_stay_small_and_say_where_the_rest_is() -> None:
    big = {"records": 1, "end_offsets": {f"t-{n}": n for n in range(10_000)}, "errors": []}
    small = compact(big, full="/x/status.json")
    assert len(json.dumps(small)) < 50_000
    assert small == {"records": 1, "end_offsets": "left out, see /x/status.json", "errors": []}
    assert compact({"a": 1}) == {"a": 1}
