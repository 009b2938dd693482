"""What DAGs that fence share: a tail that goes on where a cutover has backed out, and their last task.

That one keeps a run red that has not done what it was for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.example_dags.approved import has_said_no
from airflow_mirror.operators.base import states_of
from airflow_mirror.operators.mirror import StartMirrorOperator


def copy_on_if_failed(cutover: Any, **mirror: Any) -> None:
    """Let a run start a mirror's tail again where its cutover has failed.

    :param mirror: ``mirror``, ``plan`` and ``spark_conn_id`` of StartMirrorOperator.
    """
    # It leaves one alone that runs.
    cutover >> has_backed_out(cutover.task_id) >> StartMirrorOperator(task_id="follow_on", mode="tail", **mirror)


@task.short_circuit(trigger_rule="all_done")
def has_backed_out(cutover: str, ti: Any = None) -> bool:
    """Return whether the cutover has failed: it may have ended the tail, and then nobody would copy on."""
    return states_of(ti).get(cutover) == "failed"


def end_red_unless_done(last: Any, goal: str, asked: str, goals: Mapping[str, str] = MappingProxyType({})) -> None:
    """Let a run end with a task ``outcome`` behind ``last``, a teardown.

    :param goal: id of the task that the run is for; it may be skipped where somebody has said no.
    :param asked: id of the ApprovalOperator that asks. :param goals: where the parameter ``mode`` wants another task.
    """
    ending: Any = outcome(goal, asked, dict(goals))
    ending.as_teardown(on_failure_fail_dagrun=True)
    last >> ending


@task
def outcome(
    goal: str, asked: str, goals: dict[str, str], ti: Any = None, dag: Any = None, params: Any = None
) -> None:  # fmt: skip
    """Fail if the run would turn green although a task has failed, or its goal was skipped and nobody has said no.

    Airflow judges a run by its last tasks. Where somebody marks a run as failed it skips those, fails what was running,
    if anything was, and leaves the teardowns to end: without this one the run would turn green. A run that is red anyway
    needs no second red task.

    :raises AirflowFailException: names the tasks.
    """
    states, goal = states_of(ti), goals.get(params.get("mode", ""), goal)
    last = (one.task_id for one in dag.leaves if not one.is_teardown)
    if any(states.get(one) in ("failed", "upstream_failed") for one in last):
        return
    if failed := sorted(task_id for task_id, state in states.items() if state == "failed"):
        raise AirflowFailException(f"the run has not done what it was for, because of {', '.join(failed)}")
    if states.get(goal) != "success" and not has_said_no(asked, ti):
        raise AirflowFailException(
            f"the run has not done what it was for: {goal} did not run, and nobody has said no. Was the run marked?"
        )
