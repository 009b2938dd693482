"""Consumer groups follow while a tail runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from airflow_mirror.config import load
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.driver.recurring import Pass, Recurring
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import Follower
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.right import Right

_STATE_PATIENCE_S = 10.0  # `stop` waits for a note that is being written


def groups_follow(job: Callable[[], CopyJob], held: HeldLease, status: StatusFile, latency: DelayMeter) -> Recurring:
    """Return the thread in which a job's groups follow.

    :param job: returns what is carried out at the moment; call ``renew`` when its plan has changed.
    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    :param latency: measures, for each group that is moved, the time from the reading of its positions.
    """
    right = Right(lambda: held.token)

    def moved(read_ms: int, answered_ms: int) -> None:
        latency.add(read_ms, answered_ms, answered_ms)

    @contextmanager
    def connect() -> Iterator[Pass]:
        plan, settings = job().plan, (load(job().source, "source"), load(job().target, "target"))
        with ExitStack() as closing:
            source, target = (closing.enter_context(ClusterAdmin(one)) for one in settings)
            maps = closing.enter_context(OffsetMaps(plan, *settings))
            state = state_of(target, notes.prefix(plan.mirror.name), patience_s=_STATE_PATIENCE_S)
            yield Follower(plan, source, target, maps.to_target, state, Ledger(target), right, moved).follow

    return Recurring.in_status("groups", connect, right, job().mirror.group_interval_s, status)
