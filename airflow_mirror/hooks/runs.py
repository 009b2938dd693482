"""The runs of a DAG before a task's own, by logical date: a task's own instance knows the last one of them only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


def runs_before(ti: Any) -> Iterator[Any]:
    """Yield the runs before that of a task, the last one first: none where its own has no logical date."""
    before = ti.get_previous_dagrun()
    while before is not None:
        yield before
        before = run_before(ti.dag_id, before.logical_date)


def run_before(dag_id: str, at: datetime) -> Any:
    """Return a DAG's last run before a logical date; None if there is none. Those without such a date are not found."""
    from airflow.sdk.execution_time.comms import GetPreviousDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    found: Any = SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=dag_id, logical_date=at))
    return found.dag_run


def param_of(run: Any, dag: Any, name: str) -> Any:
    """Return what a run of a DAG was given for a parameter; what is not in its conf is the form's default."""
    return {name: dag.params[name], **(run.conf or {})}[name]
