"""What DAGs that fence share: a tail that goes on where a cutover has backed out, and their last task.

That one keeps a run red that has not done what it was for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_mirror.errors import MirrorCutOver
from airflow_mirror.example_dags.approved import has_said_no
from airflow_mirror.operators.base import states_of
from airflow_mirror.operators.lift_fence import BEGUN
from airflow_mirror.operators.mirror import StartMirrorOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror


class FollowOnOperator(StartMirrorOperator):
    """Starts a mirror's tail again where a cutover of the run may have ended it. One that runs is left alone. A teardown.

    :param ended_by: id of the cutover's task. :param stopped_by: id of the task behind it that stops the tail.
    """

    def __init__(self, *, ended_by: str, stopped_by: str = "stop_tail", **kwargs: Any) -> None:
        super().__init__(mode="tail", **kwargs)
        self.ended_by, self.stopped_by = ended_by, stopped_by

    def execute(self, context: Context) -> Any:
        """Start it. :raises AirflowSkipException: no cutover has ended it, or its end was meant."""
        if not self.is_wanted(context["ti"]):
            raise AirflowSkipException(f"{self.ended_by!r} has not ended the tail of a mirror that is to go on")
        return super().execute(context)

    def is_wanted(self, ti: Any) -> bool:
        """Return whether nobody may be copying that should, by how the tasks of a run have ended."""
        states = states_of(ti)
        if states.get(self.ended_by) == "failed":
            return True
        # In a run that somebody marks, what runs counts as failed, or as a success, and what waits for a retry, as what
        # comes next, as skipped. Only an end of its own has returned something. Behind a task that is marked alone the
        # run goes on, and stops the tail.
        begun, returned = ti.xcom_pull(task_ids=self.ended_by, key=BEGUN), ti.xcom_pull(task_ids=self.ended_by)
        return states.get(self.stopped_by) == "skipped" and bool(begun) and returned is None

    def run(self, mirror: Mirror, context: Context) -> Any:
        """See :class:`.StartMirrorOperator`. :raises AirflowSkipException: it died, or was marked, behind the opening."""
        try:
            return super().run(mirror, context)
        except MirrorCutOver as e:
            raise AirflowSkipException(str(e)) from None


def follow_on(cutover: Any, lift_fence: Any, **mirror: Any) -> Any:
    """Let a run start a mirror's tail again where its cutover has failed, also in a run that somebody marks.

    :param lift_fence: behind which it comes: the process of a cutover that was killed is over then.
    :param mirror: ``mirror``, ``plan`` and ``spark_conn_id`` of StartMirrorOperator.
    :return: the task.
    """
    # Of no setup, like the task before it.
    going_on = FollowOnOperator(task_id="follow_on", ended_by=cutover.task_id, **mirror)
    lift_fence >> going_on.as_teardown(on_failure_fail_dagrun=True)
    return going_on


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
    if states.get(goal) != "success" and not has_said_no(asked, states.get(asked), ti):
        raise AirflowFailException(
            f"the run has not done what it was for: {goal} did not run, and nobody has said no. Was the run marked?"
        )
