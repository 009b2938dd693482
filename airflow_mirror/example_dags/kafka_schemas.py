"""Let the schemas of a registry follow into another one, with the same ids, until the last client has gone over.

Each hour, once it is turned on, what the target's registry lacks is registered there. Nothing that it has is overwritten:
what differs is a warning of the task, stands in its result, and stays. Where the store of a registry is a topic, as of
Confluent's own and of Karapace, mirror that topic instead (`_schemas`): then ids stay by themselves.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, Param

from airflow_mirror.example_dags.forms import known_params_only, text
from airflow_mirror.operators.schemas import MoveSchemasOperator

__all__ = ["dag"]

PARAMS = {
    "source_registry": Param(
        "source_registry", type="string", minLength=1, title="Source's schema registry",
        description_md="Schema registry to read: the id of a connection, or an address that needs no login.",
    ),
    "target_registry": Param(
        "target_registry", type="string", minLength=1, title="Target's schema registry",
        description_md="Schema registry that gets what it lacks. It must keep ids: by mode IMPORT, or as an Apicurio.",
    ),
    "hold": Param(
        False, type="boolean", title="Hold the target's registry",
        description_md="Let nobody else register there (mode READONLY), until a cutover that releases it. Each run "
        "holds it anew: turn this DAG off before that cutover.",
    ),
    "dry_run": Param(
        False, type="boolean", title="Only report", description_md="Say what would be registered; change nothing."
    ),
}  # fmt: skip

with DAG(
    "kafka_schemas",
    description="Let schemas follow into another registry, with the same ids",
    doc_md=__doc__,
    # Without a start date, turning the DAG on waits for the next hour.
    schedule=CronTriggerTimetable("0 * * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,  # two would each take what the other one has just registered for a difference
    is_paused_upon_creation=True,
    params=PARAMS,
    tags=["kafka-mirror"],
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(minutes=30)},
) as dag:
    MoveSchemasOperator(
        task_id="move_schemas",
        # No cluster is asked.
        mirror={
            "name": "schemas", "source": "not asked", "target": "not asked either",
            "source_registry": text("source_registry"), "target_registry": text("target_registry"),
        },
        dry_run="{{ params.dry_run }}",
        hold="{{ params.hold }}",
        pre_execute=known_params_only,
    )  # fmt: skip
