"""Topic settings follow while a tail runs."""

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
from airflow_mirror.sync import seen_configs
from airflow_mirror.sync.config_follower import ConfigFollower
from airflow_mirror.sync.right import Right

_STATE_PATIENCE_S = 10.0  # `stop` waits for a note that is being written


def configs_follow(job: Callable[[], CopyJob], held: HeldLease, status: StatusFile) -> Recurring:
    """Return the thread in which the settings of a job's topics follow.

    :param job: returns what is carried out at the moment.
    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    """
    right = Right(lambda: held.token)

    @contextmanager
    def connect() -> Iterator[Pass]:
        settings = load(job().source, "source"), load(job().target, "target")
        with ExitStack() as closing:
            source, target = (closing.enter_context(ClusterAdmin(one)) for one in settings)
            state = state_of(target, seen_configs.prefix(job().mirror.name), patience_s=_STATE_PATIENCE_S)
            yield ConfigFollower(lambda: job().plan, source, target, state, Ledger(target), right).follow

    return Recurring.in_status("configs", connect, right, job().mirror.config_interval_s, status)
