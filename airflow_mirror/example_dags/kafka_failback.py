"""Fail back after a cutover: applications return to the old source, with everything they wrote to the target.

It takes the way back that `kafka_reverse_mirror` has armed, or somebody by hand, and the reverse mirror's tail. `check`
counts what was written since the target was opened, and says what would be refused; a person sees that before anything is
done. Then `rollback` is a cutover of the reverse mirror: fence the target, prove the fence, drain, compare the rest, move
the groups, open the old source. If any part of it fails the target is open again, and applications stay there;
`follow_on` starts the tail again, so that what they write is copied back until somebody is there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, AssetAlias, Param, task

from airflow_mirror.example_dags.approved import only_if_approved
from airflow_mirror.example_dags.ending import end_red_unless_done, follow_on
from airflow_mirror.example_dags.forms import (
    SPARK_FIELD,
    answer,
    ask_brokers,
    connection,
    known_params_only,
    patterns,
    text,
)
from airflow_mirror.operators.lift_fence import LiftFenceOperator
from airflow_mirror.operators.mirror import StopMirrorOperator
from airflow_mirror.operators.rollback import RollbackCutoverOperator
from airflow_mirror.operators.topics import SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.plan.direction import reverse_name
from airflow_mirror.wording import plain

__all__ = ["dag"]

ROLLBACK = "Rollback"  # closed until somebody opens it; what stands in no section is open when the form is
PARAMS = {
    "name": Param(
        "migration", title="Name", type="string", minLength=1, description_md="Of the mirror that was cut over.",
    ),
    "source": connection("source", "Connection (type *Kafka cluster*) of its source."),
    "target": connection("target", "Connection of its target, where applications write."),
    "approval": Param(
        True, title="Ask before the rollback", type="boolean",
        description_md="A person answers, and sees what `check` says.",
    ),
    "spark_conn_id": Param(None, **SPARK_FIELD),
    "accept_groups": patterns(
        [], "Groups taken as they stand",
        "Names. Their positions on the target count although they have members there, or have committed on both sides "
        "since.", ROLLBACK,
    ),
    "allow_rewind": Param(
        False, title="Let groups go back", type="boolean", section=ROLLBACK,
        description_md="Also set positions that are behind those that a group has on the old source.",
    ),
    "accept_ledger_writers": patterns(
        [], "Trusted with the ledger",
        "Principals who may write to the ledger on the old source beside the mirror's own; `User:*`: everybody. Others "
        "are refused.", ROLLBACK,
    ),
    "fence": Param(
        "acl", title="Fence", type="string", section=ROLLBACK,
        description_md="How the target is fenced: `acl`, or the dotted path of a function that returns a fence of yours.",
    ),
    "open_by_default": ask_brokers(
        "Target open without ACLs?", "For the fence by ACL: are topics of the target without any ACL open to everybody "
        "(`allow.everyone.if.no.acl.found`)?", ROLLBACK,
    ),
    "max_fence_s": Param(
        60.0, title="Longest fence, seconds", type="number", exclusiveMinimum=0, section=ROLLBACK,
        description_md="For which producers may be kept out.",
    ),
    "verify_level": Param(
        "batches", title="Compare by", enum=["offsets", "batches", "records"], section=ROLLBACK,
        description_md="How closely both sides are compared.",
    ),
}  # fmt: skip
MIRROR = {key: text(key) for key in ("name", "source", "target")}
SPARK = text("spark_conn_id")
# A teardown is also rendered where `check` has returned nothing, and does nothing then.
REVERSE = {
    "mirror": "{{ (ti.xcom_pull(task_ids='check') or {}).get('fields') }}",
    "plan": "{{ (ti.xcom_pull(task_ids='check') or {}).get('hash') }}",
}
REVERSED = {"name": "{{ params.name | reverse_name }}", "source": MIRROR["target"], "target": MIRROR["source"]}
ACCEPTED = "{{ params.accept_groups or [] }}"

APPROVAL_TEXT = """The target is fenced, and applications return to the old source with what they wrote since.

{{ ti.xcom_pull(task_ids='check')['text'] | map('plain') | join('\n\n') }}

* comparison: {{ ti.xcom_pull(task_ids='verify') | plain }}

Reject changes nothing: applications stay on the target."""

with DAG(
    "kafka_failback",
    description="Return to the old source after a cutover, with what was written since",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=1,
    allowed_run_types=["manual", "operator_triggered"],
    params=PARAMS,
    tags=["kafka-mirror"],
    user_defined_filters={"plain": plain, "reverse_name": reverse_name},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    check = RollbackCutoverOperator(
        task_id="check", check_only=True, mirror=MIRROR, accept_groups=ACCEPTED, pre_execute=known_params_only
    )
    verify = VerifyMirrorOperator(
        task_id="verify", level="{{ params.verify_level }}", spark_conn_id=SPARK, deferrable=True, **REVERSE
    )  # fmt: skip

    @task.branch
    def is_approval_wanted(params: dict[str, Any]) -> str:
        """Go to the approval, or straight to the rollback."""
        return "approve_rollback" if params["approval"] else "rollback"

    approve_rollback = ApprovalOperator(
        task_id="approve_rollback",
        subject="Return from {{ params.target }} to {{ params.source }}?",
        body=APPROVAL_TEXT,
        defaults="Reject",
        response_timeout=timedelta(days=1),
    )
    rollback = RollbackCutoverOperator(
        task_id="rollback",
        mirror=MIRROR,
        accept_groups=ACCEPTED,
        accept_ledger_writers="{{ params.accept_ledger_writers or [] }}",
        fence="{{ params.fence }}",
        open_by_default=answer("open_by_default"),
        max_fence_s="{{ params.max_fence_s }}",
        level="{{ params.verify_level }}",
        allow_rewind="{{ params.allow_rewind }}",
        outlets=[AssetAlias("kafka_topics_moved_back")],
        pre_execute=only_if_approved("approve_rollback"),
        trigger_rule="none_failed_min_one_success",
    )
    # Does nothing unless the rollback was killed before it could lift the fence of the target. A teardown, also of a run
    # that somebody marks, and so it asks for nothing that a task before it may not have returned.
    lift_fence = LiftFenceOperator(
        task_id="lift_fence", mirror=REVERSED, fence="{{ params.fence }}", raised_by="rollback"
    )  # fmt: skip
    lift_fence.as_teardown(on_failure_fail_dagrun=True)
    stop_tail = StopMirrorOperator(task_id="stop_tail", mirror=REVERSE["mirror"], spark_conn_id=SPARK)
    restore_configs = SyncTopicConfigsOperator(task_id="restore_configs", hold=False, **REVERSE)

    check >> verify >> is_approval_wanted() >> [approve_rollback, rollback]
    approve_rollback >> rollback >> [lift_fence, stop_tail]
    going_on = follow_on(rollback, lift_fence, spark_conn_id=SPARK, **REVERSE)
    end_red_unless_done(going_on, "rollback", "approve_rollback")
    stop_tail >> restore_configs
