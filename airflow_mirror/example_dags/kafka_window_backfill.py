"""Copy topics window by window: each run copies the records of its data interval, once.

Windows are copied oldest first: each copy waits for the one of the previous run, however many runs are active. A window
that was copied before is compared and nothing is written. Offsets are the source's, so a window can't be inserted
before one that was copied: it is refused, and the error names the partition.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_mirror.example_dags.forms import known_params_only
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator

__all__ = ["dag"]

PARAMS = {
    "name": Param("window-backfill", type="string", description_md="Name of the flow; its files are kept under it."),
    "source": Param("kafka_source", type="string", description_md="Connection (type `kafka`) to read from."),
    "target": Param("kafka_target", type="string", description_md="Connection (type `kafka`) to write to."),
    "topics": Param([".*"], type="array", items={"type": "string"}, description_md="Topic names or regular expressions."),
}
START, END = "{{ data_interval_start.isoformat() }}", "{{ data_interval_end.isoformat() }}"
MIRROR = {
    **{key: f"{{{{ params.{key} }}}}" for key in PARAMS},
    "groups": ["none"],
    "offsets": "identical",
    "start": START,
}

with DAG(
    "kafka_window_backfill",
    description="Copy topics by time windows, each once",
    doc_md=__doc__,
    # A cron string alone would give windows of no length.
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    allowed_run_types=["scheduled", "manual", "backfill"],
    params=PARAMS,
    tags=["kafka-mirror"],
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
) as dag:
    plan = PlanMirrorOperator(task_id="plan", mirror=MIRROR, pre_execute=known_params_only)
    create_topics = CreateTargetTopicsOperator(task_id="create_topics", mirror=MIRROR)
    hold_configs = SyncTopicConfigsOperator(task_id="sync_configs", mirror=MIRROR, hold=True)
    copy_window = StartMirrorOperator(
        task_id="copy_window", mirror=MIRROR, mode="bulk", start=START, end=END, depends_on_past=True
    )
    verify_window = VerifyMirrorOperator(task_id="verify_window", mirror=MIRROR, level="records", start=START, end=END)

    plan >> create_topics >> hold_configs >> copy_window >> verify_window
