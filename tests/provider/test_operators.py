"""Operators: what they refuse, whose plan they carry out, and what a task may be given."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.errors import InvalidField
from airflow_mirror.example_dags.forms import text
from airflow_mirror.kafka import session
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.acls import SyncAclsOperator
from airflow_mirror.operators.base import PlannedOperator, flag, mirror_from, names, number
from airflow_mirror.operators.cutover import CutoverOperator, PreviewCutoverOperator
from airflow_mirror.operators.drill import (
    CleanUpDrillOperator,
    FailBackDrillOperator,
    FailOverDrillOperator,
    LoseSourceOperator,
    OpenDrillOperator,
    RehearseFaultsOperator,
    RehearseGroupsOperator,
)
from airflow_mirror.operators.failover import FailoverOperator, FenceReturnedSourceOperator
from airflow_mirror.operators.health import CheckMirrorOperator
from airflow_mirror.operators.lift_fence import LiftFenceOperator
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.offsets import TranslateConsumerOffsetsOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.summaries import compact
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.plan.findings import Finding
from airflow_mirror.sensors.after import WatchCutoverSensor
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor
from tests.provider.conftest import PLAN, InMemory, Started, store_plan
from tests.provider.tasks import planned_again

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


@pytest.mark.parametrize("operator", NEEDS_CLUSTERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "nowhere"}, "UnknownConnection: connection 'nowhere'"),
        ({"target": "bare"}, "(?s)MissingSetting: connection 'bare' .*bootstrap.servers"),
        ({"topics": ["orders.*", "["]}, r"InvalidField: topics='\['\n  why: not a valid regular expression"),
        ({"target": "src"}, r"InvalidField: target='src'\n  why: source and target are the same connection"),
        ({"offset": "auto"}, r"InvalidField: offset='\(set\)'\n  why: a Mirror has no such field"),
    ],
)
def test_wrong_input_fails_at_once_and_is_named(
    operator: Any,
    change: dict[str, Any],
    message: str,
    context: dict[str, Any],
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
    home: Path,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    with pytest.raises(AirflowFailException, match="Run PlanMirrorOperator first"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror).execute(context)


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
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
) -> None:
    task = StartMirrorOperator(task_id="t", mirror=mirror, plan={"mirror": "m", "hash": PLAN})
    assert task.execute(context)["records"] == 7


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({}, r"no plan of mirror 'm' upstream in this DAG run\n.* Run PlanMirrorOperator first"),
        ({"plan": {"mirror": "o", "hash": PLAN}}, "no plan of mirror 'm' upstream"),
        (
            {"plan": {"mirror": "m", "hash": PLAN}, "again": {"mirror": "m", "hash": "f" * 64}},
            r"2 plans of mirror 'm'.*\n.*Pass plan=",
        ),
        ({"plan": {"mirror": "m", "hash": "f" * 64}}, "Run PlanMirrorOperator first"),
    ],
    ids=["not-planned", "another-mirror", "two-plans", "not-stored"],
)
def test_without_exactly_one_plan_nothing_starts(
    returned: dict[str, Any],
    message: str,
    context: dict[str, Any],
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


def test_numbers_from_native_templates_are_names_again(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    of_2026 = store_plan(home, replace(plan, mirror=replace(plan.mirror, name="2026")))
    task = StartMirrorOperator(plan=of_2026.hash, task_id="t", mirror={**mirror, "name": 2026})
    assert task.execute(context)["records"] == 7
    given = {**mirror, "name": 2026, "topics": [2026, "t"], "exclude_topics": 7, "groups": (8,)}
    made = mirror_from(given)
    assert (made.name, made.topics, made.exclude_topics, made.groups) == ("2026", ("2026", "t"), ("7",), ("8",))
    assert (names([1, "a"]), names(1)) == (["1", "a"], ["1"])


def test_null_of_a_form_is_an_empty_list(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, clusters: InMemory
) -> None:
    """What Airflow's form sends for a list that is left empty; it ended in a TypeError, which was tried again."""
    assert names(None) == []
    assert CheckMirrorOperator(task_id="t", mirror=mirror, warn_only=None)._limits().warn_only == []  # type: ignore[arg-type]
    copy = StartMirrorOperator(task_id="t", mirror=mirror, plan=PLAN)
    copy.spark_conf = None  # type: ignore[assignment]
    assert copy.execute(context)["records"] == 7
    with pytest.raises(AirflowFailException, match=r"parts=\[\]\n  why: nothing to do"):
        SyncAclsOperator(task_id="t", mirror=mirror, plan=PLAN, parts=None).execute(context)  # type: ignore[arg-type]


NAMED = Mirror(name="2026_11", source="src", target="0x1f", topics=["1_0", "1.10"], groups=["1e5", "None"])


@pytest.mark.parametrize("given", [NAMED, NAMED.to_dict()], ids=["Mirror", "dict"])
@pytest.mark.parametrize("operator", [StartMirrorOperator, WaitForCatchUpSensor, WatchCutoverSensor])
def test_name_without_a_template_is_taken_to_the_letter(operator: Any, given: Any) -> None:
    """Native rendering evaluates it: another mirror's plan was looked for, and another topic was copied."""
    task = operator(task_id="t", mirror=given)
    task.render_template_fields({"params": {}})
    assert mirror_from(task.mirror) == NAMED
    filled = operator(task_id="t", mirror={**NAMED.to_dict(), "topics": "{{ params.topics }}", "name": text("name")})
    filled.render_template_fields({"params": {"topics": ["1_0", "1.10"], "name": "2026_11"}})
    assert mirror_from(filled.mirror) == NAMED


@pytest.mark.parametrize("operator", [FailoverOperator, partial(FenceReturnedSourceOperator, source="src")])
def test_name_of_a_failover_is_taken_to_the_letter(operator: Any) -> None:
    task = operator(task_id="t", target="{{ params.target }}", mirror_name="2026_11")
    task.render_template_fields({"params": {"target": "dst"}})
    assert (task.target, task.mirror_name) == ("dst", "2026_11")


@pytest.mark.parametrize(("field", "value"), [("name", 1.1), ("target", 1.1), ("topics", ["t", 1.1]), ("groups", 1.1)])
def test_name_that_may_have_been_another_one_is_refused(mirror: dict[str, Any], field: str, value: Any) -> None:
    """1.1 is what native rendering makes of 1.10, too: another mirror, or another topic."""
    with pytest.raises(InvalidField, match=rf"{field}=1\.1: a number.*format\(params\.name\)"):
        mirror_from({**mirror, field: value})
    with pytest.raises(InvalidField, match="names=1.1"):
        names([1.1])


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


def test_wrong_modes_and_levels_are_refused(
    context: dict[str, Any],
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


def test_summaries_stay_small_and_say_where_the_rest_is() -> None:
    big = {"records": 1, "end_offsets": {f"t-{n}": n for n in range(10_000)}, "errors": []}
    small = compact(big, full="/x/status.json")
    assert len(json.dumps(small)) < 50_000
    assert small == {"records": 1, "end_offsets": "left out, see /x/status.json", "errors": []}
    assert compact({"a": 1}) == {"a": 1}


def test_lines_of_a_summary_stay_lines_and_say_how_many_more_there_are() -> None:
    """An approval's text would have a line for each character of a text in their place."""
    lines = [f"warn: topic {n} is far behind" for n in range(5_000)]
    *shown, more = compact({"lines": lines, "at": 1.0}, full="/x/preview.json")["lines"]
    assert 100 < len(shown) < 1_000 and shown == lines[: len(shown)]
    assert more == f"and {5_000 - len(shown):,} more, see /x/preview.json"


def test_many_long_lists_of_a_summary_fit_together() -> None:
    small = compact({str(n): ["x" * 500] * 100 for n in range(9)} | {"one": ["y" * 90_000]})
    assert len(json.dumps(small)) <= 40_000
    assert small["one"] == ["and 1 more, see the task's log"] and small["8"][-1].endswith("more, see the task's log")


def test_what_later_tasks_execute_by_is_never_left_out() -> None:
    by = {"mirror": "m", "hash": "h" * 64, "plan": "p" * 64, "revision": "r", "fields": {"topics": ["t" * 40] * 2_000}}
    assert compact({**by, "ends": {"t": "x" * 9_000}, "count": 3}) == {
        **by, "ends": "left out, see the task's log", "count": 3,
    }  # fmt: skip
