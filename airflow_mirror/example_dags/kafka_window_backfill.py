"""Copy topics window by window, a day at a time: each run copies the records of its data interval, once.

Start a backfill for days that are over, or trigger a run with `from` and `to`. Windows are copied oldest first: each
waits for the one of the run before, however many runs are active. So each run needs a logical date, and a backfill goes
forwards. A window that was copied before is compared and nothing is written. Offsets are the source's, so a window can't
be inserted before one that was copied: it is refused, and the error names the partition.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, AssetAlias, Param

from airflow_mirror.example_dags.forms import SPARK_FIELD, connection, known_params_only, text
from airflow_mirror.example_dags.timetable import BackfillTimetable
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.sensors.windows import PreviousWindowSensor, require_logical_date

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["dag"]

PARAMS = {
    "name": Param(
        "window-backfill", title="Name", type="string", description_md="Of this flow. Its files are kept under it.",
    ),
    "source": connection("source", "Connection (type *Kafka cluster*) to read from."),
    "target": connection("target", "Connection (type *Kafka cluster*) to write to."),
    # A DAG with a schedule has to have a default, and nobody should copy everything by a click.
    "topics": Param(
        [], title="Topics", type="array", items={"type": "string"},
        description_md="To copy: names, or regular expressions for whole names; one a line.",
    ),
    "from": Param(
        None, title="From", type=["null", "string"], format="date-time",
        description_md="Time of the first record; default: the start of the run's data interval, a day.",
    ),
    "to": Param(
        None, title="To", type=["null", "string"], format="date-time",
        description_md="Time behind the last record; default: the end of the data interval.",
    ),
    "spark_conn_id": Param(None, **SPARK_FIELD),
}  # fmt: skip
START = "{{ params['from'] or data_interval_start.isoformat() }}"
END = "{{ params['to'] or data_interval_end.isoformat() }}"
SPARK = text("spark_conn_id")
MIRROR = {
    **{key: text(key) for key in ("name", "source", "target")},
    "topics": "{{ params.topics }}",
    "groups": ["none"],
    "offsets": "identical",
    "start": START,
}


def _fits(context: Context) -> None:
    """Fail a run whose form, or whose place among the others, is not known. :raises AirflowFailException: says why."""
    known_params_only(context)
    require_logical_date(context)


with DAG(
    "kafka_window_backfill",
    description="Copy topics by time windows, each once",
    doc_md=__doc__,
    # A cron string alone would give windows of no length, and a run by itself each day.
    schedule=BackfillTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    allowed_run_types=["scheduled", "manual", "backfill"],
    params=PARAMS,
    tags=["kafka-mirror"],
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
) as dag:
    plan = PlanMirrorOperator(task_id="plan", mirror=MIRROR, pre_execute=_fits)
    create_topics = CreateTargetTopicsOperator(task_id="create_topics", mirror=MIRROR)
    hold_configs = SyncTopicConfigsOperator(task_id="sync_configs", mirror=MIRROR, hold=True)
    window_before = PreviousWindowSensor(task_id="window_before", copy="copy_window")
    of_it: Any = {"mirror": MIRROR, "start": START, "end": END, "spark_conn_id": SPARK, "deferrable": True}
    copy_window = StartMirrorOperator(
        task_id="copy_window", mode="bulk", outlets=[AssetAlias("kafka_topics_copied")], **of_it
    )  # fmt: skip
    verify_window = VerifyMirrorOperator(
        task_id="verify_window", level="records", outlets=[AssetAlias("kafka_topics_compared")], **of_it
    )  # fmt: skip

    plan >> create_topics >> hold_configs >> window_before >> copy_window >> verify_window
