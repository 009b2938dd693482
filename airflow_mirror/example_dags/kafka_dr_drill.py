"""Disaster-recovery drill: lose the source on purpose, on a topic of the drill's own, and measure what that costs.

Canary records are written while the mirror follows; then the tail is killed and the source is not asked again. A
consumer group continues on the target. The drill measures RPO (records and seconds lost) and RTO (seconds until the
target can be read and written). Consumer groups of a mirror that runs are looked at before that, if one is named: how far
would a failover set them back? At the end the drill returns to the source: its topic is created again there, filled from
the target, and compared. Faults can be injected after that, on another topic of its own: each must be noticed. The
report is `drill.json` and `drill.html` in the run's directory. Topics, group and jobs are removed, even after a failure.
No topic but the drill's is touched.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, TaskGroup, chain, task

from airflow_mirror.common.policy import DRILL_PREFIX
from airflow_mirror.example_dags.forms import connection, known_params_only, text
from airflow_mirror.extras.drill.rehearsal import FAULTS
from airflow_mirror.operators.drill import (
    CleanUpDrillOperator,
    FailBackDrillOperator,
    FailOverDrillOperator,
    LoseSourceOperator,
    OpenDrillOperator,
    RehearseFaultsOperator,
    RehearseGroupsOperator,
)
from airflow_mirror.operators.drill_turn import own_drill_only
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor

__all__ = ["dag"]

CANARIES = "Topic and canaries"  # closed until somebody opens it; what stands in no section is open when the form is
PARAMS = {
    "source": connection("source", "Connection (type *Kafka cluster*) of the cluster to lose."),
    "target": connection("target", "Connection (type *Kafka cluster*) to fail over to."),
    "groups_of": Param(
        "", title="Groups of mirror", type=["string", "null"],
        description_md="Name of a mirror between these clusters: how far would a failover set back its consumer groups? "
        "They are only looked at. Empty: no groups.",
    ),
    "failback": Param(
        True, title="Return to the source", type="boolean",
        description_md="At the end the drill's topic is created again there and filled from the target. The source must "
        "be of Kafka 3.0 or later.",
    ),
    "rehearse": Param(
        [], title="Faults to inject", type=["null", "array"], items={"type": "string", "enum": list(FAULTS)},
        examples=list(FAULTS),
        description_md="At the end, on another topic of the drill's own; each must be noticed: `recreate_topic`, "
        "`kill_tail`. Empty: none.",
    ),
    "rpo_objective_s": Param(
        5.0, title="Largest RPO, seconds", type="number", minimum=0,
        description_md="Above it the run fails, after the clean-up.",
    ),
    "rto_objective_s": Param(
        120.0, title="Largest RTO, seconds", type="number", minimum=0,
        description_md="Above it the run fails, after the clean-up.",
    ),
    "prefix": Param(
        DRILL_PREFIX, title="Prefix", type="string", minLength=3, section=CANARIES,
        description_md="Of the topics of drills. No other is deleted. A mirror of the source takes those of another "
        "prefix, unless it excludes them.",
    ),
    "partitions": Param(
        3, title="Partitions", type="integer", minimum=1, maximum=100, section=CANARIES,
        description_md="Of the drill's topic.",
    ),
    "seconds": Param(
        15, title="Write canaries for, seconds", type="number", minimum=3, section=CANARIES,
        description_md="While the tail follows, before it is killed.",
    ),
    "per_second": Param(
        50, title="Canaries per second", type="number", minimum=1, maximum=1000, section=CANARIES,
        description_md="All partitions together.",
    ),
}  # fmt: skip
TOPIC = "{{ params.prefix }}{{ dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}"
MIRROR = {
    "name": "dr-drill",
    "source": text("source"),
    "target": text("target"),
    "topics": [TOPIC],
    "groups": ["none"],
    "offsets": "identical",
}
FAULTY = {**MIRROR, "topics": [f"{TOPIC}.faults"]}  # what was measured must not depend on what a fault has left
OPEN = {
    "partitions": "{{ params.partitions }}", "prefix": text("prefix"),
    "rpo_objective_s": "{{ params.rpo_objective_s }}",
    "rto_objective_s": "{{ params.rto_objective_s }}", "rehearse": "{{ params.rehearse or [] }}",
}  # fmt: skip


@task.short_circuit
def is_rehearsal_wanted(params: dict[str, Any]) -> bool:
    """Return whether faults are to be injected; else the tasks of the rehearsal are skipped."""
    return bool(params["rehearse"])


with DAG(
    "kafka_dr_drill",
    description="Measure RPO and RTO on a topic of the drill's own",
    doc_md=__doc__,
    # Without a start date, turning the DAG on waits for the next Sunday instead of drilling at once.
    schedule=CronTriggerTimetable("0 3 * * 0", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    params=PARAMS,
    tags=["kafka-mirror"],
    # A second try would measure something else.
    default_args={"retries": 0, "execution_timeout": timedelta(minutes=10)},
) as dag:
    rehearse_groups = RehearseGroupsOperator(
        task_id="rehearse_groups",
        mirror=MIRROR,
        groups_of=text("groups_of"),
        pre_execute=known_params_only,
    )
    open_drill = OpenDrillOperator(task_id="open_drill", mirror=MIRROR, **OPEN)
    plan = PlanMirrorOperator(task_id="plan", mirror=MIRROR)
    create_topics = CreateTargetTopicsOperator(task_id="create_topics", mirror=MIRROR)
    sync_configs = SyncTopicConfigsOperator(task_id="sync_configs", mirror=MIRROR)
    start_tail = StartMirrorOperator(task_id="start_tail", mirror=MIRROR, mode="tail")
    wait_for_catch_up = WaitForCatchUpSensor(task_id="wait_for_catch_up", mirror=MIRROR, deferrable=True)
    lose_source = LoseSourceOperator(
        task_id="lose_source", mirror=MIRROR, seconds="{{ params.seconds }}", per_second="{{ params.per_second }}"
    )
    fail_over = FailOverDrillOperator(task_id="fail_over", mirror=MIRROR)
    fail_back = FailBackDrillOperator(task_id="fail_back", mirror=MIRROR, failback="{{ params.failback }}")

    with TaskGroup("rehearsal") as rehearsal:
        of_its_plan: dict[str, Any] = {"mirror": FAULTY, "plan": "{{ ti.xcom_pull(task_ids='rehearsal.plan') }}"}
        chain(
            OpenDrillOperator(task_id="open", mirror=FAULTY, **OPEN),
            PlanMirrorOperator(task_id="plan", mirror=FAULTY),
            CreateTargetTopicsOperator(task_id="create_topics", **of_its_plan),
            SyncTopicConfigsOperator(task_id="sync_configs", **of_its_plan),
            StartMirrorOperator(task_id="start_tail", mode="tail", **of_its_plan),
            RehearseFaultsOperator(task_id="inject", mirror=FAULTY, rehearse="{{ params.rehearse or [] }}"),
        )

    again: dict[str, Any] = {"retries": 5, "retry_delay": timedelta(minutes=1)}
    stop_tail = StopMirrorOperator(task_id="stop_tail", mirror=MIRROR, grace_s=10, pre_execute=own_drill_only, **again)
    clean_up = CleanUpDrillOperator(task_id="clean_up", mirror=MIRROR, **again)

    chain(
        rehearse_groups, open_drill, plan, create_topics, sync_configs, start_tail, wait_for_catch_up, lose_source,
        fail_over, fail_back, is_rehearsal_wanted(), rehearsal,
    )  # fmt: skip
    # Teardowns of no setup: they run whatever became of the tasks before, also of a run that somebody marks as failed,
    # and of one whose open_drill was killed just after it had created the topic. The run's state is that of clean_up,
    # which judges: a teardown alone would never turn a run red.
    clean_up.as_teardown(on_failure_fail_dagrun=True)
    rehearsal >> stop_tail.as_teardown() >> clean_up
