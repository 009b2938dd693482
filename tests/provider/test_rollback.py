"""The operators and DAGs of the way back: what they take, and what they hand on."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Clusters, CutoverRequest
from airflow_mirror.cutover.rollback import arm, failback, run
from airflow_mirror.cutover.rollback.arm import Armed
from airflow_mirror.cutover.rollback.divergence import Divergence
from airflow_mirror.cutover.rollback.failback import Prepared
from airflow_mirror.cutover.rollback.run import WayBack
from airflow_mirror.cutover.rollback.topic_divergence import TopicDivergence
from airflow_mirror.errors import InputError, NoWayBack
from airflow_mirror.hooks import kafka
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.base import load_plan, mirror_from
from airflow_mirror.operators.rollback import (
    ArmReverseMirrorOperator,
    PrepareFailbackOperator,
    RollbackCutoverOperator,
)
from tests.provider.conftest import DAGS, InMemory, store_plan
from tests.unit.ledger.memory import MemoryState
from tests.unit.rollback.world import REVERSE

FIELDS = {"name": "flow", "source": "old", "target": "new"}
KEPT = ReportStore(MemoryState(), "flow-reverse", "manual__1", Path("back"))
ELSEWHERE = replace(REVERSE, mirror=replace(REVERSE.mirror, source="their-new", target="their-old"))  # who armed it


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, connections: Callable[..., Any]) -> list[Any]:
    """What the core was asked for; clusters are the names of connections."""
    calls: list[Any] = []

    def armed(
        on: Platform, report_of: Any, plan: Any, *, exclude_topics: Any, check_only: bool, connections: Any, dag: str
    ) -> Armed:  # fmt: skip
        calls.append((report_of, plan, on.source.admin, on.target.admin, exclude_topics, check_only, connections, dag))
        return Armed(plan=ELSEWHERE, direction=None, fence=["DENY"])

    monkeypatch.setattr(kafka, "admins_of", lambda mirror: nullcontext((mirror.source, mirror.target)))
    monkeypatch.setattr(arm, "cutover_of", lambda name, target: (f"report of {name}", SimpleNamespace(name=name)))
    monkeypatch.setattr(arm, "arm", armed)
    return calls


def test_armed_way_back_hands_its_mirror_and_plan_on(asked: list[Any], context: dict[str, Any]) -> None:
    found = ArmReverseMirrorOperator(task_id="arm", mirror=FIELDS, exclude_topics="a", check_only="True").execute(context)
    told = "old", "new", ["a"], True, ("old", "new"), context["ti"].dag_id
    assert asked == [("report of flow", SimpleNamespace(name="flow"), *told)]
    assert (found["mirror"], found["hash"]) == ("flow-reverse", ELSEWHERE.hash)
    assert found["fields"] == REVERSE.mirror.to_dict(), "with the connections of this Airflow"


def test_mirror_of_a_thousand_topics_is_handed_on_whole(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]
) -> None:
    """The fence is swapped by then, and later tasks have this alone to work on."""
    wide = replace(REVERSE, mirror=replace(REVERSE.mirror, topics=[f"{n:040}" for n in range(1_000)]))
    monkeypatch.setattr(arm, "arm", lambda *_, **__: Armed(plan=wide, direction=None, fence=["DENY"]))
    found = ArmReverseMirrorOperator(task_id="arm", mirror=FIELDS).execute(context)
    assert mirror_from(found["fields"]) == wide.mirror


def test_no_way_back_is_not_tried_again(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, context: dict[str, Any]
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise NoWayBack("flow", ["the fence was not kept"])

    monkeypatch.setattr(arm, "arm", refused)
    with pytest.raises(AirflowFailException, match="no way back after opening"):
        ArmReverseMirrorOperator(task_id="arm", mirror=FIELDS).execute(context)


@pytest.mark.parametrize("dag_id", ["kafka_reverse_mirror", "kafka_failback"])
def test_every_field_of_the_form_is_explained_and_used(dag_id: str) -> None:
    dag: Any = DagBag(str(DAGS)).dags[dag_id]
    used = " ".join(str(getattr(task, name)) for task in dag.tasks for name in task.template_fields)
    for name in dag.params:
        assert dag.params.get_param(name).schema["description_md"], name
        assert name == "approval" or re.search(rf"params\.{name}\b", used), name


def test_reverse_tail_starts_once_its_way_back_is_armed_and_held() -> None:
    dag: Any = DagBag(str(DAGS)).dags["kafka_reverse_mirror"]
    assert [task.task_id for task in dag.topological_sort()] == ["prepare", "arm", "hold", "start_tail"]


def test_diverged_topics_are_deleted_only_by_name(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(mirror: str, on: Platform, *, export_to: Any, recreate: Any, log: Any) -> Prepared:
        asked.append((mirror, on.source.admin, on.target.admin, export_to, recreate))
        return Prepared(mirror="flow", verdicts=[TopicDivergence(topic="a", topic_id="", verdict="gone")], exports={})

    to_prepare = True
    monkeypatch.setattr(failback, "is_to_prepare", lambda *_: to_prepare)
    monkeypatch.setattr(failback, "failback", prepare)
    one = PrepareFailbackOperator(task_id="p", mirror=FIELDS, export_to="there", recreate=["a"])
    assert one.execute({})["gone"] == ["a"]
    assert PrepareFailbackOperator(task_id="q", mirror=FIELDS).execute({})["exports"] == {}
    assert asked == [("flow", "old", "new", Path("there"), ["a"]), ("flow", "old", "new", None, [])]
    to_prepare = False
    assert one.execute({}) == {"text": []} and len(asked) == 2


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> list[Any]:
    """What the core was asked for by a rollback."""
    found = WayBack(mirror="flow", plan=ELSEWHERE, decided=cast("Any", None), report_of=cast("Any", None))

    def rolled(
        way: WayBack, request: CutoverRequest, clusters: Clusters, store: ReportStore, **how: Any
    ) -> CutoverReport:
        assert (request.plan, request.fence, request.alarm, store) == (way.plan, "acl", "", KEPT)
        asked.append((way.plan, clusters.on.source.admin, clusters.on.target.admin, {"accepted": way.accepted, **how}))
        return CutoverReport(mirror="flow-reverse", plan_hash=ELSEWHERE.hash, outcome="cut_over")

    def counted(way: WayBack, source: str, target: str) -> Divergence:
        asked.append((source, target, way.accepted))
        return Divergence(written=(), problems=("group 'g' has members",))

    def connected(_task: Any, _request: Any, mirror: Mirror, _: Any) -> Any:
        there: Any = (mirror.source, mirror.target)
        return nullcontext((Clusters(on=Platform.of(*there), fence=cast("Any", None), verify=lambda _: []), KEPT))

    monkeypatch.setattr(run, "way_back", lambda _mirror, _on, accepted: replace(found, accepted=accepted))
    monkeypatch.setattr(run, "counted", counted)
    monkeypatch.setattr(run, "roll_back", rolled)
    monkeypatch.setattr(RollbackCutoverOperator, "_connected", connected)
    monkeypatch.setattr(RollbackCutoverOperator, "stored_plan", lambda task, _: {ELSEWHERE.hash: ELSEWHERE}[task.plan])
    return asked


def test_rollback_fences_the_target_by_the_reverse_plan(way: list[Any]) -> None:
    """Whatever connections that has: those of the task lead to the clusters."""
    task = RollbackCutoverOperator(task_id="rollback", mirror=FIELDS, accept_groups="g")
    found = task.execute(
        cast("Any", {"ti": SimpleNamespace(try_number=1, max_tries=0, run_id="manual__1", xcom_push=lambda **_: None)})
    )
    plan, source, target, how = way.pop()
    assert (plan, source, target) == (ELSEWHERE, "new", "old")
    assert task.plan == ELSEWHERE.hash and how.pop("log") is task.log
    assert how.pop("stop") is task._stop and how.pop("additions").require() is None
    assert how == {"accepted": ["g"], "signer": None}
    assert (found["outcome"], found["mirror"], found["hash"]) == ("cut_over", "flow-reverse", ELSEWHERE.hash)


def test_rollback_reports_who_has_approved_it_and_links_its_report(
    way: list[Any], context: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report of one that was approved said that no approval is on record."""
    monkeypatch.setenv("AIRFLOW__MIRROR__FILES_URL", "https://files")
    requests: list[CutoverRequest] = []
    roll_back = run.roll_back

    def noted(way: WayBack, request: CutoverRequest, *rest: Any, **how: Any) -> CutoverReport:
        requests.append(request)
        return roll_back(way, request, *rest, **how)

    monkeypatch.setattr(run, "roll_back", noted)
    with DAG("d"):
        task = RollbackCutoverOperator(task_id="rollback", mirror=FIELDS)
        ApprovalOperator(task_id="ask", subject="?") >> task  # type: ignore[operator]
    context["ti"].returned["ask"] = {
        "chosen_options": ["Approve"], "responded_at": "2026-01-01 01:00:00+00:00", "responded_by_user": {"name": "ann"},
    }  # fmt: skip
    task.execute(cast("Any", context))
    assert [one.approved for one in requests] == [
        {"answer": "Approve", "by": "ann", "at": "2026-01-01 01:00:00+00:00"}
    ]  # fmt: skip
    assert task.shown_links == {"_link_ReportLink": "https://files/flow-reverse/runs/manual__1/report.html"}


def test_check_counts_and_hands_the_reverse_plan_on(way: list[Any], context: dict[str, Any]) -> None:
    task = RollbackCutoverOperator(task_id="check", mirror=FIELDS, check_only=True)
    found = task.execute(cast("Any", context))
    assert way == [("old", "new", [])]
    assert found["problems"] == ["group 'g' has members"] and found["fields"] == REVERSE.mirror.to_dict()


def test_nothing_is_rolled_back_before_somebody_has_seen_the_count() -> None:
    dag: Any = DagBag(str(DAGS)).dags["kafka_failback"]
    order = ["check", "verify", "is_approval_wanted", "approve_rollback", "rollback", "stop_tail", "restore_configs"]
    for before, after in zip(order, order[1:], strict=False):
        assert after in dag.get_task(before).get_flat_relative_ids(upstream=False), (before, after)
    assert dag.params["approval"] is True
    assert dag.get_task("check").check_only is True and dag.get_task("rollback").check_only is False
    branch = dag.get_task("is_approval_wanted").python_callable
    assert [branch(params={"approval": wanted}) for wanted in (True, False)] == ["approve_rollback", "rollback"]


@pytest.mark.parametrize(
    ("dag_id", "first", "others"),
    [
        ("kafka_reverse_mirror", "arm", ["hold", "start_tail"]),
        ("kafka_failback", "check", ["verify", "stop_tail", "restore_configs", "follow_on"]),
    ],
)
def test_tasks_work_on_the_reverse_mirror_that_the_first_one_found(dag_id: str, first: str, others: list[str]) -> None:
    dag: Any = DagBag(str(DAGS)).dags[dag_id]
    found = {first: {"fields": REVERSE.mirror.to_dict(), "hash": REVERSE.hash}}
    context: Any = {"ti": SimpleNamespace(xcom_pull=lambda task_ids: found[task_ids]), "params": dag.params.dump()}
    for name in others:
        task = copy(dag.get_task(name))
        task.render_template_fields(context)
        assert mirror_from(task.mirror) == REVERSE.mirror
        assert getattr(task, "plan", None) in (None, REVERSE.hash)


def test_fence_of_the_rollback_is_lifted_whatever_the_tasks_before_returned(context: dict[str, Any]) -> None:
    """Somebody may mark the run before there is anything."""
    dag: Any = DagBag(str(DAGS)).dags["kafka_failback"]
    going_on, nothing = copy(dag.get_task("follow_on")), SimpleNamespace(xcom_pull=lambda task_ids: None)
    going_on.render_template_fields({"ti": nothing, "params": dag.params.dump()})
    context["ti"].states["rollback"] = "skipped"
    with pytest.raises(AirflowSkipException, match="'rollback' has not ended the tail"):
        going_on.execute(context)
    task = copy(dag.get_task("lift_fence"))
    task.render_template_fields({"params": {**dag.params.dump(), **FIELDS}})
    assert mirror_from(task.mirror) == Mirror(name="flow-reverse", source="new", target="old")


def test_plan_of_the_same_clusters_is_carried_out_under_other_connections(home: Path, clusters: InMemory) -> None:
    """Another Airflow has armed the way back, or somebody by hand: this one has its own names for both."""
    store_plan(home, ELSEWHERE)
    here = replace(ELSEWHERE.mirror, source="src", target="dst")
    clusters.source.cluster_id, clusters.target.cluster_id = ELSEWHERE.source_cluster_id, ELSEWHERE.target_cluster_id
    assert load_plan(ELSEWHERE.hash, here) == ELSEWHERE
    clusters.target.cluster_id = "another"
    with pytest.raises(InputError, match="target: planned 'their-old', now 'dst'"):
        load_plan(ELSEWHERE.hash, here)


def test_plan_whose_topics_are_named_after_a_connection_is_not(home: Path, clusters: InMemory) -> None:
    named = store_plan(home, replace(ELSEWHERE, mirror=replace(ELSEWHERE.mirror, policy="prefix")))
    clusters.source.cluster_id, clusters.target.cluster_id = named.source_cluster_id, named.target_cluster_id
    with pytest.raises(InputError, match="source: planned 'their-new', now 'src'"):
        load_plan(named.hash, replace(named.mirror, source="src", target="dst"))
