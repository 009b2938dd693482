"""Log starts follow while a tail runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from airflow_mirror.config import load
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.driver.recurring import Pass, Recurring
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.sync.right import Right
from airflow_mirror.sync.starts import sights
from airflow_mirror.sync.starts.deciding import EVERY_MS
from airflow_mirror.sync.starts.follower import StartFollower

_STATE_PATIENCE_S = 10.0  # `stop` waits for a sight that is being written


def starts_follow(job: Callable[[], CopyJob], held: HeldLease, status: StatusFile) -> Recurring:
    """Return the thread in which the log starts of a job's topics follow.

    :param job: returns what is carried out at the moment.
    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    """
    right = Right(lambda: held.token)

    @contextmanager
    def connect() -> Iterator[Pass]:
        with ExitStack() as closing:
            source = closing.enter_context(ClusterAdmin(load(job().source, "source")))
            target = closing.enter_context(ClusterAdmin(load(job().target, "target")))
            state = state_of(target, sights.prefix(job().mirror.name), patience_s=_STATE_PATIENCE_S)
            yield StartFollower(lambda: job().plan, job().mirror, source, target, state, Ledger(target), right).follow

    return Recurring.in_status("log_starts", connect, right, EVERY_MS / 1000, status)
