"""Topic settings follow on real brokers: they say what a setting is, and what they refuse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.ownership import begin, claim, mark_cut_over
from airflow_mirror.sync import seen_configs
from airflow_mirror.sync.config_follower import ConfigFollower, ConfigReport
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.seen_configs import LastSeen
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.followed import sides
from tests.integration.copying import config, create


class World:
    """A topic that a mirror has created on the target, on hold, and the mirror's lease."""

    def __init__(self, source_cluster: Cluster, target_cluster: Cluster, topic: str, close: ExitStack) -> None:
        self.topic, self.close = topic, close
        clusters = (source_cluster, target_cluster)
        self.source, self.target = (close.enter_context(ClusterAdmin(config(c), timeout_s=120)) for c in clusters)
        create(source_cluster, topic, retention_ms="86400000")
        mirror = Mirror(name=f"m-{topic[-8:]}", source="src", target="dst", topics=[topic])
        self.plan = build(mirror, self.source, self.target, probe_target=False)
        create_target_topics(self.plan, self.target, unfenced)
        self.ledger = begin(self.plan, self.target)
        claim(self.ledger, self.plan, self.target)
        self.wire = close.enter_context(WireCluster(config(target_cluster)))
        self.token = lease.take(self.wire, mirror.name)
        self.state = state_of(self.target, seen_configs.prefix(mirror.name))
        self.follower = ConfigFollower(
            sides(
                lambda: self.plan,
                self.source,
                self.target,
                WritePermit(lambda: self.token),
                state=self.state,
                ledger=Ledger(self.target),
            )
        )

    def follow(self) -> ConfigReport:
        return self.follower.follow(int(time.time() * 1000))

    def follow_until_read(self, key: str, value: str) -> ConfigReport:
        """A broker may tell an older value for some milliseconds."""
        deadline = time.monotonic() + 120
        while True:
            report = self.follow()
            if self.at(key).value == value:
                return report
            assert time.monotonic() < deadline, f"{key} is {self.at(key)}"

    def at(self, key: str) -> ConfigEntry:
        return self.target.topic_configs([self.topic])[self.topic][key]

    def owner_sets(self, **configs: str) -> None:
        values = {key.replace("_", "."): value for key, value in configs.items()}
        self.target.alter_topic_configs(self.topic, unfenced, values)
        while any(self.at(key).value != value for key, value in values.items()):
            time.sleep(0.05)


@pytest.fixture
def world(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> Iterator[World]:
    with ExitStack() as close:
        made = World(source_cluster, target_cluster, topic_name, close)
        yield made
        made.source.delete_topics([topic_name], unfenced)
        made.target.delete_topics([topic_name], unfenced)


def test_changes_follow_and_what_is_on_hold_gets_the_last_value(world: World) -> None:
    assert (world.follow().changed, world.follow().waiting) == (0, [])
    change = {"max.message.bytes": "3000000", "retention.ms": "3600000", "segment.ms": "120000"}
    world.source.alter_topic_configs(world.topic, unfenced, change)
    world.follow_until_read("segment.ms", "120000")
    assert (world.at("max.message.bytes").value, world.at("retention.ms").value) == ("3000000", "-1")
    world.source.alter_topic_configs(world.topic, unfenced, {"max.message.bytes": "2000000"}, ["segment.ms"])
    world.follow_until_read("segment.ms", "604800000")
    assert world.at("max.message.bytes").value == "3000000"
    retention, size = world.follow().waiting
    assert retention == f"{world.topic}: retention.ms: 86400000 -> 3600000"
    assert size.startswith(f"{world.topic}: max.message.bytes: ") and size.endswith(" -> 2000000")
    lost = LastSeen(world.plan, world.state.read())
    assert sync_configs(world.plan, lost, world.target, unfenced, hold=False).applied  # without the source
    assert (world.at("max.message.bytes").value, world.at("retention.ms").value) == ("2000000", "3600000")
    assert sync_configs(world.plan, world.source, world.target, unfenced, hold=False, dry_run=True).drift == ()


def test_owner_who_sets_back_is_named_and_what_brokers_refuse_is_quoted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.source.alter_topic_configs(world.topic, unfenced, {"segment.ms": "120000"})
    for _ in range(4):
        world.follow_until_read("segment.ms", "120000")
        world.owner_sets(segment_ms="99000")
    report = world.follow()
    assert len(report.given_up) == 1 and report.changed == 0 and world.at("segment.ms").value == "99000"
    real = world.source.topic_configs

    def older(names: Any) -> Any:
        """A source that takes what this target does not."""
        return {
            n: {**its, "flush.ms": ConfigEntry(value="-7", source="DYNAMIC_TOPIC_CONFIG")}
            for n, its in real(names).items()
        }

    monkeypatch.setattr(world.source, "topic_configs", older)
    world.source.alter_topic_configs(world.topic, unfenced, {"segment.jitter.ms": "5"})
    report = world.follow_until_read("segment.jitter.ms", "5")
    (refused,) = world.follow().refused
    assert "flush.ms=-7: INVALID_CONFIG: " in refused and "-7" in refused.partition("INVALID")[2], report


def test_only_the_holder_of_the_lease_sets_topics_that_are_its_own(world: World) -> None:
    world.source.alter_topic_configs(world.topic, unfenced, {"segment.ms": "120000"})
    world.token, old = lease.take(world.wire, world.plan.mirror.name), world.token
    world.token, new = old, world.token
    with pytest.raises(LeaseLost):
        world.follow()
    world.token = new
    ids = {world.topic: world.target.topics([world.topic])[world.topic].topic_id}
    mark_cut_over(world.ledger, world.plan, ids, "2026-01-01T00:00:00+00:00")
    assert len(world.follow().left_out) == 1 and world.at("segment.ms").value == "604800000"
