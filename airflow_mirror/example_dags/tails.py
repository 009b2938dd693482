"""What DAGs that keep tails running share: fields of their forms, their making, and the tasks that have a tail run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_mirror.example_dags.forms import SPARK_FIELD, known_params_only, text
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.hooks.tail import replicates
from airflow_mirror.operators.base import mirror_from
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator

Field = tuple[Any, dict[str, Any]]
Callbacks = Callable[..., None] | Sequence[Callable[..., None]] | None

EVERY = timedelta(minutes=5)

# Of each field: its default, and what the form says.
FIELDS: dict[str, Field] = {
    "attached": (False, {
        "title": "Stay with the tail", "type": "boolean",
        "description_md": "The task stays with the tail and supervises it: for executors whose host ends with the task "
        "(Kubernetes). Else the tail outlives the run.",
    }),
    "replace_tail": (False, {
        "title": "Replace a running tail", "type": "boolean",
        "description_md": "Stop a tail that copies other topics, or in another way, instead of refusing.",
    }),
    "spark_conn_id": (None, SPARK_FIELD),
    "grace_s": (60.0, {
        "title": "Time to finish, seconds", "type": "number", "minimum": 0,
        "description_md": "That the tail may take.",
    }),
}  # fmt: skip


def with_defaults(fields: Mapping[str, Field], defaults: Mapping[str, Any]) -> dict[str, Field]:
    """Return the fields with other defaults, which scheduled runs take.

    :raises TypeError: no form has such a field.
    """
    if unknown := defaults.keys() - fields.keys():
        raise TypeError(f"no form has a field {', '.join(sorted(unknown))}")
    return {name: (defaults.get(name, default), schema) for name, (default, schema) in fields.items()}


def dag_of(dag_id: str, what: str, form: Mapping[str, Field], on_failure_callback: Callbacks, **given: Any) -> DAG:
    """Return a DAG with a form, whose runs never overlap, and whose tasks have one retry."""
    return DAG(
        dag_id,
        description=what,
        catchup=False,
        max_active_runs=1,
        params={name: Param(default, **schema) for name, (default, schema) in form.items()},
        tags=["kafka-mirror"],
        default_args={"retries": 1, "retry_delay": timedelta(minutes=1), "on_failure_callback": on_failure_callback},
        **given,
    )


def keep_tail(mirror: Any) -> None:
    """Add the tasks that have a mirror's tail run, to the DAG or the mapped group that is being made.

    :param mirror: as an operator takes it: templated, or what a mapped group is given.
    """

    # Not a short circuit: in a mapped group Airflow 3.3 loses what that one says, and would skip nothing.
    @task(render_template_as_native_obj=True, pre_execute=known_params_only)
    def is_start_wanted(mirror: Any, ti: Any) -> None:
        """Go on unless the tail lives: a plan every few minutes would be work for nothing."""
        with task_outcome():
            lives, lost = replicates(mirror_from(mirror))
        if lives:
            raise AirflowSkipException("its tail lives")
        ti.xcom_push("lost", lost)

    wanted: Any = is_start_wanted(mirror=mirror)
    plan = PlanMirrorOperator(task_id="plan", mirror=mirror)
    create_topics = CreateTargetTopicsOperator(task_id="create_topics", mirror=mirror)
    sync_configs = SyncTopicConfigsOperator(task_id="sync_configs", hold=True, mirror=mirror)
    # Of its own mirror: without map_indexes a task of a mapped group is given those of all.
    lost = f"ti.xcom_pull('{wanted.operator.task_id}', key='lost', map_indexes=ti.map_index)"
    start_tail = StartMirrorOperator(
        task_id="start_tail",
        mode="tail",
        attached="{{ params.attached }}",
        replace="{{ params.replace_tail }}",
        replaces=f"{{{{ {lost} or '' }}}}",
        spark_conn_id=text("spark_conn_id"),
        mirror=mirror,
    )
    wanted >> plan >> create_topics >> sync_configs >> start_tail
