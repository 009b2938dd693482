"""Checkpoints and offset-syncs follow while a tail runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from airflow_mirror.config import load
from airflow_mirror.jobs.driver.prepare import HeldLease
from airflow_mirror.jobs.driver.recurring import Job, Pass, Recurring
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan import Plan
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.right import Right
from airflow_mirror.sync.traces.follower import TraceFollower


def traces_follow(job: Job, held: HeldLease, status: StatusFile) -> Recurring:
    """Return the thread in which checkpoints and offset-syncs follow.

    :param job: returns what is carried out at the moment; call ``renew`` when its plan has changed.
    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    """
    right = Right(lambda: held.token)

    @contextmanager
    def connect() -> Iterator[Pass]:
        plan, settings = as_job(job), (load(job().source, "source"), load(job().target, "target"))
        with ExitStack() as closing:
            source, target = (closing.enter_context(ClusterAdmin(one)) for one in settings)
            maps = closing.enter_context(OffsetMaps(plan, *settings))
            yield TraceFollower(plan, source, target, maps, Ledger(target), right).follow

    return Recurring.in_status("checkpoints", connect, right, job().mirror.checkpoint_interval_s, status)


def as_job(job: Job) -> Plan:
    """Return the plan with the job's own Mirror: what follows it may have changed since it was planned."""
    return replace(job().plan, mirror=job().mirror)
