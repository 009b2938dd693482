"""Topics follow while a tail runs: those that appear on the source join, and so do partitions that are added."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_mirror.jobs.driver.by_hand import remember
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease, taking_in
from airflow_mirror.jobs.driver.recurring import Job, Pass, Recurring, on_both_clusters
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan import Plan
from airflow_mirror.plan.kept import prefix
from airflow_mirror.sync.amending import Amending
from airflow_mirror.sync.right import Right

_STATE_PATIENCE_S = 10.0  # `stop` waits for an amendment that is being written


def topics_follow(
    job: Job, held: HeldLease, status: StatusFile, *, take_in: Callable[[CopyJob], None],
    gone: Callable[[], Mapping[str, str]], by_hand: bool,
) -> Recurring:  # fmt: skip
    """Return the thread in which a job's topics follow.

    :param job: returns what is carried out at the moment.
    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    :param take_in: has the copy carry out a job with more topics.
    :param gone: returns what the copy says of source topics that it gave up.
    :param by_hand: nobody has stored the plan: where ``latest`` was has to be remembered in another way.
    """
    mirror = job().mirror

    def look(job: Job, source: ClusterAdmin, target: ClusterAdmin, right: Right) -> Pass:
        def taken_in(plan: Plan) -> None:
            now = job()
            if by_hand and mirror.begins_once:
                new = tuple(t for t in plan.topics if t not in now.plan.topics)
                remember(replace(plan, topics=new), target)
            take_in(taking_in(now, plan, target, ledger))

        ledger = Ledger(target)
        plans = state_of(target, prefix(mirror.name), patience_s=_STATE_PATIENCE_S)
        return Amending(
            lambda: job().plan, source, target, plans, ledger, right, joins=mirror.sync_topics,
            take_in=taken_in, known_gone=gone,
        ).look  # fmt: skip

    return on_both_clusters(job, held, status, "topics", look, mirror.topic_interval_s)
