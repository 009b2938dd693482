"""Fail over: the source is gone, and the target is to take its place. Trigger it and fill in the form.

It needs the target's connection and the mirror's name: this Airflow need not have seen the mirror, nor its source.
`check` says what would be lost and done, and changes nothing. `failover` is refused while a tail still sees the source: a
source that lives is cut over without loss. Cleared or triggered again after it was killed, it completes what was begun.

With `source` the run goes on after the promotion: `fence_returned` asks the old source every second until it returns,
fences it then, and lists what it took. That may take days, and holds one slot of a worker.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from airflow_mirror.example_dags.forms import answer, ask_brokers, known_params_only
from airflow_mirror.operators.failover import FailoverOperator, FenceReturnedSourceOperator
from airflow_mirror.wording import plain

__all__ = ["dag"]

PARAMS = {
    "target": Param("kafka_target", type="string", description_md="Connection (type `kafka`) of the cluster to promote."),
    "name": Param(
        "replication", type="string", minLength=1,
        description_md="Name of the mirror whose source is gone. `airflow-mirror status` lists those of a target.",
    ),
    "source": Param(
        None, type=["null", "string"],
        description_md="Connection of the source that is gone, to fence it when it returns; empty leaves that to you.",
    ),
    "fence": Param(
        "acl", type="string",
        description_md="How it is fenced: `acl`, or the dotted path of a function that returns a fence of yours.",
    ),
    "open_by_default": ask_brokers(
        "Source open without ACLs?", "For the fence by ACL: are topics of the source without any ACL open to everybody "
        "(`allow.everyone.if.no.acl.found`)? Brokers that have the setting don't tell, and nobody can be asked then.",
    ),
    "force": Param(
        False, type="boolean",
        description_md="Also if a tail has seen the source in the last half minute, or a cutover is at work: what the "
        "source takes from then on is lost.",
    ),
    "approval": Param(
        True, type="boolean", description_md="Ask a person, with the result of `check`, before anything is done.",
    ),
}  # fmt: skip
GIVEN = {"target": "{{ params.target }}", "mirror_name": "{{ params.name }}"}

APPROVAL_TEXT = """The target is promoted: applications may write to it, and the mirror never copies into it again.

{{ ti.xcom_pull(task_ids='check')['text'] | map('plain') | join('\n\n') }}

Reject changes nothing."""

with DAG(
    "kafka_failover",
    description="Promote the target of a mirror whose source is gone",
    doc_md=__doc__,
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    params=PARAMS,
    tags=["kafka-mirror"],
    user_defined_filters={"plain": plain},
    # A refusal is never retried, whatever this says; each try completes the one before.
    default_args={"retries": 5, "retry_delay": timedelta(seconds=10)},
) as dag:
    check = FailoverOperator(task_id="check", check_only=True, pre_execute=known_params_only, **GIVEN)

    @task.branch
    def is_approval_wanted(params: dict[str, Any]) -> str:
        """Go to the approval, or straight to the failover."""
        return "approve_failover" if params["approval"] else "failover"

    approve_failover = ApprovalOperator(
        task_id="approve_failover",
        subject="Fail {{ params.name }} over to {{ params.target }}?",
        body=APPROVAL_TEXT,
        defaults="Reject",
        response_timeout=timedelta(days=1),
    )
    failover = FailoverOperator(
        task_id="failover", force="{{ params.force }}", trigger_rule="none_failed_min_one_success", **GIVEN
    )

    @task.short_circuit
    def is_source_named(params: dict[str, Any]) -> bool:
        """Without a connection to the source nobody can stand by."""
        return bool(params["source"])

    fence_returned = FenceReturnedSourceOperator(
        task_id="fence_returned",
        source="{{ params.source }}",
        fence="{{ params.fence }}",
        open_by_default=answer("open_by_default"),
        execution_timeout=timedelta(days=7),
        **GIVEN,
    )

    check >> is_approval_wanted() >> [approve_failover, failover]
    approve_failover >> failover >> is_source_named() >> fence_returned
