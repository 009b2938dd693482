"""Let producers write to a mirror's source again: lift the fence that a cutover left up, of whatever run.

For the night: trigger it with the mirror's name and its two connections. Guards do the same by themselves within half a
minute, if one of them is left. The fence of a cutover that is at work stays, and so does that of a target that is open.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_mirror.example_dags.forms import connection, known_params_only, text
from airflow_mirror.operators.lift_fence import LiftFenceOperator

__all__ = ["dag"]

PARAMS = {
    "name": Param("migration", title="Name", type="string", minLength=1, description_md="Of the mirror."),
    "source": connection("source", "Connection (type *Kafka cluster*) of the fenced cluster."),
    "target": connection("target", "Connection (type *Kafka cluster*) that has the ledger."),
    "fence": Param(
        "acl", title="Fence", type="string", description_md="How it was raised, as in the cutover's form.",
    ),
    "include_retained": Param(
        False, title="Lift what was kept, too", type="boolean",
        description_md="Lift also what a finished cutover has kept on purpose, or what nobody can tell about because the "
        "target does not answer: the source takes writes again, and the target may take them as well.",
    ),
}  # fmt: skip

with DAG(
    "kafka_lift_fence",
    description="Let producers write to a mirror's source again",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=1,
    params=PARAMS,
    tags=["kafka-mirror"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    LiftFenceOperator(
        task_id="lift_fence",
        mirror={key: text(key) for key in ("name", "source", "target")},
        fence="{{ params.fence }}",
        include_retained="{{ params.include_retained }}",
        any_run=True,
        pre_execute=known_params_only,
    )
