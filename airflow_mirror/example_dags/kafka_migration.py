"""Migrate a Kafka cluster: plan, copy, follow, prove, cut over. Trigger it and fill in the form.

Before the plan's checks have passed, nothing is written but a scratch topic on the target, which the plan deletes, and,
of a mirror that the target's ledger knows, a note of what blocks.
Every task may be cleared and run again. Until `cutover`, applications stay on the source; if any part of `cutover`
fails, it is rolled back.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetAlias, Param, TaskGroup, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.example_dags.approved import only_if_approved
from airflow_mirror.example_dags.ending import end_red_unless_done, follow_on
from airflow_mirror.example_dags.forms import (
    SPARK_FIELD,
    answer,
    ask_brokers,
    connection,
    known_params_only,
    patterns,
    stage,
    text,
)
from airflow_mirror.mirror import DEFAULT_EXCLUDED_GROUPS
from airflow_mirror.operators.acls import SyncAclsOperator
from airflow_mirror.operators.approval import ApproveCutoverOperator
from airflow_mirror.operators.base import states_of
from airflow_mirror.operators.cutover import CutoverOperator, PreviewCutoverOperator
from airflow_mirror.operators.lift_fence import LiftFenceOperator
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.offsets import TranslateConsumerOffsetsOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.rollback import ArmReverseMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.sensors.after import WatchCutoverSensor
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["dag"]


# What stands in no section is open when the form is; the sections are closed until somebody opens them.
HOW, CUTOVER, AFTER = "How to copy", "Cutover", "Afterwards"
MODES = {"plan": "Plan only", "copy": "Copy and follow", "migrate": "Migrate: copy, follow, cut over"}
PARAMS = {
    "name": Param(
        "migration", title="Name", type="string", minLength=1,
        description_md="Of this flow. Its plan, jobs and reports are kept under it.",
    ),
    "source": connection("source", "Connection (type *Kafka cluster*) to read from."),
    "target": connection("target", "Connection (type *Kafka cluster*) to write to."),
    "topics": Param(
        title="Topics", type="array", items={"type": "string"}, minItems=1,
        description_md="To move: names, or regular expressions for whole names; one a line. `.*` is all of them.",
    ),
    "exclude_topics": patterns([], "Topics to leave out", "Wins over the list above. Internal topics never move."),
    "groups": patterns([".*"], "Consumer groups", "Those whose committed offsets move."),
    "mode": Param(
        "migrate", title="How far", enum=list(MODES), values_display=MODES,
        description_md="`plan` tries the target out on a scratch topic, keeps the plan there, and copies nothing else. "
        "`copy` compares both sides once the copy has caught up; the tail goes on, and a later run of the same name "
        "migrates from there, without copying again.",
    ),
    "spark_conn_id": Param(None, **SPARK_FIELD),
    "max_bytes_per_second": Param(
        None, title="Throttle", type=["null", "integer"], minimum=1,
        description_md="Bytes per second that a job may write to the target; empty: no limit. `airflow-mirror rate` "
        "changes it while the copy runs.",
    ),
    "approval": Param(
        True, title="Ask before the cutover", type="boolean",
        description_md="A person answers, and sees what was found and the predicted length of the fence.",
    ),
    "exclude_groups": patterns(list(DEFAULT_EXCLUDED_GROUPS), "Groups to leave out", "Names or expressions.", HOW),
    "offsets": Param(
        "auto", title="Offsets", enum=["auto", "identical", "mapped"], section=HOW,
        values_display={"auto": "Decide per topic", "identical": "Same offsets", "mapped": "Other offsets, exact map"},
        description_md="`identical` keeps every record at its offset; `mapped` translates offsets exactly. The plan says "
        "what `auto` selects, and why.",
    ),
    "policy": Param(
        "identity", title="Topic names", enum=["identity", "prefix"], section=HOW,
        values_display={"identity": "The same", "prefix": "With a prefix"},
        description_md="`prefix` puts the source's alias and the separator before them.",
    ),
    "source_alias": Param(
        None, title="Prefix", type=["null", "string"], section=HOW, description_md="Default: the source's connection.",
    ),
    "separator": Param(
        ".", title="Separator", type="string", section=HOW, description_md="Between the prefix and a topic's name.",
    ),
    "start": Param(
        "earliest", title="Begin at", type="string", section=HOW,
        description_md="Where a partition new on the target begins: `earliest`, `latest` or a time such as "
        "`2026-01-31T00:00:00+00:00`.",
    ),
    "isolation": Param(
        "read_committed", title="Isolation", enum=["read_committed", "read_uncommitted"], section=HOW,
        description_md="`read_committed` leaves records of aborted transactions out.",
    ),
    "replication_factor": Param(
        None, title="Replication factor", type=["null", "integer"], minimum=1, section=HOW,
        description_md="For topics created on the target; default: the source's, at most the number of brokers.",
    ),
    "trial_s": Param(
        10, title="Trial copy, seconds", type="number", minimum=0, section=HOW,
        description_md="From it the plan for the night tells how long each topic takes, and because of what. It goes to "
        "a scratch topic of the target, which is deleted again; 0 tries nothing.",
    ),
    "trial_tasks": Param(
        2, title="Tasks of the copy", type="integer", minimum=1, section=HOW,
        description_md="That it is to have, for what the trial tells: it is made with one.",
    ),
    "replace_tail": Param(
        False, title="Replace a running tail", type="boolean", section=HOW,
        description_md="Stop a tail of an earlier run that copies other topics, or in another way, instead of refusing.",
    ),
    "verify_level": Param(
        "batches", title="Compare by", enum=["offsets", "batches", "records"], section=CUTOVER,
        description_md="How closely both sides are compared before the cutover.",
    ),
    "max_lag_records": Param(
        1000, title="Lag to begin at, records", type="integer", minimum=0, section=CUTOVER,
        description_md="Of each partition, at which the cutover may begin; its drain copies them.",
    ),
    "source_registry": Param(
        None, title="Source's schema registry", type=["null", "string"], section=CUTOVER,
        description_md="An address or a connection (type `http`). With both registries, nothing is fenced unless each "
        "schema id in a sample of every topic means the same in both.",
    ),
    "target_registry": Param(
        None, title="Target's schema registry", type=["null", "string"], section=CUTOVER,
        description_md="An address or a connection.",
    ),
    "sync_schemas": Param(
        False, title="Let schemas follow", type="boolean", section=CUTOVER,
        description_md="While the tail runs, from the one registry to the other, with the same ids.",
    ),
    "release_registry": Param(
        False, title="Release the target's registry", type="boolean", section=CUTOVER,
        description_md="Once the target is open, let everybody register there again. For one that `kafka_schemas` holds.",
    ),
    "approval_valid_s": Param(
        3600.0, title="Answer is good for, seconds", type="number", exclusiveMinimum=0, section=CUTOVER,
        description_md="So is what was found. No answer by then means no.",
    ),
    "fail_on_reject": Param(
        False, title="A no fails the run", type="boolean", section=CUTOVER,
        description_md="Instead of skipping the rest.",
    ),
    "keep_fence": Param(
        True, title="Keep the source fenced", type="boolean", section=CUTOVER,
        description_md="Afterwards, so that nobody writes where nobody reads.",
    ),
    "max_fence_s": Param(
        60.0, title="Longest fence, seconds", type="number", exclusiveMinimum=0, section=CUTOVER,
        description_md="For which producers may be kept out; then, unless the target is open, it backs out.",
    ),
    "quiet_s": Param(
        3.0, title="Quiet for, seconds", type="number", minimum=0, section=CUTOVER,
        description_md="For which the source's log end offsets must not move before the fence is trusted.",
    ),
    "wait_groups_s": Param(
        60.0, title="Wait for groups, seconds", type="number", minimum=0, section=CUTOVER,
        description_md="Until consumer groups on the fenced source have stopped committing.",
    ),
    "accept_still_groups": patterns(
        [], "Groups that may stand still", "Names. Their offsets count although they have members and lag.", CUTOVER,
    ),
    "leave_out_groups": patterns(
        [], "Groups that don't move after all", "Names. `preview` says what that means for each.", CUTOVER,
    ),
    "accept_ledger_writers": patterns(
        [], "Trusted with the ledger",
        "Principals who may write to the target's ledger beside the mirror's own; `User:*`: "
        "everybody. Without an authorizer on the target, or with others, there is no cutover without it.", CUTOVER,
    ),
    "fence": Param(
        "acl", title="Fence", type="string", section=CUTOVER,
        description_md="`acl`, or the dotted path of a function that returns a fence of your own.",
    ),
    "open_by_default": ask_brokers(
        "Source open without ACLs?", "For the fence by ACL: are topics without any ACL open to everybody "
        "(`allow.everyone.if.no.acl.found`)? Say so where there are such topics and brokers hide the setting.", CUTOVER,
    ),
    "follow": Param(
        [], title="Follow", type=["null", "array"], items={"type": "string", "enum": ["acls", "quotas"]}, section=AFTER,
        description_md="What else is to be in force on the target: `acls` (readers' rights before the cutover, writers' "
        "once it is open), `quotas` of clients.",
    ),
    "principals": Param(
        {}, title="Principals", type=["null", "object"], section=AFTER,
        description_md='With `follow`: other names of principals on the target, such as `{"User:CN=shop": "User:shop"}`.',
    ),
    "own_principals": Param(
        {}, title="The mirror's own principals", type=["null", "object"], section=AFTER,
        description_md="By role, where a connection does not say them (a certificate, a token, Kerberos with rules): "
        '`{"source": "User:CN=mirror", "target": "User:CN=mirror"}`. With `follow` the plan is refused without them.',
    ),
    "target_open_by_default": ask_brokers(
        "Target open without ACLs?", "With `follow`: are target topics without any ACL open to everybody?", AFTER,
    ),
    "way_back": Param(
        True, title="Way back", type="boolean", section=AFTER,
        description_md="Where the old source can be a target, arm it as soon as this one is open: what applications "
        "write here is copied back by a second tail, a Spark driver with a JVM of its own, until `kafka_failback` or "
        "`airflow-mirror retire` ends it. The approval's text says whether that is possible.",
    ),
    "watch_s": Param(
        600.0, title="Look after it for, seconds", type="number", minimum=0, section=AFTER,
        description_md="Groups on the target and the old source; 0 looks once.",
    ),
    "restore_configs": Param(
        True, title="End the hold", type="boolean", section=AFTER,
        description_md="Apply the source's retention and compaction to the target afterwards.",
    ),
}  # fmt: skip

MIRROR = {
    key: text(key)
    for key in (
        "name", "source", "target", "offsets", "policy", "source_alias", "separator", "start", "isolation",
        "source_registry", "target_registry",
    )
}  # fmt: skip
MIRROR |= {
    key: f"{{{{ params.{key} }}}}" for key in ("topics", "replication_factor", "max_bytes_per_second", "sync_schemas")
}
MIRROR |= {key: f"{{{{ params.{key} or [] }}}}" for key in ("exclude_topics", "groups", "exclude_groups")}
MIRROR |= {key: f"{{{{ params.{key} or {{}} }}}}" for key in ("principals", "own_principals")}
SPARK = text("spark_conn_id")
REVERSE = "{{ ti.xcom_pull(task_ids='way_back.arm')['fields'] }}"
ACCESS: dict[str, Any] = {
    "mirror": MIRROR,
    "parts": "{{ params.follow or [] }}",
    "open_by_default": answer("target_open_by_default"),
}

# An event of it has the cutover's summary: let it start what is to happen next.
CUT_OVER = Asset("kafka_cut_over")
# Each stands for the run's target topics, kafka://host:port/topic, which are known once there is a plan.
COPIED, COMPARED, MOVED = (AssetAlias(f"kafka_topics_{done}") for done in ("copied", "compared", "cut_over"))

LIKE_THE_PREVIEW = {
    "fence": "{{ params.fence }}",
    "open_by_default": answer("open_by_default"),
    "max_fence_s": "{{ params.max_fence_s }}",
    "quiet_s": "{{ params.quiet_s }}",
    "wait_groups_s": "{{ params.wait_groups_s }}",
    "level": "{{ params.verify_level }}",
    "accept_still_groups": "{{ params.accept_still_groups or [] }}",
    "accept_ledger_writers": "{{ params.accept_ledger_writers or [] }}",
    "leave_out_groups": "{{ params.leave_out_groups or [] }}",
}


def _fits(context: Context) -> None:
    """Fail a run whose form can't be carried out, whatever the clusters say. :raises AirflowFailException: says why."""
    known_params_only(context)
    if context["params"]["release_registry"] and not context["params"]["target_registry"]:
        raise AirflowFailException("release_registry needs target_registry: name both, or neither; nothing was done.")


with DAG(
    "kafka_migration",
    description="Move a Kafka cluster: same records, same offsets, proven cutover",
    doc_md=__doc__,
    schedule=None,
    max_active_runs=1,
    allowed_run_types=["manual", "operator_triggered"],
    params=PARAMS,
    tags=["kafka-mirror"],
    # Wrong input and corrupt data are never retried, whatever this says.
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
) as dag:
    with stage("prepare", "Plan it, and make the target ready"):
        plan = PlanMirrorOperator(
            task_id="plan", mirror=MIRROR, night=True, trial_s="{{ params.trial_s }}", tasks="{{ params.trial_tasks }}",
            fence="{{ params.fence }}", open_by_default=answer("open_by_default"),
            accept_ledger_writers="{{ params.accept_ledger_writers or [] }}",
            cutover_wanted="{{ params.mode == 'migrate' }}", parts=ACCESS["parts"], pre_execute=_fits,
        )  # fmt: skip

        @task.short_circuit
        def is_copy_wanted(params: dict[str, Any]) -> bool:
            """Return whether more than a plan is wanted."""
            return bool(params["mode"] != "plan")

        copy_wanted = is_copy_wanted()
        create_topics = CreateTargetTopicsOperator(task_id="create_topics", mirror=MIRROR)
        sync_configs = SyncTopicConfigsOperator(task_id="sync_configs", mirror=MIRROR, hold=True)

        # A run that wants none of it goes on past these tasks.
        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def is_access_wanted(params: dict[str, Any]) -> bool:
            """Return whether rights or quotas are to follow."""
            return bool(params["follow"])

        access_wanted = is_access_wanted()
        let_readers_in = SyncAclsOperator(task_id="let_readers_in", phase="early", **ACCESS)
        # Behind a failure there is no cutover. Before the look and the question: beside them it would be the one success
        # that lets a run cut over in which both were skipped, and somebody has cleared a task.
        readers_in = EmptyOperator(task_id="readers_in", trigger_rule="none_failed")

    with stage("copy", "Copy what is there, and follow what comes"):
        bulk_copy = StartMirrorOperator(
            task_id="bulk_copy",
            mirror=MIRROR,
            mode="bulk",
            spark_conn_id=SPARK,
            replace="{{ params.replace_tail }}",
            accept_open_transactions=True,  # the tail copies what they keep back, and a cutover waits for their end
            deferrable=True,  # a driver that runs on the cluster keeps no slot here
            outlets=[COPIED],
        )
        start_tail = StartMirrorOperator(
            task_id="start_tail", mirror=MIRROR, mode="tail", spark_conn_id=SPARK, replace="{{ params.replace_tail }}"
        )
        wait_for_catch_up = WaitForCatchUpSensor(
            task_id="wait_for_catch_up", mirror=MIRROR, max_lag_records="{{ params.max_lag_records }}", deferrable=True
        )

    with stage("prove", "Compare both sides, and look at what a cutover would meet"):
        verify = VerifyMirrorOperator(
            task_id="verify", mirror=MIRROR, level="{{ params.verify_level }}", spark_conn_id=SPARK, deferrable=True,
            outlets=[COMPARED],
        )  # fmt: skip

        @task.short_circuit
        def is_cutover_wanted(params: dict[str, Any]) -> bool:
            """Return whether applications are to move; else the tail goes on."""
            return bool(params["mode"] == "migrate")

        cutover_wanted = is_cutover_wanted()
        preview_groups = TranslateConsumerOffsetsOperator(task_id="preview_groups", mirror=MIRROR, dry_run=True)
        preview = PreviewCutoverOperator(task_id="preview", mirror=MIRROR, **LIKE_THE_PREVIEW)

    with stage("cut_over", "Move producers and consumers"):

        @task.branch
        def is_approval_wanted(params: dict[str, Any]) -> str:
            """Go to the approval, or straight on."""
            return "approve_cutover" if params["approval"] else "verify_since"

        wanted = is_approval_wanted()
        approve_cutover = ApproveCutoverOperator(
            task_id="approve_cutover",
            subject="Cut over {{ params.name }}: {{ params.source }} to {{ params.target }}?",
            preview="preview",
            valid_s="{{ params.approval_valid_s }}",
            fail_on_reject="{{ params.fail_on_reject }}",
        )
        # What came since the comparison before, so that as little as possible is left for the time of the fence.
        verify_since = VerifyMirrorOperator(
            task_id="verify_since", mirror=MIRROR, level="{{ params.verify_level }}", only_new=True, spark_conn_id=SPARK,
            deferrable=True, trigger_rule="none_failed_min_one_success",
        )  # fmt: skip
        cutover = CutoverOperator(
            task_id="cutover",
            mirror=MIRROR,
            keep_fence="{{ params.keep_fence }}",
            release_registry="{{ params.release_registry }}",
            outlets=[CUT_OVER, MOVED],
            approval_valid_s="{{ params.approval_valid_s }}",
            pre_execute=only_if_approved("approve_cutover", mode="migrate"),
            **LIKE_THE_PREVIEW,
        )
        # Does nothing unless the cutover was killed before it could lift its fence. A teardown, so that it runs also
        # where somebody marks the whole run; of no setup, because one that was killed would skip it.
        lift_fence = LiftFenceOperator(
            task_id="lift_fence", mirror=MIRROR, fence="{{ params.fence }}", raised_by="cutover"
        )  # fmt: skip
        lift_fence.as_teardown(on_failure_fail_dagrun=True)

    with stage("afterwards", "Look after both sides, and end what is over"):
        let_writers_in = SyncAclsOperator(task_id="let_writers_in", phase="cutover", **ACCESS)
        watch = WatchCutoverSensor(task_id="watch", mirror=MIRROR, watch_s="{{ params.watch_s }}")
        stop_tail = StopMirrorOperator(task_id="stop_tail", mirror=MIRROR, spark_conn_id=SPARK)

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def is_restore_wanted(params: dict[str, Any]) -> bool:
            """Return whether to apply the source's own retention and compaction to the target."""
            return bool(params["restore_configs"])

        restore_wanted = is_restore_wanted()
        restore_configs = SyncTopicConfigsOperator(task_id="restore_configs", mirror=MIRROR, hold=False)
        # A run is judged by its last tasks: the way back goes on behind a restore that has failed.
        restored = EmptyOperator(task_id="restored", trigger_rule="none_failed")

        going_on = follow_on(cutover, lift_fence, mirror=MIRROR, spark_conn_id=SPARK)

    with TaskGroup("way_back", tooltip="Copy back what applications write to the target") as way_back:
        # Behind the end of the hold, whatever became of that: the way back is planned by the target's own settings, and a
        # hold of the old source hides what they are to be.
        @task.short_circuit(trigger_rule="all_done")
        def is_wanted(found: Any, params: dict[str, Any], ti: Any = None) -> bool:
            """Return whether to copy back what applications write to the target: if it is wanted, and possible."""
            if states_of(ti).get("cutover") != "success":
                return False
            why_not = (found or {}).get("no_way_back", "")  # a preview that somebody has marked as success found nothing
            if params["way_back"] and why_not:
                logging.getLogger(__name__).warning(why_not)
            return bool(params["way_back"] and params["keep_fence"] and not why_not)

        arm = ArmReverseMirrorOperator(task_id="arm", mirror=MIRROR)
        hold = SyncTopicConfigsOperator(task_id="hold", mirror=REVERSE, hold=True)
        start_reverse = StartMirrorOperator(task_id="start_tail", mirror=REVERSE, mode="tail", spark_conn_id=SPARK)
        is_wanted(preview.output) >> arm >> hold >> start_reverse

    plan >> copy_wanted >> create_topics >> sync_configs >> bulk_copy >> start_tail >> wait_for_catch_up >> verify
    verify >> cutover_wanted >> preview_groups >> preview >> wanted >> [approve_cutover, verify_since]
    approve_cutover >> verify_since >> cutover >> [lift_fence, stop_tail, watch, let_writers_in, way_back]
    end_red_unless_done(going_on, "cutover", "approve_cutover", {"plan": "plan", "copy": "verify"})
    sync_configs >> access_wanted >> let_readers_in >> [readers_in, let_writers_in]
    readers_in >> preview_groups
    stop_tail >> restore_wanted >> restore_configs >> [restored, way_back]
