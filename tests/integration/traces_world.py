"""A mirror with traces: an identical topic and a mapped one, copied by the engine, followed without a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.copy.writer import lease
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.mm2_topics.follower import TraceFollower, TraceReport
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, OffsetSync, read_checkpoint, read_offset_sync
from airflow_mirror.sync.mm2_topics.heartbeats import Heart, HeartbeatReport
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.integration.copying import HELD_OPEN, config, copy, create, ranges_of, read

PARTITIONS = 2
ALL = "heartbeats, checkpoints, offset-syncs"
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class World:
    """Two clusters, a topic of each mode, and the mirror that holds its lease.

    :ivar alias: of the source; unique to the test, as its topics are.
    """

    def __init__(self, clusters: tuple[Cluster, Cluster], name: str, close: ExitStack, **fields: Any) -> None:
        self.clusters, self.alias = clusters, f"A{name[-8:]}".replace("-", "").replace("_", "")
        self.kept, self.mapped = f"{name}-kept", f"{name}-mapped"
        self.source, self.target = (close.enter_context(ClusterAdmin(config(c), timeout_s=120)) for c in clusters)
        for cluster, names in zip(clusters, ((self.kept, self.mapped), self.there(fields)), strict=True):
            for topic in names:
                create(cluster, topic, PARTITIONS)
        self.mirror = Mirror(
            name=f"m-{name[-8:]}", source="src", target="dst", topics=[f"{name}-.*"], groups=[f"{name}.*"],
            **{"traces": ALL, "source_alias": self.alias, "target_alias": "B", **fields},
        )  # fmt: skip
        self.plan = self._plan()
        claim(begin(self.plan, self.target), self.plan, self.target)
        self.wire = close.enter_context(WireCluster(config(clusters[1])))
        self._close = close

    def there(self, fields: dict[str, Any]) -> tuple[str, str]:
        """Return the names of both topics on the target."""
        prefix = f"{self.alias}{fields.get('separator', '.')}" if fields.get("policy") == "prefix" else ""
        return f"{prefix}{self.kept}", f"{prefix}{self.mapped}"

    def _plan(self) -> Plan:
        infos = self.source.topics([self.kept, self.mapped])
        topics = (
            topic_plan(
                name, dict.fromkeys(range(PARTITIONS), 0), source_topic_id=infos[name].topic_id, mode=mode,
                target_topic=self.mirror.naming.target_topic(name), configs=HELD_OPEN,
            )
            for name, mode in ((self.kept, "identical"), (self.mapped, MAPPED))
        )  # fmt: skip
        ids = {f"{side}_cluster_id": one.cluster_id() for side, one in (("source", self.source), ("target", self.target))}
        return plan_of(self.mirror, *topics, **ids)

    def copy(self) -> None:
        """Copy what is there, and take the lease again: the copier has one of its own."""
        for topic in self.plan.topics:
            ranges = [
                replace(one, target_topic=topic.target_topic, mode=topic.mode)
                for one in ranges_of(self.clusters[0], topic.source_topic, PARTITIONS)
            ]
            copy(*self.clusters, ranges, mirror=self.mirror.name)
        self.token = lease.take(self.wire, self.mirror.name)

    def right(self) -> WritePermit:
        return WritePermit(lambda: self.token)

    def ledger(self) -> Ledger:
        return Ledger(self.target)

    def beat(self) -> HeartbeatReport:
        """One heartbeat of a new process."""
        with self._admins() as (source, target):
            heart = Heart(sides(self.plan, source, target, self.right(), ledger=Ledger(target)))
            return heart.follow(int(time.time() * 1000))

    def follow(self) -> TraceReport:
        """One pass of a new process."""
        with self.follower() as follower:
            return follower.follow(int(time.time() * 1000))

    def maps(self) -> OffsetMaps:
        """Return the offset maps of the plan; the caller closes them."""
        return OffsetMaps(self.plan, *map(config, self.clusters))

    @contextmanager
    def follower(self) -> Iterator[TraceFollower]:
        with self._admins() as (source, target), self.maps() as maps:
            yield TraceFollower(sides(self.plan, source, target, self.right(), ledger=Ledger(target), maps=maps))

    @contextmanager
    def _admins(self) -> Iterator[tuple[ClusterAdmin, ClusterAdmin]]:
        source, target = (ClusterAdmin(config(c), timeout_s=120) for c in self.clusters)
        with source, target:
            yield source, target

    def put(self, group: str, **offsets: list[int]) -> str:
        """Set a group on the source, by ``kept`` and ``mapped``; return its name."""
        name = f"{self.kept.removesuffix('-kept')}-{group}"
        positions = {
            TopicPartition(getattr(self, topic), p): GroupPosition(offset, f"{topic} {p}" if p else "")
            for topic, its in offsets.items()
            for p, offset in enumerate(its)
        }
        self.source.commit_group_offsets(name, positions, unfenced)
        return name

    def checkpoints(self) -> list[Checkpoint]:
        """Return all checkpoints as they were written, by a client that is not ours."""
        return [one for key, value in self._rows("checkpoints") if (one := read_checkpoint(key, value)) is not None]

    def heartbeats_of_source(self) -> set[str]:
        """Return the heartbeats on the target that have this source, or a cluster before it, for their origin."""
        own, names = f"{self.alias}{self.mirror.separator}", self.target.topic_names()
        return {name for name in names if name.startswith(own) and name.endswith(f"{self.mirror.separator}heartbeats")}

    def has_more(self, than: int) -> bool:
        """Return whether more checkpoints were written than so many."""
        (topic,) = self.mirror.trace_topics_of("checkpoints")
        at = TopicPartition(topic, 0)
        return topic in self.target.topics([topic]) and self.target.offsets([at], "latest")[at] > than

    def syncs(self) -> list[OffsetSync]:
        """The same of offset-syncs."""
        return [one for key, value in self._rows("offset-syncs") if (one := read_offset_sync(key, value)) is not None]

    def _rows(self, kind: str) -> list[tuple[bytes, bytes]]:
        (topic,) = self.mirror.trace_topics_of(kind)
        return [(key or b"", value or b"") for _, _, key, value, _ in read(self.clusters[1], topic)]

    def policy(self) -> dict[str, str]:
        """Return the settings with which a Java client reads this mirror."""
        settings = {"replication.policy.separator": self.mirror.separator}
        if self.mirror.policy == "identity":
            settings |= {"replication.policy.class": IDENTITY, "source.cluster.alias": self.alias}
        return settings


@contextmanager
def world(source: Cluster, target: Cluster, name: str, **fields: Any) -> Iterator[World]:
    """Make a world, and delete its topics at the end."""
    with ExitStack() as close:
        made = World((source, target), name, close, **fields)
        try:
            yield made
        finally:
            made.source.delete_topics([made.kept, made.mapped], unfenced)
            made.target.delete_topics([t.target_topic for t in made.plan.topics], unfenced)
            traces = {*made.mirror.trace_topics, *made.heartbeats_of_source()}
            made.target.delete_topics(sorted(traces.intersection(made.target.topic_names())), unfenced)
