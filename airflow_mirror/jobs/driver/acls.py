"""The rights of readers follow while a tail runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from airflow_mirror.config import load
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.driver.recurring import Pass, Recurring
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.sync.acl_follower import AclFollower
from airflow_mirror.sync.right import Right


def acls_follow(job: Callable[[], CopyJob], held: HeldLease, status: StatusFile) -> Recurring:
    """Return the thread in which the access rules of a job's topics follow.

    :param job: returns what is carried out at the moment.
    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    """
    right = Right(lambda: held.token)

    @contextmanager
    def connect() -> Iterator[Pass]:
        settings = load(job().source, "source"), load(job().target, "target")
        with ExitStack() as closing:
            source, target = (closing.enter_context(ClusterAdmin(one)) for one in settings)
            # A job may have another map of principals than its plan.
            yield AclFollower(
                lambda: replace(job().plan, mirror=job().mirror), source, target, Ledger(target), right
            ).follow

    return Recurring.in_status("acls", connect, right, job().mirror.acl_interval_s, status)
