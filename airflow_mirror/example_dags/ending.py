"""What DAGs that fence share: their last task, which keeps a run red."""

from __future__ import annotations

from typing import Any

from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException


def end_red_if_one_failed(last: Any) -> None:
    """Let a run end with a task ``outcome`` behind ``last``, a teardown: it fails where another task has failed."""
    ending: Any = outcome()
    ending.as_teardown(on_failure_fail_dagrun=True)
    last >> ending


@task
def outcome(ti: Any = None) -> None:
    """Fail if a task of the run has failed.

    Airflow judges a run by its last tasks. Where somebody marks a run as failed it skips those, fails what was running,
    and leaves the teardowns to end: without this one the run would turn green.

    :raises AirflowFailException: names the tasks.
    """
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
    if failed := sorted(task_id for task_id, state in states.items() if state == "failed"):
        raise AirflowFailException(f"the run has not done what it was for, because of {', '.join(failed)}")
