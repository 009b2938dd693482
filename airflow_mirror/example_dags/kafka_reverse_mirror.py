"""Keep a way back after a cutover: copy what applications write to the target back to the old source.

Trigger it after `kafka_migration` has cut over with its fence kept. The old source stays fenced for applications; only
the reverse mirror may write there, at the same offsets as on the target. Where that is not possible `arm` says why, as a
whole, and changes nothing. Triggered again it makes sure that the tail runs.

So does it after `kafka_failover`, once the source has returned and is fenced. There `prepare` says which topics have
diverged, and exports what they have too much. A person answers for each of them, by `recreate` or `exclude_topics`; `arm`
refuses the others.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_mirror.example_dags.forms import SPARK_FIELD, connection, known_params_only, patterns, text
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.rollback import ArmReverseMirrorOperator, PrepareFailbackOperator
from airflow_mirror.operators.topics import SyncTopicConfigsOperator

__all__ = ["dag"]

PARAMS = {
    "name": Param(
        "migration", title="Name", type="string", minLength=1, description_md="Of the mirror that was cut over.",
    ),
    "source": connection("source", "Connection (type *Kafka cluster*) of its old source."),
    "target": connection("target", "Connection of its target, where applications write."),
    "export_to": Param(
        None, title="Export diverged records to", type=["null", "string"],
        description_md="After a failover: a directory on the worker, for what diverged topics of the old source have and "
        "the target lacks.",
    ),
    "recreate": patterns(
        [], "Topics to delete and copy back",
        "Names. After a failover: diverged topics that are **deleted** on the old source once they are exported, created "
        "again, and copied back in full.",
    ),
    "exclude_topics": patterns(
        [], "Topics to leave out", "Names. They stay on the old source as they are, and are not copied back.",
    ),
    "spark_conn_id": Param(None, **SPARK_FIELD),
}  # fmt: skip
MIRROR = {key: text(key) for key in ("name", "source", "target")}
REVERSE = "{{ ti.xcom_pull(task_ids='arm')['fields'] }}"

with DAG(
    "kafka_reverse_mirror",
    description="Keep a way back after a cutover",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=1,
    allowed_run_types=["manual", "operator_triggered"],
    params=PARAMS,
    tags=["kafka-mirror"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    prepare = PrepareFailbackOperator(
        task_id="prepare", mirror=MIRROR, export_to=text("export_to"), recreate="{{ params.recreate or [] }}",
        pre_execute=known_params_only,
    )  # fmt: skip
    arm = ArmReverseMirrorOperator(task_id="arm", mirror=MIRROR, exclude_topics="{{ params.exclude_topics or [] }}")
    hold = SyncTopicConfigsOperator(task_id="hold", mirror=REVERSE, hold=True)
    start_tail = StartMirrorOperator(
        task_id="start_tail", mirror=REVERSE, mode="tail", spark_conn_id=text("spark_conn_id")
    )

    prepare >> arm >> hold >> start_tail
