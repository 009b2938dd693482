"""What follows the data while a tail runs: a row each, in a thread of its own with connections of its own.

A new follower is a class of :mod:`airflow_mirror.sync.passes` and a row here. What it reports stands in the job's status
under its name; ``said`` of that, and its errors, are shown wherever a person looks after the mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from airflow_mirror.common.policy import HEARTBEATS
from airflow_mirror.config import load
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.prepare import CopyJob, taking_in
from airflow_mirror.jobs.driver.recurring import OnePass, Recurring
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.jobs.start_memory import remember
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.acl_follower import AclFollower
from airflow_mirror.sync.config_follower import ConfigFollower
from airflow_mirror.sync.ends import follower as ends
from airflow_mirror.sync.ends import notes as end_notes
from airflow_mirror.sync.following import notes as group_notes
from airflow_mirror.sync.following.follower import GroupFollower
from airflow_mirror.sync.log_starts import observations
from airflow_mirror.sync.log_starts.deciding import EVERY_MS
from airflow_mirror.sync.log_starts.follower import StartFollower
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.mm2_topics.follower import KINDS, TraceFollower
from airflow_mirror.sync.mm2_topics.heartbeats import Heart
from airflow_mirror.sync.passes import Pass, Sides
from airflow_mirror.sync.schemas.follower import SchemaFollower
from airflow_mirror.sync.topic_discovery import TopicFollower
from airflow_mirror.sync.write_permit import WritePermit

_STATE_PATIENCE_S = 10.0  # `stop` waits for a note that is being written


@dataclass(frozen=True)
class Follow:
    """One follower.

    :param name: of its thread, and of its report in the job's status.
    :param wanted: whether a Mirror asks for it.
    :param interval_s: seconds between two passes.
    :param make: makes it, with connections to both clusters.
    :param keeps: returns what the keys of its state begin with, by the mirror's name; None: it keeps nothing.
    :param of_topics: what it is given is of the plan's topics as they are, so it is made anew when topics join.
    """

    name: str
    wanted: Callable[[Mirror], bool]
    interval_s: Callable[[CopyJob], float]
    make: Callable[[Sides], Pass[Any]]
    keeps: Callable[[str], str] | None = None
    of_topics: bool = False


def _always(mirror: Mirror) -> bool:
    return True


FOLLOWERS = (
    Follow(
        ends.NAME, _always, lambda job: ends.looked_every_s(sum(t.partitions for t in job.plan.topics)),
        ends.EndsFollower, end_notes.prefix,
    ),
    Follow("topics", _always, lambda job: job.mirror.topic_interval_s, TopicFollower, PLAN.below),
    Follow(
        "configs", lambda mirror: mirror.sync_configs, lambda job: job.mirror.config_interval_s,
        ConfigFollower, seen_configs.prefix,
    ),
    Follow("acls", lambda mirror: mirror.sync_acls, lambda job: job.mirror.acl_interval_s, AclFollower, seen_acls.prefix),
    Follow(HEARTBEATS, lambda mirror: HEARTBEATS in mirror.traces, lambda job: job.mirror.heartbeat_interval_s, Heart),
    Follow(
        "log_starts", lambda mirror: mirror.sync_log_starts, lambda _: EVERY_MS / 1000, StartFollower, observations.prefix
    ),
    Follow(
        "groups", lambda mirror: mirror.sync_groups, lambda job: job.mirror.group_interval_s,
        GroupFollower, group_notes.prefix, of_topics=True,
    ),
    Follow(
        "checkpoints", lambda mirror: not {*KINDS}.isdisjoint(mirror.traces),
        lambda job: job.mirror.checkpoint_interval_s, TraceFollower, of_topics=True,
    ),
    Follow("schemas", lambda mirror: mirror.sync_schemas, lambda job: job.mirror.schema_interval_s, SchemaFollower),
)  # fmt: skip


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
    copying: Copying, held: HeldLease, status: StatusFile, group_latency: DelayMeter, *, by_hand: bool,
    rows: Sequence[Follow] = FOLLOWERS,
) -> Iterator[None]:  # fmt: skip
    """Let everything follow that the Mirror asks for, until the block ends: then nothing of it writes any more.

    :param held: the job's lease; may be withdrawn and taken again meanwhile.
    :param group_latency: measures, for each group that is moved, the time from the reading of its positions.
    :param by_hand: nobody has stored the plan: where ``latest`` was has to be remembered in another way.
    :param rows: what may follow.
    """

    def moved(read_ms: int, answered_ms: int) -> None:
        group_latency.add(read_ms, answered_ms, answered_ms)

    def take_in(target: ClusterAdmin, ledger: Ledger, plan: Plan) -> None:
        now = copying.job
        if by_hand and now.mirror.begins_once:
            new = tuple(t for t in plan.topics if t not in now.plan.topics)
            remember(replace(plan, topics=new), target)
        copying.take_in(taking_in(now, plan, target, ledger))
        for row, thread in threads:
            if row.of_topics:
                thread.renew()

    @contextmanager
    def connected(row: Follow, right: WritePermit) -> Iterator[OnePass]:
        job, keeps = copying.job, [row.keeps(copying.job.mirror.name)] if row.keeps else []
        clusters = load(job.source, "source"), load(job.target, "target")
        with (
            ClusterAdmin(clusters[0]) as source,
            ClusterAdmin(clusters[1]) as target,
            OffsetMaps(job.plan, *clusters) as maps,  # which connects to neither unless it is asked
        ):
            ledger = Ledger(target)
            sides = Sides(
                plan=lambda: job.plan if row.of_topics else copying.job.plan, mirror=job.mirror,
                source=source, target=target, ledger=ledger, right=right, maps=maps,
                state=state_of(target, *keeps, patience_s=_STATE_PATIENCE_S),
                take_in=partial(take_in, target, ledger), gone=lambda: copying.gone, moved=moved,
            )  # fmt: skip
            yield row.make(sides).follow

    def thread(row: Follow) -> Recurring:
        right = WritePermit(lambda: held.token)
        interval_s = row.interval_s(copying.job)
        return Recurring(row.name, partial(connected, row, right), right, interval_s, partial(status.report, row.name))

    threads = [(row, thread(row)) for row in rows if row.wanted(copying.job.mirror)]
    try:
        for _, one in threads:
            one.start()
        yield
    finally:
        for _, one in threads:
            one.stop()
