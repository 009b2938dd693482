"""Tasks of a cutover: what the core is told, what may still be done behind it, and whose fence is lifted."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, AirflowTaskTimeout
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.fence import Fence, fence_of
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.errors import InputError, LedgerLost, TryAgain
from airflow_mirror.example_dags.ending import FollowOnOperator
from airflow_mirror.operators.cutover import CutoverOperator, approval_of
from airflow_mirror.operators.lift_fence import LiftFenceOperator
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.plan.ownership import mark_cut_over
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor
from airflow_mirror.sync.configs import ConfigsReport
from airflow_mirror.sync.seen_configs import dump
from tests.provider.conftest import PLAN, InMemory, Started
from tests.provider.tasks import by_airflow, planned_again, the_time_is_over
from tests.unit.ledger.memory import MemoryLedger, MemoryState


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


def test_tail_is_not_started_again_behind_a_cutover_that_died_once_it_had_opened(
    context: dict[str, Any], mirror: dict[str, Any], plan: Plan, cut_over: Any, fake_spark: Started
) -> None:
    context["ti"].states["cutover"] = "failed"
    going_on = FollowOnOperator(task_id="t", mirror=mirror, plan=PLAN, ended_by="cutover")
    with pytest.raises(AirflowSkipException, match="target topics t are in production"):
        going_on.execute(context)
    assert fake_spark[0] == []


@pytest.mark.parametrize("operator", [CreateTargetTopicsOperator, SyncTopicConfigsOperator])
def test_a_cleared_task_takes_no_topic_that_its_team_has_created_again(
    operator: Any, context: dict[str, Any], mirror: dict[str, Any], plan: Plan, cut_over: Any, clusters: InMemory,
    ledger: MemoryLedger,
) -> None:  # fmt: skip
    """Nothing is decided about the new one's id, so it is neither in production nor anybody else's."""
    clusters.target.create("t", 1)  # the plan has two partitions
    before = dict(ledger.values())
    with pytest.raises(AirflowFailException, match="(?s)does not take target topics t.*created again"):
        operator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert len(clusters.target.topics["t"].logs) == 1 and ledger.values() == before


@pytest.mark.parametrize("operator", [CreateTargetTopicsOperator, SyncTopicConfigsOperator])
def test_nothing_is_created_or_set_by_another_source_than_the_plans(
    operator: Any, context: dict[str, Any], mirror: dict[str, Any], plan: Plan, clusters: InMemory, ledger: MemoryLedger
) -> None:
    """By its connection: where records come from, and what topics are to be, it does not say."""
    clusters.source.cluster_id, before = "staging", dict(ledger.values())
    with pytest.raises(AirflowFailException, match="InputError: source cluster\n  why: it is staging"):
        operator(task_id="t", mirror=mirror, plan=PLAN).execute(context)
    assert "t" not in clusters.target.topics and ledger.values() == before


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
        lambda *_, **given: asked.append(given) or ConfigsReport(hold=given["hold"], changes=(), applied=True),
    )
    for given in ({"hold": False}, {"hold": True, "dry_run": True}):
        SyncTopicConfigsOperator(task_id="t", mirror=mirror, plan=PLAN, **given).execute(context)
    assert [a["hold"] for a in asked] == [False, True]


def test_settings_of_a_lost_source_are_those_seen_last(
    context: dict[str, Any],
    clusters: InMemory,
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
        lambda plan, source, *_, **given: (
            asked.append(source) or ConfigsReport(hold=given["hold"], changes=(), applied=True)
        ),
    )
    for lost in ("true", False):
        given = {"mirror": mirror, "plan": PLAN, "hold": False, "source_lost": lost}
        SyncTopicConfigsOperator(task_id="t", **given).execute(context)
    seen, source = asked
    assert seen.topic_configs(["t"])["t"]["retention.ms"].value == "5"
    assert source.role == "source"


def raises(error: Exception) -> Any:
    def raising(*_: Any, **__: Any) -> None:
        raise error

    return raising


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


@pytest.mark.usefixtures("connections", "home")
def test_fence_of_a_first_cutover_that_died_before_its_report_is_known(
    context: dict[str, Any], mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch, ledger: MemoryLedger
) -> None:
    """On a worker that has no directory of the mirror the task failed: a fence of it was not known. It is decided."""
    up = FenceState(
        run="monday", attempt=1, id="1", plan="p", revision="p", owner="1", max_fence_s=60.0, kind="callable", intent={}
    )
    note_copy(ledger, "m", up)
    monkeypatch.setattr("airflow_mirror.cutover.platform.state_of", lambda *_, **__: MemoryState())
    monkeypatch.setattr("airflow_mirror.cutover.lifting.lift_leftover_fence", lambda *_, **__: ["DENY of monday"])
    lifted = LiftFenceOperator(task_id="t", mirror=mirror, any_run=True).execute(context)["lifted"]
    assert lifted == ["DENY of monday"]


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


@pytest.mark.usefixtures("connections", "home")
@pytest.mark.parametrize("state", ["upstream_failed", "skipped", None, "failed", "success", "running"])
def test_what_failed_the_plan_fails_no_second_task(
    context: dict[str, Any], mirror: dict[str, Any], ledger: MemoryLedger, state: str | None
) -> None:
    """A teardown runs behind whatever failed. Where a cutover may have raised a fence, it is told that nobody looked."""
    context["ti"].states = {"cutover": state} if state else {}
    never_begun = state in ("upstream_failed", "skipped", None)
    ledger.peek = ledger.values = raises(TryAgain("the target does not answer"))  # type: ignore[method-assign]
    for wrong in ({"source": "misspelt"}, {"target": mirror["source"]}, {"policy": "prefix", "source_alias": "dc1/"}, {}):
        for raised_by in ("", "cutover"):
            task = LiftFenceOperator(task_id="t", mirror={**mirror, **wrong}, raised_by=raised_by, fence="acl")
            if raised_by and never_begun:
                assert task.execute(context)["lifted"] == []
            else:
                with pytest.raises(AirflowException):
                    task.execute(context)


@pytest.mark.parametrize("state", ["skipped", None])
def test_fence_is_looked_for_of_a_cutover_that_died_and_was_not_tried_again(
    context: dict[str, Any], mirror: dict[str, Any], plan: Plan, ledger: MemoryLedger, state: str | None,
    cut_over_by: Callable[..., None],
) -> None:  # fmt: skip
    """It becomes skipped where somebody marks the run before its next try, and was said never to have begun."""

    class Killed(BaseException):
        pass

    cut_over_by(raises(Killed()))  # type: ignore[arg-type]
    context["ti"].task_id = "cutover"
    with pytest.raises(Killed):
        CutoverOperator(task_id="cutover", mirror=mirror, plan=PLAN).execute(context)
    context["ti"].states = {"cutover": state}
    ledger.peek = ledger.values = raises(TryAgain("the target does not answer"))  # type: ignore[method-assign]
    wrong = {**mirror, "source": "misspelt"}
    with pytest.raises(AirflowException, match="misspelt"):
        LiftFenceOperator(task_id="t", mirror=wrong, raised_by="cutover").execute(context)
    assert LiftFenceOperator(task_id="t", mirror=wrong, raised_by="another").execute(context)["lifted"] == []


@pytest.mark.usefixtures("connections")
def test_what_can_not_be_lifted_is_told_of_a_cutover_that_was_cleared(
    context: dict[str, Any], mirror: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_open = raises(InputError("The cutover died while it opened the target."))
    monkeypatch.setattr("airflow_mirror.cutover.lifting.lift_leftover_fence", half_open)
    (home / mirror["name"] / "runs").mkdir(parents=True)
    with pytest.raises(AirflowFailException, match="died while it opened"):
        LiftFenceOperator(task_id="t", mirror=mirror, raised_by="cutover").execute(context)


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize("lost", [TryAgain("the target does not answer"), LedgerLost("it is not complete")], ids=str)
def test_fence_is_lifted_by_the_names_of_the_source_where_the_target_can_not_tell(
    context: Any, mirror: dict[str, Any], home: Path, ledger: MemoryLedger, lost: Exception, monkeypatch: Any
) -> None:
    """It was looked whether the target knows the mirror, and nobody asked the source any more."""
    ledger.peek = ledger.values = raises(lost)  # type: ignore[method-assign]
    lift = "airflow_mirror.cutover.lifting.lift_leftover_fence"
    for any_run, run in ((False, "manual__1"), (True, "")):
        task = LiftFenceOperator(task_id="t", mirror=mirror, any_run=any_run, include_retained=True)
        with monkeypatch.context() as patched:
            patched.setattr(lift, lambda *_, run, **__: [f"DENY of {run!r}"])
            assert task.execute(context)["lifted"] == [f"DENY of {run!r}"]
        with pytest.raises(AirflowException, match=type(lost).__name__):  # and of none this host knows
            task.execute(context)


@pytest.mark.usefixtures("connections")
def test_report_of_this_host_says_that_a_cutover_that_was_cleared_has_begun(
    context: Any, mirror: dict[str, Any], home: Path, ledger: MemoryLedger
) -> None:
    """Its fence may be up, and nobody can say: the task was green."""
    ledger.peek = ledger.values = raises(TryAgain("the target does not answer"))  # type: ignore[method-assign]
    run_dir = home / mirror["name"] / "runs" / "manual__1"
    run_dir.mkdir(parents=True)
    CutoverReport(mirror=mirror["name"], plan_hash=PLAN).save(run_dir)
    for given in (mirror, {**mirror, "source": "misspelt"}):
        with pytest.raises(AirflowException, match=r"does not answer|does not exist"):
            LiftFenceOperator(task_id="t", mirror=given, raised_by="cutover").execute(context)
