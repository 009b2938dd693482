"""Pause a mirror, let it go on, or set its rate, on whatever host it copies.

Trigger it with the mirror's name and the connection of its target, or from the mirror's page. What is wished holds until
somebody wishes otherwise, for jobs that are started later as well, and the mirror's page says who wished it.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_mirror.example_dags.forms import connection, known_params_only, text
from airflow_mirror.operators.pace import PaceMirrorOperator

__all__ = ["dag"]

PARAMS = {
    # Neither has a default: a form that is sent off untouched must not pause anything.
    "name": Param(title="Name", type="string", minLength=1, description_md="Of the mirror."),
    "target": connection("target", "Connection (type *Kafka cluster*) of its target."),
    "action": Param(
        title="Action", type="string", enum=["pause", "resume", "rate"],
        description_md="`pause`: nothing is copied until `resume`, and what the source deletes meanwhile is lost.",
    ),
    "rate": Param(
        "default", title="Rate", type="string", pattern="^([1-9][0-9]*|none|default)$",
        description_md="Bytes per second of all tasks together, such as `20000000`; `none`: no limit; `default`: as the "
        "Mirror says.",
    ),
}  # fmt: skip

with DAG(
    "kafka_pace",
    description="Pause a mirror, resume it, or set its rate",
    doc_md=__doc__,
    schedule=None,
    params=PARAMS,
    tags=["kafka-mirror"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    PaceMirrorOperator(
        task_id="pace",
        # Its source is not asked.
        mirror={"name": text("name"), "source": "not asked", "target": text("target")},
        action="{{ params.action }}",
        rate="{{ params.rate }}",
        pre_execute=known_params_only,
    )
