"""What follows the data while a tail runs: each in a thread of its own, by the Mirror's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.jobs.driver.groups import groups_follow
from airflow_mirror.jobs.driver.prepare import CopyJob, HeldLease
from airflow_mirror.jobs.driver.recurring import Job, Pass, on_both_clusters
from airflow_mirror.jobs.driver.topics import topics_follow
from airflow_mirror.jobs.driver.traces import as_job, traces_follow
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.policy import HEARTBEATS
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.acl_follower import AclFollower
from airflow_mirror.sync.config_follower import ConfigFollower
from airflow_mirror.sync.ends import follower as ends
from airflow_mirror.sync.ends import notes as end_notes
from airflow_mirror.sync.right import Right
from airflow_mirror.sync.starts import sights
from airflow_mirror.sync.starts.deciding import EVERY_MS
from airflow_mirror.sync.starts.follower import StartFollower
from airflow_mirror.sync.traces.follower import KINDS
from airflow_mirror.sync.traces.heartbeats import Heart

_STATE_PATIENCE_S = 10.0  # `stop` waits for a note that is being written


class Copying(Protocol):
    """The copy that is followed.

    :ivar gone: source topics that it gave up, and why.
    """

    gone: dict[str, str]

    @property
    def job(self) -> CopyJob:
        """What is carried out at the moment."""

    def take_in(self, job: CopyJob) -> None:
        """Carry out a job with more topics."""


@contextmanager
def followers(
    copying: Copying, held: HeldLease, status: StatusFile, group_latency: DelayMeter, *, by_hand: bool
) -> Iterator[None]:
    """Let everything follow that the Mirror asks for, until the block ends: then nothing of it writes any more.

    :param group_latency: see :func:`.groups_follow`.
    :param by_hand: nobody has stored the plan; see :func:`.topics_follow`.
    """
    mirror = copying.job.mirror

    def job() -> CopyJob:
        return copying.job

    def gone() -> Mapping[str, str]:
        return copying.gone

    def take_in(more: CopyJob) -> None:
        copying.take_in(more)
        for one in with_maps:
            one.renew()  # they have the offset maps of the plan's topics; the others read the plan at each pass

    with_maps = [groups_follow(job, held, status, group_latency)] * mirror.sync_groups
    with_maps += [] if {*KINDS}.isdisjoint(mirror.traces) else [traces_follow(job, held, status)]
    thread = partial(on_both_clusters, job, held, status)
    wanted = (
        (True, thread(ends.NAME, _ends, ends.looked_every_s(sum(t.partitions for t in copying.job.plan.topics)))),
        (True, topics_follow(job, held, status, take_in=take_in, gone=gone, by_hand=by_hand)),
        (mirror.sync_configs, thread("configs", _configs, mirror.config_interval_s)),
        (mirror.sync_acls, thread("acls", _acls, mirror.acl_interval_s)),
        (HEARTBEATS in mirror.traces, thread(HEARTBEATS, _heartbeats, mirror.heartbeat_interval_s)),
        (mirror.sync_log_starts, thread("log_starts", _log_starts, EVERY_MS / 1000)),
    )
    threads = [*(one for is_wanted, one in wanted if is_wanted), *with_maps]
    try:
        for one in threads:
            one.start()
        yield
    finally:
        for one in threads:
            one.stop()


def _ends(job: Job, source: ClusterAdmin, target: ClusterAdmin, right: Right) -> Pass:
    state = state_of(target, end_notes.prefix(job().mirror.name), patience_s=_STATE_PATIENCE_S)
    return ends.EndsFollower(lambda: job().plan, source, target, state, right).follow


def _heartbeats(job: Job, source: ClusterAdmin, target: ClusterAdmin, right: Right) -> Pass:
    return Heart(partial(as_job, job), source, target, Ledger(target), right).beat


def _configs(job: Job, source: ClusterAdmin, target: ClusterAdmin, right: Right) -> Pass:
    state = state_of(target, seen_configs.prefix(job().mirror.name), patience_s=_STATE_PATIENCE_S)
    return ConfigFollower(lambda: job().plan, source, target, state, Ledger(target), right).follow


def _acls(job: Job, source: ClusterAdmin, target: ClusterAdmin, right: Right) -> Pass:
    state = state_of(target, seen_acls.prefix(job().mirror.name), patience_s=_STATE_PATIENCE_S)

    return AclFollower(partial(as_job, job), source, target, state, Ledger(target), right).follow


def _log_starts(job: Job, source: ClusterAdmin, target: ClusterAdmin, right: Right) -> Pass:
    state = state_of(target, sights.prefix(job().mirror.name), patience_s=_STATE_PATIENCE_S)
    maps = MapStore(job().mirror.name)
    return StartFollower(lambda: job().plan, job().mirror, source, target, state, Ledger(target), right, maps).follow
