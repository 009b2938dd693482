"""Replicate continuously: three DAGs that keep a mirror's tail running, tell whether it is well, and stop it.

* `kafka_replication` has the tail run. Turned on, it looks every five minutes: a tail that lives is left alone; without
  one it plans, creates what is missing on the target, and starts the tail. With `attached` its run lasts as long as the
  tail.
* `kafka_replication_health` asks both clusters every five minutes, and fails with what is wrong. Beside the first one,
  because with `attached` that one has no time to look. When the mirror gets well, or is not well any more, an event of
  the asset `kafka_replication_healthy` or `kafka_replication_unhealthy` tells other DAGs.
* `kafka_replication_stop` ends the tail. Turn the first two off before, or the tail is started again.

Scheduled runs take what the file says, so a mirror has a file of its own:

.. code-block:: python

    from airflow_mirror.example_dags.kafka_replication import replication

    mirror = {"name": "orders", "source": "kafka_dc1", "target": "kafka_dc2", "topics": ["orders.*"]}
    dag, health, stop = replication("orders_replication", mirror, max_lag_s=60)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_mirror.example_dags import tails
from airflow_mirror.example_dags.forms import known_params_only, text
from airflow_mirror.example_dags.tails import EVERY, Callbacks, Field
from airflow_mirror.hooks.runs import param_of, run_before
from airflow_mirror.jobs.health.judging import CHECKS, Limits
from airflow_mirror.operators.health import CheckMirrorOperator
from airflow_mirror.operators.mirror import StopMirrorOperator

__all__ = ["dag", "health", "replication", "stop"]

MIRROR = {"name": "replication", "source": "kafka_source", "target": "kafka_target", "topics": [".*"]}
USUAL = Limits()

# Of each field: its default, and what the form says. A DAG takes those that it needs.
FIELDS: dict[str, Field] = {
    "mirror": (MIRROR, {
        "title": "Mirror", "type": "object", "required": ["name", "source", "target"],
        "description_md": "The Mirror: its `name`, the connections `source` and `target`, and any other of its fields.",
    }),
    **tails.FIELDS,
    "max_lag_s": (USUAL.max_lag_s, {
        "title": "Longest lag, seconds", "type": ["null", "number"], "minimum": 0,
        "description_md": "How old a record may be that the target still lacks, in seconds; empty: any age.",
    }),
    "max_lag_records": (USUAL.max_lag_records, {
        "title": "Longest lag, records", "type": ["null", "integer"], "minimum": 0,
        "description_md": "How many offsets a partition may be behind; empty: any number.",
    }),
    "min_headroom_s": (USUAL.min_headroom_s, {
        "title": "Least headroom, seconds", "type": "number", "minimum": 0,
        "description_md": "Left until the source deletes a record that the target lacks; of "
        "topics that keep less than twice that, half of what they keep.",
    }),
    "min_free_bytes": (USUAL.min_free_bytes, {
        "title": "Least free disk, bytes", "type": "integer", "minimum": 0,
        "description_md": "Of each broker of the target.",
    }),
    "warn_only": (list(USUAL.warn_only), {
        "title": "Only warn of", "type": ["null", "array"], "items": {"type": "string", "enum": list(CHECKS.rows)},
        "description_md": f"Checks whose findings only warn, of {', '.join(f'`{check}`' for check in CHECKS.rows)}.",
    }),
}  # fmt: skip
START, STOP = ("mirror", "attached", "replace_tail", "spark_conn_id"), ("mirror", "spark_conn_id", "grace_s")
CHECK = ("mirror", "max_lag_s", "max_lag_records", "min_headroom_s", "min_free_bytes", "warn_only")

_TOLD = "told"  # an XCom


def replication(
    dag_id: str = "kafka_replication",
    mirror: Mapping[str, Any] = MIRROR,
    *,
    every: timedelta = EVERY,
    on_failure_callback: Callbacks = None,
    **defaults: Any,
) -> tuple[DAG, DAG, DAG]:
    """Return the DAGs that keep the tail of one mirror running, check it, and stop it.

    :param dag_id: of the first; the others have ``_health`` and ``_stop`` behind it, and the assets ``_healthy`` and
        ``_unhealthy``.
    :param mirror: the Mirror's fields.
    :param every: how often it is made sure that the tail runs, and checked.
    :param on_failure_callback: what Airflow calls when a task has failed for good, such as a notifier.
    :param defaults: of the other fields of the forms; scheduled runs take them.
    :raises TypeError: no form has such a field.
    """
    form = tails.with_defaults(FIELDS, {**defaults, "mirror": dict(mirror)})

    def dag_of(suffix: str, what: str, fields: Sequence[str], **given: Any) -> DAG:
        of_form = {name: form[name] for name in fields}
        return tails.dag_of(f"{dag_id}{suffix}", what, of_form, on_failure_callback, doc_md=__doc__, **given)

    timed = {"schedule": every, "is_paused_upon_creation": True}
    start = dag_of("", "Have the tail of a mirror run", START, **timed)
    check = dag_of("_health", "Tell whether a replication is well", CHECK, **timed)
    stop = dag_of("_stop", "Stop the tail of a mirror", STOP, schedule=None)
    with start:
        tails.keep_tail("{{ params.mirror }}")
    with check:
        _check(Asset(f"{dag_id}_healthy"), Asset(f"{dag_id}_unhealthy"))
    with stop:
        StopMirrorOperator(
            task_id="stop_tail", mirror="{{ params.mirror }}", spark_conn_id=text("spark_conn_id"),
            grace_s="{{ params.grace_s }}", pre_execute=known_params_only,
        )  # fmt: skip
    return start, check, stop


def _check(healthy: Asset, unhealthy: Asset) -> None:
    check = CheckMirrorOperator(
        task_id="check",
        pre_execute=known_params_only,
        begins_beside=True,
        warn_only="{{ params.warn_only or [] }}",
        **{name: f"{{{{ params.{name} }}}}" for name in CHECK if name != "warn_only"},
    )

    # A task that fails tells no asset, and one that is skipped neither.
    @task(outlets=[healthy])
    def became_healthy(**context: Any) -> None:
        """Tell the asset, unless the run before was well, too."""
        _skip_if_told(context)

    @task(outlets=[unhealthy], trigger_rule="all_failed")
    def became_unhealthy(**context: Any) -> None:
        """Tell the asset, unless the run before was not well either."""
        _skip_if_told(context)

    check >> [became_healthy(), became_unhealthy()]


def _skip_if_told(context: Mapping[str, Any]) -> None:
    """Skip the task if its asset has told the same of the run before, or before that one, and nothing else since."""
    ti, here, dag = context["ti"], context["dag_run"], context["dag"]
    # An earlier try of it may have told the opposite, which no run behind it would take back. Twice does no harm.
    if here.clear_number:
        return
    # Of a run without a logical date Airflow knows no run before, and each would tell the same again.
    before = run_before(ti.dag_id, here.logical_date or here.run_after)
    if before is None or _name_of(before, dag) != _name_of(here, dag):
        return
    # Not the state of the run, nor that of its check: where somebody marks a run nobody was told anything, and this task
    # is skipped. Only where it has skipped itself it has pushed this XCom, which stays where the run was cleared and its
    # rule skips it now: then its check has ended the other way.
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=["check", ti.task_id], run_ids=[before.run_id])
    of_run = states.get(before.run_id, {})
    state, told_of = of_run.get(ti.task_id), "success" if ti.task_id == "became_healthy" else "failed"
    skipped_itself = state == "skipped" and of_run.get("check") == told_of
    if state == "success" or (skipped_itself and ti.xcom_pull(ti.task_id, key=_TOLD, run_id=before.run_id)):
        ti.xcom_push(_TOLD, True)
        raise AirflowSkipException("told before")


def _name_of(run: Any, dag: Any) -> Any:
    """Return the name of the mirror that a run looks at."""
    return param_of(run, dag, "mirror")["name"]


dag, health, stop = replication()
