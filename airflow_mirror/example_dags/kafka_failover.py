"""Fail over: the source is gone, and the target is to take its place. Trigger it and fill in the form.

It needs the target's connection and the mirror's name: this Airflow need not have seen the mirror, nor its source.
`check` says what would be lost and done, and changes nothing. `failover` is refused while a tail still sees the source: a
source that lives is cut over without loss. Cleared or triggered again after it was killed, it completes what was begun.

With `source` the run goes on after the promotion: `fence_returned` asks the old source every second until it returns,
fences it then, and lists what it took. That may take days, and holds one slot of a worker: of as many mirrors as have
lost their source, as many slots.

A DAG of your own watches mirrors, and asks for the approval as soon as the source of one is lost:

.. code-block:: python

    from airflow_mirror.example_dags.kafka_failover import failover

    dag = failover("dc2_failover", watch=[("kafka_dc2", "orders"), ("kafka_dc2", "payments")], source="kafka_dc1")

The run that the event starts starts one for each mirror, under an id that the outage has: there is one, however often it
is told. An approval that nobody answers for a day fails the run: clear its `check` to be asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, AssetAny, Param, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.example_dags.approved import only_if_approved
from airflow_mirror.example_dags.forms import answer, ask_brokers, connection, known_params_only, text
from airflow_mirror.example_dags.tails import Callbacks
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.operators.failover import FailoverOperator, FenceReturnedSourceOperator
from airflow_mirror.triggers.outage import outage_asset, outages_in, run_id_of
from airflow_mirror.wording import plain

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["dag", "failover"]

PARAMS = {
    "target": connection("target", "Connection (type *Kafka cluster*) of the cluster to promote."),
    "name": Param(
        "replication", title="Name", type="string", minLength=1,
        description_md="Of the mirror whose source is gone. `airflow-mirror status` lists those of a target.",
    ),
    "source": Param(
        None, title="Source", type=["null", "string"],
        description_md="Connection of the source that is gone, to fence it when it returns; empty leaves that to you.",
    ),
    "fence": Param(
        "acl", title="Fence", type="string",
        description_md="How it is fenced: `acl`, or the dotted path of a function that returns a fence of yours.",
    ),
    "open_by_default": ask_brokers(
        "Source open without ACLs?", "For the fence by ACL: are topics of the source without any ACL open to everybody "
        "(`allow.everyone.if.no.acl.found`)? Brokers that have the setting don't tell, and nobody can be asked then.",
    ),
    "force": Param(
        False, title="Force it", type="boolean",
        description_md="Also if a tail has seen the source in the last half minute, or a cutover is at work: what the "
        "source takes from then on is lost.",
    ),
    "approval": Param(
        True, title="Ask before the failover", type="boolean",
        description_md="A person answers, and sees what `check` says. Off, it is refused unless a tail has missed the "
        "source: one that died says nothing of it.",
    ),
}  # fmt: skip
GIVEN = {"target": text("target"), "mirror_name": text("name")}
UNATTENDED = "{{ not params.approval }}"

APPROVAL_TEXT = """The target is promoted: applications may write to it, and the mirror never copies into it again.

{{ ti.xcom_pull(task_ids='check')['text'] | map('plain') | join('\n\n') }}

This was seen at the time above, and an approval of it is good for an hour; after that, clear `check` to see it anew.

Reject changes nothing."""


class ApproveFailoverOperator(ApprovalOperator):
    """Asks a person whether to fail over. No answer in time fails the task without a retry: somebody has to be told."""

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with the answer.

        :raises AirflowFailException: there is none.
        """
        try:
            return super().execute_complete(context, event)
        except HITLTimeoutError:
            # A retry would ask for another day before `on_failure_callback` tells anybody.
            raise AirflowFailException(
                f"nobody has answered in time: {self.subject} Nothing was changed. Clear 'check' to be asked again."
            ) from None


def failover(
    dag_id: str = "kafka_failover",
    watch: Sequence[tuple[str, str]] = (),
    *,
    on_failure_callback: Callbacks = None,
    how: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> DAG:
    """Return the DAG that fails a mirror over.

    :param watch: connections of targets, and names of mirrors there: an outage of one starts a run.
    :param on_failure_callback: what Airflow calls when a task has failed for good, such as a notifier.
    :param how: further arguments of :class:`.MirrorOutageTrigger`, for all that are watched.
    :param defaults: of the fields of the form; a run by an outage takes them, but for ``target`` and ``name``.
    :raises TypeError: the form has no such field.
    """
    if unknown := defaults.keys() - PARAMS.keys():
        raise TypeError(f"no form has a field {', '.join(sorted(unknown))}")
    watched = [(str(target), str(name)) for target, name in watch]
    assets = [outage_asset(target, name, **(how or {})) for target, name in watched]
    with DAG(
        dag_id,
        description="Promote the target of a mirror whose source is gone",
        doc_md=__doc__,
        schedule=AssetAny(*assets) if assets else None,
        allowed_run_types=["manual", "operator_triggered", *(["asset_triggered"] if assets else [])],
        # A run is active for days, and by Airflow's default of 16 the next mirror's check would wait for one to end.
        # What they really need, slots of workers, is limited elsewhere. 0 is no way to say so: by an outage none starts.
        max_active_runs=1000,
        params={name: Param(defaults.get(name, one.value), **one.schema) for name, one in PARAMS.items()},
        tags=["kafka-mirror"],
        user_defined_filters={"plain": plain},
        # A refusal is never retried, whatever this says; each try completes the one before.
        default_args={
            "retries": 5, "retry_delay": timedelta(seconds=10), "on_failure_callback": on_failure_callback,
        },
    ) as dag:  # fmt: skip
        check = FailoverOperator(
            task_id="check", check_only=True, unattended=UNATTENDED,
            pre_execute=None if watched else known_params_only, **GIVEN,
        )  # fmt: skip
        _promote(check)
        if watched:
            _begin_by_outage(dag_id, watched) >> check
    return dag


def _begin_by_outage(dag_id: str, watched: Sequence[tuple[str, str]]) -> Any:
    """Add the tasks by which a run that outages have started starts one for each mirror, and does nothing else.

    A disaster takes the source of many mirrors at once, and Airflow starts one run for all events that wait.
    """

    @task(pre_execute=known_params_only)
    def outages(triggering_asset_events: Any) -> list[dict[str, Any]]:
        """Return what the events that have started this run tell, as arguments of the next task; none: by the form."""
        from airflow_mirror.cutover.failover.outage import SOURCE_LOST

        events = [one for of_asset in triggering_asset_events.values() for one in of_asset]
        with task_outcome():
            told = outages_in(events, watched)
        for one in told:
            print(f"{one['mirror']} on {one['target']}: {one['what']}: {one.get('evidence')}")
        # Of a mirror that is only unhealthy the source may live, whatever the form's defaults say.
        asks = [{} if one["what"] == SOURCE_LOST else {"approval": True} for one in told]
        return [
            {"conf": {"target": one["target"], "name": one["mirror"], **ask}, "trigger_run_id": run_id_of(one)}
            for one, ask in zip(told, asks, strict=True)
        ]

    @task.short_circuit
    def is_mirror_in_form(told: list[dict[str, Any]]) -> bool:
        """A run that outages have started has no mirror of its own."""
        return not told

    told: Any = outages()
    TriggerDagRunOperator.partial(
        task_id="start_failover",
        trigger_dag_id=dag_id,
        # An outage that is told twice has had its run.
        skip_when_already_exists=True,
        # Airflow allows one run for each logical date, and would take a second mirror's of the same moment for that.
        logical_date=None,
    ).expand_kwargs(told)
    return is_mirror_in_form(told)


def _promote(check: FailoverOperator) -> None:
    """Add the tasks behind the check, of the mirror that the form names."""

    @task.branch
    def is_approval_wanted(params: dict[str, Any]) -> str:
        """Go to the approval, or straight to the failover."""
        return "approve_failover" if params["approval"] else "failover"

    # Without a default, which would be a no that nobody has said: the outage is told only once, and may go on.
    approve_failover = ApproveFailoverOperator(
        task_id="approve_failover",
        subject="Fail {{ params.name }} over to {{ params.target }}?",
        body=APPROVAL_TEXT,
        response_timeout=timedelta(days=1),
    )
    promote = FailoverOperator(
        task_id="failover", force="{{ params.force }}", unattended=UNATTENDED,
        trigger_rule="none_failed_min_one_success", pre_execute=only_if_approved("approve_failover"), **GIVEN,
    )  # fmt: skip

    @task.short_circuit
    def is_source_named(params: dict[str, Any]) -> bool:
        """Without a connection to the source nobody can stand by."""
        return bool(params["source"])

    fence_returned = FenceReturnedSourceOperator(
        task_id="fence_returned",
        source=text("source"),
        fence="{{ params.fence }}",
        open_by_default=answer("open_by_default"),
        execution_timeout=timedelta(days=7),
        **GIVEN,
    )

    check >> is_approval_wanted() >> [approve_failover, promote]
    approve_failover >> promote >> is_source_named() >> fence_returned


dag = failover()
