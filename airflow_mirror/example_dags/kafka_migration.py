"""Migrate a Kafka cluster: plan, copy, follow, prove, cut over. Trigger it and fill in the form.

Before the plan's checks have passed, nothing is written but a scratch topic on the target, which the plan deletes.
Every task may be cleared and run again. Until `cutover`, applications stay on the source; if any part of `cutover`
fails, it is rolled back.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, TaskGroup, task

from airflow_mirror.example_dags.ending import end_red_unless_done, states_of
from airflow_mirror.example_dags.forms import known_params_only
from airflow_mirror.mirror import DEFAULT_EXCLUDED_GROUPS
from airflow_mirror.operators.acls import SyncAclsOperator
from airflow_mirror.operators.approval import ApproveCutoverOperator
from airflow_mirror.operators.cutover import CutoverOperator, LiftFenceOperator, PreviewCutoverOperator
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.offsets import TranslateConsumerOffsetsOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.rollback import ArmReverseMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.sensors.after import WatchCutoverSensor
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor

__all__ = ["dag"]


def patterns(default: list[str], section: str, text: str) -> Param:
    """Return a form field for a list of names, or regular expressions."""
    return Param(default, type="array", items={"type": "string"}, section=section, description_md=text)


WHO, WHAT, HOW, CUTOVER, AFTER = "Clusters", "Topics and groups", "How to copy", "Cutover", "Afterwards"
PARAMS = {
    "name": Param(
        "migration", type="string", minLength=1, section=WHO,
        description_md="Name of this flow. Its plan, jobs and reports are kept under it.",
    ),
    "source": Param("kafka_source", type="string", section=WHO, description_md="Connection (type `kafka`) to read from."),
    "target": Param("kafka_target", type="string", section=WHO, description_md="Connection (type `kafka`) to write to."),
    "topics": patterns([".*"], WHAT, "Topics to move: names, or regular expressions for whole names; one a line."),
    "exclude_topics": patterns([], WHAT, "Topics to leave out; wins over the list above. Internal topics never move."),
    "groups": patterns([".*"], WHAT, "Consumer groups whose positions move."),
    "exclude_groups": patterns(list(DEFAULT_EXCLUDED_GROUPS), WHAT, "Groups to leave out."),
    "offsets": Param(
        "auto", enum=["auto", "identical", "mapped"], section=HOW,
        values_display={"auto": "Decide per topic", "identical": "Same offsets", "mapped": "Other offsets, exact map"},
        description_md="`identical` keeps every record at its offset; `mapped` translates offsets exactly. The plan says "
        "what `auto` selects, and why.",
    ),
    "policy": Param(
        "identity", enum=["identity", "prefix"], section=HOW,
        description_md="`identity` keeps topic names; `prefix` puts the source's alias and the separator before them.",
    ),
    "source_alias": Param(
        None, type=["null", "string"], section=HOW, description_md="Prefix; default: the source's connection.",
    ),
    "separator": Param(".", type="string", section=HOW, description_md="Between the prefix and a topic's name."),
    "start": Param(
        "earliest", type="string", section=HOW,
        description_md="Where a partition new on the target begins: `earliest`, `latest` or a time such as "
        "`2026-01-31T00:00:00+00:00`.",
    ),
    "isolation": Param(
        "read_committed", enum=["read_committed", "read_uncommitted"], section=HOW,
        description_md="`read_committed` leaves records of aborted transactions out.",
    ),
    "replication_factor": Param(
        None, type=["null", "integer"], minimum=1, section=HOW,
        description_md="For topics created on the target; default: the source's, at most the number of brokers.",
    ),
    "trial_s": Param(
        10, type="number", minimum=0, section=HOW, description_md="Seconds of a trial copy, from which the plan for the "
        "night tells how long each topic takes, and because of what. It goes to a scratch topic of the target, which is "
        "deleted again; 0 tries nothing.",
    ),
    "trial_tasks": Param(
        2, type="integer", minimum=1, section=HOW, description_md="Tasks that the copy is to have, for what the trial "
        "tells: it is made with one.",
    ),
    "spark_conn_id": Param(
        None, type=["null", "string"], section=HOW,
        description_md="Connection (type `spark`) of a Spark cluster; empty runs Spark on the worker.",
    ),
    "replace_tail": Param(
        False, type="boolean", section=HOW,
        description_md="Stop a tail of an earlier run that copies other topics, or in another way, instead of refusing.",
    ),
    "verify_level": Param(
        "batches", enum=["offsets", "batches", "records"], section=CUTOVER,
        description_md="How closely both sides are compared before the cutover.",
    ),
    "max_lag_records": Param(
        1000, type="integer", minimum=0, section=CUTOVER,
        description_md="Lag per partition at which the cutover may begin, in records; its drain copies them.",
    ),
    "approval": Param(
        True, type="boolean", section=CUTOVER,
        description_md="Ask a person before the cutover, with what was found and the predicted length of the fence.",
    ),
    "approval_valid_s": Param(
        3600.0, type="number", exclusiveMinimum=0, section=CUTOVER,
        description_md="Seconds for which what was found, and the answer, are good. No answer by then means no.",
    ),
    "fail_on_reject": Param(
        False, type="boolean", section=CUTOVER, description_md="A no ends the run red, instead of skipping the rest.",
    ),
    "keep_fence": Param(
        True, type="boolean", section=CUTOVER,
        description_md="Leave the source fenced afterwards, so that nobody writes where nobody reads.",
    ),
    "max_fence_s": Param(
        60.0, type="number", exclusiveMinimum=0, section=CUTOVER,
        description_md="Seconds for which producers may be kept out; then, unless the target is open, it backs out.",
    ),
    "quiet_s": Param(
        3.0, type="number", minimum=0, section=CUTOVER,
        description_md="Seconds for which the source's log end offsets must not move before the fence is trusted.",
    ),
    "wait_groups_s": Param(
        60.0, type="number", minimum=0, section=CUTOVER,
        description_md="Seconds to wait for consumer groups on the fenced source to stop committing.",
    ),
    "accept_still_groups": patterns(
        [], CUTOVER, "Groups whose positions count although they have members and lag, once they stand still: names.",
    ),
    "leave_out_groups": patterns(
        [], CUTOVER, "Groups that don't move after all: names. `preview` says what that means for each.",
    ),
    "accept_ledger_writers": patterns(
        [], CUTOVER, "Principals who may write to the target's ledger beside the mirror's own, and are trusted with it; "
        "`User:*`: everybody. Without an authorizer on the target, or with others, there is no cutover without it.",
    ),
    "fence": Param(
        "acl", type="string", section=CUTOVER,
        description_md="`acl`, or the dotted path of a function that returns a fence of your own.",
    ),
    "open_by_default": Param(
        None, type=["null", "boolean"], section=CUTOVER,
        description_md="For the fence by ACL: are source topics without any ACL open to everybody "
        "(`allow.everyone.if.no.acl.found`)? Required where there are such topics and brokers hide the setting.",
    ),
    "follow": Param(
        [], type="array", items={"type": "string", "enum": ["acls", "quotas"]}, section=AFTER,
        description_md="What else is to be in force on the target: `acls` (readers' rights before the cutover, writers' "
        "once it is open), `quotas` of clients.",
    ),
    "principals": Param(
        {}, type="object", section=AFTER,
        description_md='With `follow`: other names of principals on the target, such as `{"User:CN=shop": "User:shop"}`.',
    ),
    "target_open_by_default": Param(
        None, type=["null", "boolean"], section=AFTER,
        description_md="With `follow`: are target topics without any ACL open to everybody? Needed where brokers hide "
        "it.",
    ),
    "way_back": Param(
        True, type="boolean", section=AFTER,
        description_md="Where the old source can be a target, arm the way back as soon as this one is open: what "
        "applications write here is copied back, by a second tail, until you stop it. The approval's text says whether "
        "that is possible.",
    ),
    "watch_s": Param(
        600.0, type="number", minimum=0, section=AFTER,
        description_md="Seconds after the opening for which groups on the target and the old source are looked after; "
        "0 looks once.",
    ),
    "restore_configs": Param(
        True, type="boolean", section=AFTER,
        description_md="Apply the source's retention and compaction to the target afterwards.",
    ),
}  # fmt: skip

MIRROR = {
    key: f"{{{{ params.{key} }}}}"
    for key in (
        "name", "source", "target", "topics", "exclude_topics", "groups", "exclude_groups", "offsets", "policy",
        "source_alias", "separator", "start", "isolation", "replication_factor", "principals",
    )
}  # fmt: skip
SPARK = "{{ params.spark_conn_id }}"
REVERSE = "{{ ti.xcom_pull(task_ids='way_back.arm')['fields'] }}"
ACCESS: dict[str, Any] = {
    "mirror": MIRROR,
    "parts": "{{ params.follow }}",
    "open_by_default": "{{ params.target_open_by_default }}",
}

# An event of it has the cutover's summary: let it start what is to happen next.
CUT_OVER = Asset("kafka_cut_over")

LIKE_THE_PREVIEW = {
    "fence": "{{ params.fence }}",
    "open_by_default": "{{ params.open_by_default }}",
    "max_fence_s": "{{ params.max_fence_s }}",
    "quiet_s": "{{ params.quiet_s }}",
    "wait_groups_s": "{{ params.wait_groups_s }}",
    "level": "{{ params.verify_level }}",
    "accept_still_groups": "{{ params.accept_still_groups }}",
    "accept_ledger_writers": "{{ params.accept_ledger_writers }}",
    "leave_out_groups": "{{ params.leave_out_groups }}",
}

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
    plan = PlanMirrorOperator(
        task_id="plan", mirror=MIRROR, night=True, trial_s="{{ params.trial_s }}", tasks="{{ params.trial_tasks }}",
        fence="{{ params.fence }}", open_by_default="{{ params.open_by_default }}",
        accept_ledger_writers="{{ params.accept_ledger_writers }}", pre_execute=known_params_only,
    )  # fmt: skip
    create_topics = CreateTargetTopicsOperator(task_id="create_topics", mirror=MIRROR)
    sync_configs = SyncTopicConfigsOperator(task_id="sync_configs", mirror=MIRROR, hold=True)

    # A run that wants none of it goes on past these tasks.
    @task.short_circuit(ignore_downstream_trigger_rules=False)
    def is_access_wanted(params: dict[str, Any]) -> bool:
        """Return whether rights or quotas are to follow."""
        return bool(params["follow"])

    let_readers_in = SyncAclsOperator(task_id="let_readers_in", phase="early", **ACCESS)
    let_writers_in = SyncAclsOperator(task_id="let_writers_in", phase="cutover", **ACCESS)
    bulk_copy = StartMirrorOperator(
        task_id="bulk_copy",
        mirror=MIRROR,
        mode="bulk",
        spark_conn_id=SPARK,
        replace="{{ params.replace_tail }}",
        accept_open_transactions=True,  # the tail copies what they keep back, and a cutover waits for their end
    )
    start_tail = StartMirrorOperator(
        task_id="start_tail", mirror=MIRROR, mode="tail", spark_conn_id=SPARK, replace="{{ params.replace_tail }}"
    )
    wait_for_catch_up = WaitForCatchUpSensor(
        task_id="wait_for_catch_up", mirror=MIRROR, max_lag_records="{{ params.max_lag_records }}", deferrable=True
    )
    verify = VerifyMirrorOperator(task_id="verify", mirror=MIRROR, level="{{ params.verify_level }}", spark_conn_id=SPARK)
    preview_groups = TranslateConsumerOffsetsOperator(task_id="preview_groups", mirror=MIRROR, dry_run=True)

    preview = PreviewCutoverOperator(task_id="preview", mirror=MIRROR, **LIKE_THE_PREVIEW)

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
        trigger_rule="none_failed_min_one_success",
    )  # fmt: skip
    cutover = CutoverOperator(
        task_id="cutover",
        mirror=MIRROR,
        keep_fence="{{ params.keep_fence }}",
        outlets=[CUT_OVER],
        approval_valid_s="{{ params.approval_valid_s }}",
        **LIKE_THE_PREVIEW,
    )
    # Does nothing unless the cutover was killed before it could lift its fence. A teardown, so that it runs also where
    # somebody marks the whole run; of no setup, because one that was killed would skip it.
    lift_fence = LiftFenceOperator(task_id="lift_fence", mirror=MIRROR, fence="{{ params.fence }}")
    lift_fence.as_teardown(on_failure_fail_dagrun=True)
    watch = WatchCutoverSensor(task_id="watch", mirror=MIRROR, watch_s="{{ params.watch_s }}")
    stop_tail = StopMirrorOperator(task_id="stop_tail", mirror=MIRROR, spark_conn_id=SPARK)

    @task.short_circuit
    def is_restore_wanted(params: dict[str, Any]) -> bool:
        """Return whether to apply the source's own retention and compaction to the target."""
        return bool(params["restore_configs"])

    restore_configs = SyncTopicConfigsOperator(task_id="restore_configs", mirror=MIRROR, hold=False)

    @task.short_circuit(trigger_rule="all_done")
    def has_backed_out(ti: Any = None) -> bool:
        """Return whether the cutover has failed: it may have ended the tail, and then nobody would copy on."""
        return states_of(ti).get("cutover") == "failed"

    # Leaves one alone that runs.
    follow_on = StartMirrorOperator(task_id="follow_on", mirror=MIRROR, mode="tail", spark_conn_id=SPARK)

    with TaskGroup("way_back") as way_back:

        @task.short_circuit
        def is_wanted(found: Any, params: dict[str, Any]) -> bool:
            """Return whether to copy back what applications write to the target: if it is wanted, and possible."""
            if params["way_back"] and found["no_way_back"]:
                logging.getLogger(__name__).warning(found["no_way_back"])
            return bool(params["way_back"] and params["keep_fence"] and not found["no_way_back"])

        arm = ArmReverseMirrorOperator(task_id="arm", mirror=MIRROR)
        hold = SyncTopicConfigsOperator(task_id="hold", mirror=REVERSE, hold=True)
        start_reverse = StartMirrorOperator(task_id="start_tail", mirror=REVERSE, mode="tail", spark_conn_id=SPARK)
        is_wanted(preview.output) >> arm >> hold >> start_reverse

    plan >> create_topics >> sync_configs >> bulk_copy >> start_tail >> wait_for_catch_up >> verify >> preview_groups
    preview_groups >> preview >> wanted >> [approve_cutover, verify_since]
    approve_cutover >> verify_since >> cutover >> [lift_fence, stop_tail, watch, let_writers_in, way_back]
    end_red_unless_done(lift_fence, "cutover", "approve_cutover")
    sync_configs >> is_access_wanted() >> let_readers_in >> [verify_since, let_writers_in]
    stop_tail >> is_restore_wanted() >> restore_configs
    cutover >> has_backed_out() >> follow_on
