"""The shipped DAGs parse, survive serialization, and say what they need."""

from __future__ import annotations

import copy
import itertools
import logging
import re
import subprocess
import sys
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.backfill import ReprocessBehavior, _validate_backfill_params
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetPreviousDagRun
from airflow.sdk.execution_time.task_runner import _run_task_state_change_callbacks
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction

from airflow_mirror.example_dags.kafka_migration import dag as migration
from airflow_mirror.example_dags.kafka_replication import replication
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.cutover import PreviewCutoverOperator
from airflow_mirror.operators.drill_turn import own_drill_only
from airflow_mirror.operators.mirror import StopMirrorOperator
from tests.provider.conftest import DAGS

FILES = {
    "kafka_migration", "kafka_window_backfill", "kafka_dr_drill", "kafka_replication", "kafka_failover",
    "kafka_lift_fence", "kafka_reverse_mirror", "kafka_failback", "kafka_mirrormaker", "kafka_pace",
    "kafka_schemas",
}  # fmt: skip
IDS = FILES | {"kafka_replication_health", "kafka_replication_stop", "kafka_mirrormaker_stop"}
BY_HAND = {
    "kafka_migration", "kafka_replication_stop", "kafka_mirrormaker_stop", "kafka_failover", "kafka_lift_fence",
    "kafka_reverse_mirror", "kafka_failback", "kafka_pace",
}  # fmt: skip


def test_every_file_parses(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) >= IDS


def test_every_run_begins_with_a_look_at_its_parameters(bag: Any) -> None:
    """Airflow takes any, and drops what no field of the form has: a slip would plan every topic."""

    def began(dag: Any, **conf: Any) -> None:
        (first,) = dag.roots
        run = SimpleNamespace(conf=conf, logical_date=None)
        first._pre_execute_hook(cast("Any", {"dag": dag, "dag_run": run, "params": {**dag.params.dump(), **conf}}))

    for dag in bag.dags.values():
        with pytest.raises(AirflowFailException, match="'topcis': no parameter of this DAG"):
            began(dag, topcis=["orders"])
    dag = bag.dags["kafka_migration"]
    began(dag, topics=["orders"], name="m")
    began(dag, topics=["orders"], openlineage={"parentRunId": "7"})  # another DAG's run, where its provider is installed
    began(dag, topics=["orders"], **{"airflow/task_span_detail_level": 2})  # Airflow's own
    with pytest.raises(AirflowFailException, match=r"'topcis': no parameter of this DAG. The nearest known is 'topics'"):
        began(dag, topcis=["orders"], name="m")
    began(dag, release_registry=True, source_registry="a", target_registry="b")
    with pytest.raises(AirflowFailException, match="release_registry needs target_registry"):
        began(dag, release_registry=True)
    with pytest.raises(AirflowFailException, match="no logical date"):
        began(bag.dags["kafka_window_backfill"], topics=["orders"])


def test_every_dag_survives_serialization(bag: Any) -> None:
    for dag in bag.dags.values():
        again = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert set(again.task_dict) == set(dag.task_dict)


def test_parsing_imports_neither_spark_nor_kafka() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(DAGS)!r})
import {", ".join(sorted(FILES))}
heavy = [m for m in ("pyspark", "confluent_kafka", "kafka", "pyarrow", "pandas") if m in sys.modules]
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_migration_tasks_run_in_order_from_plan_to_restore(bag: Any) -> None:
    """The tail is stopped after the cutover."""
    dag = bag.dags["kafka_migration"]
    order = ["plan", "create_topics", "sync_configs", "bulk_copy", "start_tail", "wait_for_catch_up", "verify", "preview",
             "is_approval_wanted", "verify_since", "cutover", "stop_tail", "restore_configs"]  # fmt: skip
    for before, after in zip(order, order[1:], strict=False):
        assert after in dag.get_task(before).get_flat_relative_ids(upstream=False), (before, after)
    assert dag.get_task("approve_cutover").downstream_task_ids == {"verify_since"}
    assert dag.get_task("is_approval_wanted").downstream_task_ids == {"approve_cutover", "verify_since"}
    branch = dag.get_task("is_approval_wanted").python_callable
    assert [branch(params={"approval": wanted}) for wanted in (True, False)] == ["approve_cutover", "verify_since"]
    both = {name: getattr(dag.get_task("preview"), name) for name in PreviewCutoverOperator.template_fields}
    assert both == {name: getattr(dag.get_task("cutover"), name) for name in both}, "it shows what will be done"
    assert dag.get_task("verify_since").only_new is True


def ti_of(**states: str) -> Any:
    return SimpleNamespace(dag_id="kafka_migration", run_id="r", get_task_states=lambda **_: {"r": states})


MOVES = [
    ("kafka_migration", "cutover", "approve_cutover"),
    ("kafka_failback", "rollback", "approve_rollback"),
    ("kafka_failover", "failover", "approve_failover"),
]


@pytest.mark.parametrize(("dag_id", "task_id", "asked"), MOVES)
def test_applications_move_only_where_somebody_has_said_so(bag: Any, dag_id: str, task_id: str, asked: str) -> None:
    """In each try: an approval that was skipped is no answer, and neither is one that was never reached."""
    dag = bag.dags[dag_id]
    task = dag.get_task(task_id)

    def begins(state: str | None, *, no: bool = False, **given: Any) -> None:
        pushed = {"skipped": [task_id]} if no else None
        ti = ti_of(**({} if state is None else {asked: state}))
        ti.xcom_pull = lambda task_ids, key: pushed if (task_ids, key) == (asked, "skipmixin_key") else None
        task._pre_execute_hook({"ti": ti, "task": task, "params": {**dag.params.dump(), **given}})

    begins("success")  # a yes, or somebody has marked it
    begins("skipped", approval=False)
    for state in ("skipped", "failed", "upstream_failed", "awaiting_input"):
        with pytest.raises(AirflowFailException, match=rf"NotApproved: task '{task_id}'.*\n.*'{asked}' is\s+{state}\n"):
            begins(state)
    with pytest.raises(AirflowFailException, match=rf"is not\s+asked yet\n\s+do:\s+Clear '{asked}'"):
        begins(None)
    with pytest.raises(AirflowFailException, match="answered by a no"):
        begins("success", no=True)
    if dag_id == "kafka_migration":
        for approval, mode in itertools.product((True, False), ("plan", "copy")):
            with pytest.raises(AirflowFailException, match=rf"its form says mode='{mode}'\n\s+do:"):
                begins("success", approval=approval, mode=mode)


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "upstream_failed"])
@pytest.mark.parametrize(
    ("dag_id", "cutover", "of"),
    [("kafka_migration", "cutover", "bulk_copy"), ("kafka_failback", "rollback", "stop_tail")],
)
def test_tail_is_started_again_after_a_cutover_that_backed_out(
    bag: Any, dag_id: str, cutover: str, of: str, state: str
) -> None:
    """One that has backed out behind ``stop_writers`` has taken the tail's lease for good."""
    dag = bag.dags[dag_id]
    follow_on = dag.get_task("follow_on")
    assert follow_on.upstream_task_ids == {"lift_fence"} and follow_on.mode == "tail"
    assert follow_on.mirror == dag.get_task(of).mirror and follow_on.downstream_task_ids == {"outcome"}
    ti = ti_of(**{"plan": "success", cutover: state, follow_on.stopped_by: "upstream_failed"})
    pushed = {"begun": True} if state in ("failed", "success") else {}
    ti.xcom_pull = lambda task_ids, key="return_value": {cutover: pushed}[task_ids].get(key)
    assert follow_on.is_wanted(ti) is (state == "failed")
    assert dag.has_task(follow_on.stopped_by) and isinstance(dag.get_task(follow_on.stopped_by), StopMirrorOperator)


def test_what_nobody_asked_for_keeps_no_other_task_from_running(bag: Any) -> None:
    """Rights and the way back are side branches: of those behind them, only what must hear of a failure."""
    dag = bag.dags["kafka_migration"]
    wanted = dag.get_task("is_access_wanted")
    assert wanted.ignore_downstream_trigger_rules is False
    assert [wanted.python_callable(params={"follow": parts}) for parts in ([], ["acls"])] == [False, True]
    assert wanted.upstream_task_ids == {"sync_configs"} and wanted.downstream_task_ids == {"let_readers_in"}
    assert dag.get_task("let_readers_in").downstream_task_ids == {"readers_in", "let_writers_in"}
    readers_in = dag.get_task("readers_in")
    assert readers_in.trigger_rule == "none_failed" and readers_in.downstream_task_ids == {"preview_groups"}
    assert dag.get_task("preview_groups").trigger_rule == "all_success"
    # Its one success must not be one of the side branch: skipped are then the look, the question and the answer.
    assert dag.get_task("verify_since").trigger_rule == "none_failed_min_one_success"
    assert dag.get_task("verify_since").upstream_task_ids == {"is_approval_wanted", "approve_cutover"}
    assert dag.get_task("let_writers_in").upstream_task_ids == {"let_readers_in", "cutover"}
    assert dag.get_task("cutover").upstream_task_ids == {"verify_since"}
    assert dag.get_task("watch").upstream_task_ids == {"cutover"}
    back = dag.get_task("way_back.is_wanted")
    for wanted, kept, why_not in itertools.product((True, False), (True, False), ("", "offsets differ")):
        params = {"way_back": wanted, "keep_fence": kept}
        found = {"no_way_back": why_not}
        assert back.python_callable(found, params, ti_of(cutover="success")) is (wanted and kept and not why_not)
    marked = back.python_callable(None, {"way_back": True, "keep_fence": True}, ti_of(cutover="success"))
    assert marked is True, "somebody has marked the preview as success, and the arming finds what there is"
    assert dag.params["way_back"] is True, "where it is possible nobody has to ask for it"
    # It plans by settings of the target, and holds the old source, whose settings those are to be.
    assert "restore_configs" in back.upstream_task_ids and back.trigger_rule == "all_done"
    assert dag.get_task("is_restore_wanted").ignore_downstream_trigger_rules is False
    # And it goes on where that has failed, which has to turn the run red: the last tasks do.
    restored = dag.get_task("restored")
    assert restored.upstream_task_ids == {"restore_configs"} and restored.trigger_rule == "none_failed"
    assert not restored.downstream_task_ids
    for state in ("failed", "skipped", "upstream_failed"):
        assert back.python_callable(None, {}, ti_of(cutover=state)) is False
    assert back.get_flat_relative_ids() == {f"way_back.{name}" for name in ("arm", "hold", "start_tail")}
    assert [asset.name for asset in dag.get_task("cutover").outlets] == ["kafka_cut_over", "kafka_topics_cut_over"]


@pytest.mark.parametrize("dag_id", ["kafka_migration", "kafka_failback"])
def test_fence_is_lifted_also_in_a_run_that_somebody_marks(bag: Any, dag_id: str) -> None:
    """A run that is marked as failed, or successful, still runs its teardowns, and nothing else."""
    dag = bag.dags[dag_id]
    assert {task.task_id for task in dag.teardowns} == {"lift_fence", "follow_on", "outcome"}
    assert dag.get_task("follow_on").on_failure_fail_dagrun, "and so does a mirror that nobody copies"
    assert dag.get_task("lift_fence").on_failure_fail_dagrun, "a fence that stands turns the run red"
    assert not any(task.is_setup for task in dag.tasks), "a cutover that was killed would skip it"


@pytest.mark.parametrize(("dag_id", "goal"), [("kafka_migration", "cutover"), ("kafka_failback", "rollback")])
def test_a_run_that_has_not_reached_its_goal_stays_red(bag: Any, dag_id: str, goal: str) -> None:
    """Its last tasks decide, and of a run that is marked those are skipped; so is the goal, if nothing was running."""
    dag = bag.dags[dag_id]
    task = dag.get_task("outcome")
    assert task.upstream_task_ids == {"follow_on"} and not task.downstream_task_ids and task.on_failure_fail_dagrun
    named, asked, goals = task.op_args
    assert goals == ({"plan": "plan", "copy": "verify"} if goal == "cutover" else {})
    assert named == goal and isinstance(dag.get_task(asked), ApprovalOperator)
    states: dict[str, Any] = {goal: "success", "watch": "skipped", "lift_fence": "success", "outcome": "running"}
    xcoms: dict[tuple[str, str], Any] = {}
    ti = SimpleNamespace(
        dag_id=dag_id, run_id="r", get_task_states=lambda **_: {"r": states},
        xcom_pull=lambda task_ids, key="return_value": xcoms.get((task_ids, key)),
    )  # fmt: skip

    def answer(option: str) -> None:
        """Have Airflow's own operator take an answer; what it returns becomes an XCom, unless it ends by an exception."""
        xcoms.clear()
        its = SimpleNamespace(map_index=-1, xcom_push=lambda key, value: xcoms.update({(asked, key): value}))
        event = {
            "chosen_options": [option], "params_input": {}, "responded_at": pendulum.now(), "responded_by_user": None,
        }  # fmt: skip
        states[asked] = "success"
        asking = copy.copy(dag.get_task(asked))
        asking.fail_on_reject = False  # as rendered
        with suppress(DownstreamTasksSkipped):
            context: Any = {"ti": its, "task": asking}
            xcoms[asked, "return_value"] = asking.execute_complete(context, event)

    def judge(mode: str = "migrate") -> None:
        task.python_callable(*task.op_args, ti, dag, {"mode": mode})

    judge()
    states[goal] = "failed"
    with pytest.raises(AirflowFailException, match=f"because of {goal}"):
        judge()
    states[goal] = "skipped"
    with pytest.raises(AirflowFailException, match=f"{goal} did not run, and nobody has said no"):
        judge()
    answer("Approve")
    with pytest.raises(AirflowFailException, match=f"{goal} did not run, and nobody has said no"):
        judge()
    answer("Reject")
    judge()
    states[asked] = "skipped"  # somebody has cleared the run, and marked it before it asked again
    with pytest.raises(AirflowFailException, match=f"{goal} did not run, and nobody has said no"):
        judge()
    states[asked] = "success"
    states[goal], states["verify" if goal == "cutover" else "check"] = "upstream_failed", "failed"
    last = next(one.task_id for one in dag.leaves if not one.is_teardown)
    states[last] = "upstream_failed"
    judge()  # the run is red because of one task, and stays so


@pytest.mark.parametrize(("mode", "done"), [("plan", "plan"), ("copy", "verify"), ("migrate", "cutover")])
def test_a_run_has_done_what_its_mode_asks_for(bag: Any, mode: str, done: str) -> None:
    dag = bag.dags["kafka_migration"]
    copies, cuts_over = (dag.get_task(name).python_callable for name in ("is_copy_wanted", "is_cutover_wanted"))
    assert (copies(params={"mode": mode}), cuts_over(params={"mode": mode})) == (mode != "plan", mode == "migrate")
    assert dag.get_task("is_copy_wanted").downstream_task_ids == {"create_topics"}
    assert dag.get_task("is_cutover_wanted").downstream_task_ids == {"preview_groups"}
    task, states = dag.get_task("outcome"), {done: "success"}
    ti = SimpleNamespace(
        dag_id="kafka_migration", run_id="r", get_task_states=lambda **_: {"r": states}, xcom_pull=lambda **_: None
    )
    task.python_callable(*task.op_args, ti, dag, {"mode": mode})
    states[done] = "skipped"
    with pytest.raises(AirflowFailException, match=f"{done} did not run"):
        task.python_callable(*task.op_args, ti, dag, {"mode": mode})


def test_graph_shows_the_stages_of_a_migration(bag: Any) -> None:
    groups = bag.dags["kafka_migration"].task_group.get_task_group_dict()
    assert [name for name in groups if name] == ["prepare", "copy", "prove", "cut_over", "afterwards", "way_back"]
    alone = [one for one in bag.dags["kafka_migration"].task_group.children if one not in groups]
    assert alone == ["outcome"]


def test_notifiers_of_ones_own_are_called_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By Airflow's own code, in a DAG's file that is made of the page's block."""
    page = (DAGS.parent / "docs" / "operators.md").read_text(encoding="utf-8")
    (block,) = (
        one for one in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "on_success_callback = " in one
    )
    shipped = {name: migration.get_task(name) for name in ("cutover", "lift_fence", "watch")}
    for task in shipped.values():  # whatever the file does to the shipped DAG ends with this test
        for kind in ("on_success_callback", "on_failure_callback"):
            monkeypatch.setattr(task, kind, ())
    (tmp_path / "with_notifiers.py").write_text(block)
    bag = DagBag(str(tmp_path))
    assert bag.import_errors == {}
    for name in shipped:
        task = bag.dags["kafka_migration"].get_task(name)
        ti = SimpleNamespace(dag_id="kafka_migration", task_id=name, state="over")
        for kind in ("on_success_callback", "on_failure_callback"):
            _run_task_state_change_callbacks(task, kind, cast("Any", {"ti": ti}), cast("Any", logging.getLogger()))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("kafka_migration.")]
    assert said == [f"kafka_migration.{name}: over" for name in ("cutover", "cutover", "lift_fence", "watch")]


def test_windows_have_a_length(bag: Any) -> None:
    dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(bag.dags["kafka_window_backfill"]))
    window = dag.timetable.infer_manual_data_interval(run_after=pendulum.datetime(2026, 5, 1, 10, 20, tz="UTC"))
    assert (window.end - window.start).total_seconds() == 86_400
    daily = dag.iter_dagrun_infos_between(
        pendulum.datetime(2026, 3, 1, tz="UTC"), pendulum.datetime(2026, 3, 3, tz="UTC")
    )
    assert [one.logical_date and one.logical_date.day for one in daily] == [1, 2, 3], "a backfill has its days"
    asked = {"last_automated_data_interval": None, "restriction": TimeRestriction(dag.start_date, None, catchup=False)}
    assert dag.timetable.next_dagrun_info(**asked) is None, (
        "and the scheduler none: turned on, it copies nothing by itself"
    )
    # As Airflow asks before it makes the runs of a backfill with its default: leave out what has run.
    _validate_backfill_params(dag, False, window.start, window.end, ReprocessBehavior.NONE)


@pytest.mark.parametrize(("state", "goes_on"), [("success", True), ("running", False), (None, False)])
def test_a_window_waits_for_the_one_before(bag: Any, state: str | None, goes_on: bool) -> None:
    """Records can't be inserted before what was copied."""
    task = bag.dags["kafka_window_backfill"].get_task("window_before")
    assert task.downstream_task_ids == {task.copy}
    before, here = (
        SimpleNamespace(run_id=day, conf={}, data_interval_start=start, logical_date=start, state="running")
        for day, start in (("monday", pendulum.datetime(2026, 3, 2)), ("tuesday", pendulum.datetime(2026, 3, 3)))
    )
    ti = SimpleNamespace(
        dag_id="d", get_previous_dagrun=lambda: before,
        get_task_states=lambda **_: {"monday": {"copy_window": state}} if state else {},
    )  # fmt: skip
    assert task.poke({"ti": ti, "dag": task.dag, "dag_run": here}) is goes_on


def test_the_drill_cleans_up_whatever_happens(bag: Any) -> None:
    dag = bag.dags["kafka_dr_drill"]
    assert {t.task_id for t in dag.teardowns} == {"stop_tail", "clean_up"}
    assert dag.get_task("clean_up").on_failure_fail_dagrun
    assert dag.get_task("stop_tail")._pre_execute_hook is own_drill_only, "another Airflow's tail goes on"
    assert not any(task.is_setup for task in dag.tasks), "a setup that was killed would skip its teardowns"
    assert all(dag.get_task(name).retries for name in ("stop_tail", "clean_up"))


def test_the_drills_topic_is_left_to_it_by_a_replication_of_all_topics(bag: Any) -> None:
    prefix = bag.dags["kafka_dr_drill"].params["prefix"]
    one = Mirror.from_dict(bag.dags["kafka_replication"].params["mirror"])
    assert one.selects_topic("orders") and not one.selects_topic(f"{prefix}20261115T030000")


def test_faults_come_after_what_is_measured_on_a_topic_of_their_own(bag: Any) -> None:
    dag = bag.dags["kafka_dr_drill"]
    faulty = [task for task in dag.tasks if task.task_id.startswith("rehearsal.")]
    assert all("fail_back" in task.get_flat_relative_ids(upstream=True) for task in faulty)
    topics = {task.task_id: task.mirror["topics"] for task in dag.tasks if hasattr(task, "mirror")}
    (own,) = topics["rehearsal.inject"]
    assert own != topics["fail_back"][0] and {tuple(topics[task.task_id]) for task in faulty} == {(own,)}
    # Of the two plans in the run that the same mirror has, theirs.
    plans = {task.plan for task in faulty if hasattr(task, "plan")}
    assert plans == {"{{ ti.xcom_pull(task_ids='rehearsal.plan') }}"}
    wanted = dag.get_task("is_rehearsal_wanted").python_callable
    assert [wanted(params={"rehearse": given}) for given in ([], None, ["kill_tail"])] == [False, False, True]
    used = " ".join(str(getattr(task, name)) for task in dag.tasks for name in task.template_fields)
    for name in dag.params:
        assert dag.params.get_param(name).schema["description_md"] and f"params.{name}" in used, name


def test_dags_with_a_schedule_wait_until_someone_turns_them_on(bag: Any) -> None:
    assert {d.dag_id for d in bag.dags.values() if d.is_paused_upon_creation} == IDS - BY_HAND


# --- replication -----------------------------------------------------------------------------------------------------


def test_a_tail_that_lives_is_asked_for_no_plan(bag: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = bag.dags["kafka_replication"]
    order = [task.task_id for task in dag.topological_sort()]
    assert order == ["is_start_wanted", "plan", "create_topics", "sync_configs", "start_tail"]
    asked: list[str] = []
    pushed: dict[str, str] = {}
    ti = SimpleNamespace(xcom_push=pushed.__setitem__)
    wanted = dag.get_task("is_start_wanted").python_callable
    monkeypatch.setitem(wanted.__globals__, "replicates", lambda mirror: (asked.append(mirror.name) or True, ""))
    with pytest.raises(AirflowSkipException, match="its tail lives"):
        wanted(dag.params["mirror"], ti)
    monkeypatch.setitem(wanted.__globals__, "replicates", lambda mirror: (False, "job/7/1.5"))
    wanted(dag.params["mirror"], ti)
    assert asked == ["replication"] and pushed == {"lost": "job/7/1.5"}
    ready = copy.copy(dag.get_task("is_start_wanted"))
    ready.render_template_fields({"params": {"mirror": {"name": "from the form"}}})
    assert ready.op_kwargs == {"mirror": {"name": "from the form"}}, "fields, not their text"
    assert "xcom_pull('is_start_wanted', key='lost', map_indexes=ti.map_index)" in dag.get_task("start_tail").replaces


def test_scheduled_runs_of_a_replication_take_what_its_file_says() -> None:
    mirror = {"name": "m", "source": "src", "target": "dst", "topics": ["t"], "sync_acls": True}
    alerts = [lambda context: None]
    dags = replication(
        "m_replication", mirror, every=timedelta(minutes=1), on_failure_callback=alerts, max_lag_s=60, attached=True
    )
    assert [dag.dag_id for dag in dags] == ["m_replication", "m_replication_health", "m_replication_stop"]
    start, health, stop = dags
    assert start.params["attached"] is True and health.params["max_lag_s"] == 60
    assert all(dag.params["mirror"] == mirror for dag in dags)
    assert start.schedule == health.schedule == timedelta(minutes=1) and stop.schedule is None
    assert health.get_task("check").on_failure_callback == alerts
    with pytest.raises(TypeError, match="no form has a field max_lag"):
        replication("x", mirror, max_lag=60)


@pytest.mark.parametrize("dag_id", ["kafka_replication", "kafka_replication_health", "kafka_replication_stop"])
def test_every_field_of_a_replication_is_explained_and_used(bag: Any, dag_id: str) -> None:
    dag = bag.dags[dag_id]
    used = " ".join(str(getattr(task, name)) for task in dag.tasks for name in task.template_fields)
    for name in dag.params:
        assert dag.params.get_param(name).schema["description_md"], name
        assert re.search(rf"{{{{ ('%r' \| format\()?params\.{name}( or \[\])?\)? }}}}", used), name


NOW = datetime(2026, 3, 2, tzinfo=UTC)


class BeforeThis:
    """A task's view of the run before: how its task of that name has ended, or None for the first run.

    :param skipped_itself: it was skipped by its own code, and has left what that pushes.
    :param cleared: that was before the run was cleared; its check has ended the other way since.
    """

    dag_id = "kafka_replication_health"

    def __init__(
        self, task_id: str, state: str | None, skipped_itself: bool, conf: dict[str, Any], cleared: bool = False
    ) -> None:
        self._check = "success" if (task_id == "became_healthy") != cleared else "failed"
        self.task_id, self._state, self._conf = task_id, state, conf
        self._xcoms = {"told": True} if skipped_itself else {}
        self.pushed: dict[str, Any] = {}
        self.xcom_push = self.pushed.__setitem__

    def send(self, asked: Any) -> Any:
        """Answer as Airflow's supervisor."""
        assert isinstance(asked, GetPreviousDagRun) and (asked.dag_id, asked.logical_date) == (self.dag_id, NOW)
        before = SimpleNamespace(run_id="before", state="success", conf=self._conf)
        return SimpleNamespace(dag_run=None if self._state is None else before)

    def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, dict[str, Any]]:
        assert dag_id == self.dag_id and run_ids == ["before"] and task_ids == ["check", self.task_id]
        return {"before": {"check": self._check, self.task_id: self._state}}

    def xcom_pull(self, task_ids: str, *, key: str, run_id: str) -> Any:
        assert (task_ids, run_id) == (self.task_id, "before")
        return self._xcoms.get(key)


CLEARED, HERE = {"cleared": True}, {"here": True}  # the run before, and the one that tells
OTHER = {"mirror": {"name": "another", "source": "a", "target": "b"}}


@pytest.mark.parametrize("task_id", ["became_healthy", "became_unhealthy"])
@pytest.mark.parametrize(
    ("before", "skipped_itself", "conf", "tells"),
    [
        pytest.param(None, False, {}, True, id="first"),
        pytest.param("success", False, {}, False, id="told"),
        pytest.param("skipped", True, {}, False, id="told before that"),
        pytest.param("skipped", True, CLEARED, True, id="told before that, and cleared since"),
        pytest.param("success", False, HERE, True, id="told, and this run was cleared"),
        pytest.param("skipped", True, HERE, True, id="told before that, and this run was cleared"),
        pytest.param("skipped", False, {}, True, id="other way, not begun, or marked"),
        pytest.param("upstream_failed", False, {}, True, id="other way, behind a failure"),
        pytest.param("failed", False, {}, True, id="could not tell"),
        pytest.param("success", False, OTHER, True, id="of another mirror"),
        pytest.param("success", False, {"mirror": {"name": "replication"}}, False, id="of this one by hand"),
    ],
)
@pytest.mark.parametrize("dated", [True, False])
def test_assets_are_told_when_health_changes(
    bag: Any, task_id: str, before: str | None, skipped_itself: bool, conf: dict[str, Any], tells: bool, dated: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A skipped task tells nobody. The run is red when the check failed, because its other end has not run then.

    Turned on together with the DAG that starts the tail, the first run has nothing to look at, and tells neither. One
    that a request has triggered without a logical date told each time. Behind one that was marked as failed while its
    check had failed, or that somebody had started for another mirror, an outage was never told. One that was cleared may
    have told the opposite itself, and is compared with no other.
    """
    dag = bag.dags["kafka_replication_health"]
    teller = dag.get_task(task_id)
    assert [asset.name for asset in teller.outlets] == [f"kafka_replication_{task_id.removeprefix('became_')}"]
    assert teller.upstream_task_ids == {"check"}
    assert teller.trigger_rule == ("all_success" if task_id == "became_healthy" else "all_failed")
    cleared = conf is CLEARED
    ti = BeforeThis(task_id, before, skipped_itself, {} if conf in (CLEARED, HERE) else conf, cleared)
    run = SimpleNamespace(
        logical_date=NOW if dated else None, run_after=NOW, conf=None, clear_number=int(conf is HERE)
    )  # fmt: skip
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", ti, raising=False)
    with nullcontext() if tells else pytest.raises(AirflowSkipException):
        teller.python_callable(ti=ti, dag_run=run, dag=dag)
    assert ti.pushed == ({} if tells else {"told": True}), "what the next run knows a skipped one by"
