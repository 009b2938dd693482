"""Log starts follow on real brokers: their retention, their search by time, their DeleteRecords."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.sync.hold import HoldWatch
from airflow_mirror.sync.log_starts import observations
from airflow_mirror.sync.log_starts.follower import StartFollower
from airflow_mirror.sync.log_starts.report import StartsReport
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import PartitionComparison
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster, clusters
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.integration.copying import (
    assert_equal,
    config,
    copy,
    create,
    ends,
    properties_of,
    ranges_of,
    wait_until,
    write,
    write_transactions,
)
from tests.integration.test_compacted_sides import BOTH, CLEANING, cleaned, compare, update
from tests.integration.test_spark_jobs import end_job, stop, submit

pytestmark = pytest.mark.months

HOUR, DAY = 3_600_000, 86_400_000
MIB = 1 << 20


class World:
    """One topic on two clusters, and the mirror that holds its lease. Time passes when a test says so."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, close: ExitStack, mode: str = "identical") -> None:
        self.topic, self.tp, self.clusters = topic, TopicPartition(topic, 0), (source, target)
        self.source, self.target = (close.enter_context(ClusterAdmin(config(c), 120)) for c in self.clusters)
        for cluster in self.clusters:
            create(cluster, topic)
        self.mirror = Mirror(name=f"m-{topic[-8:]}", source="src", target="dst", topics=[topic])
        self.mode = mode
        one = topic_plan(topic, {0: 0}, mode=mode, source_topic_id=self.source.topics([topic])[topic].topic_id)
        self.plan = plan_of(self.mirror, one, source_cluster_id=self.source.cluster_id())
        claim(begin(self.plan, self.target), self.plan, self.target)
        self.wire = close.enter_context(WireCluster(config(target)))
        self.now = int(time.time() * 1000)
        self.own_again()

    def own_again(self) -> None:
        self.token = lease.take(self.wire, self.mirror.name)

    def copy(self) -> None:
        ranges = [replace(one, mode=self.mode) for one in ranges_of(self.clusters[0], self.topic)]
        # In the source's own batches: the target's last one stays, and merged it would be most of what is here.
        found = copy(*self.clusters, ranges, self.mirror.name, merge_below=0)
        assert all(r.error is None for r in found)
        self.own_again()

    def fresh(self, count: int, value: bytes = b"value") -> None:
        """Append records of now."""
        producer = Producer({"bootstrap.servers": self.clusters[0].bootstrap})
        for number in range(count):
            producer.produce(self.topic, value + b" %d" % number, partition=0)
        assert producer.flush(240) == 0

    def process(self) -> StartFollower:
        state, ledger = state_of(self.target, observations.prefix(self.mirror.name)), Ledger(self.target)
        right = WritePermit(lambda: self.token)
        return StartFollower(
            sides(
                lambda: self.plan, self.source, self.target, right, mirror=self.mirror, state=state, ledger=ledger
            ),
            clock=lambda: self.now / 1000,
        )  # fmt: skip

    def follow(self, hours: int, process: StartFollower | None = None) -> StartsReport:
        """A pass every hour, each by a new process unless one is given."""
        report = StartsReport()
        for _ in range(hours):
            self.now += HOUR
            report = (process or self.process()).follow(self.now)
            assert not report.failed, report.failed
        return report

    def starts(self) -> tuple[int, int]:
        """On source and target."""
        first, second = (ends(cluster, self.topic)[0][0] for cluster in self.clusters)
        return first, second

    def retain(self, up_to: int, **settings: str) -> None:
        """Let the source's broker delete, until its log starts there."""
        self.source.alter_topic_configs(
            self.topic, unfenced, {key.replace("_", "."): value for key, value in settings.items()}
        )
        wait_until(lambda: self.starts()[0] == up_to, "the source's retention has deleted", poll_s=0.2)

    def compare(self, cleaned_on: Collection[str] = ()) -> PartitionComparison:
        return compare(self.clusters, self.topic, "records", cleaned_on=cleaned_on)


@pytest.fixture
def world(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> Iterator[World]:
    with ExitStack() as close:
        made = World(source_cluster, target_cluster, topic_name, close)
        yield made
        made.source.delete_topics([topic_name], unfenced)
        made.target.delete_topics([topic_name], unfenced)


def test_target_follows_a_day_behind_real_retention_and_compares_equal(world: World) -> None:
    write(world.clusters[0], world.topic, 300, seed=1)  # years old
    world.fresh(50)
    world.copy()
    world.retain(300, retention_ms=str(2 * DAY))
    world.follow(24)
    assert world.starts() == (300, 0)
    world.follow(2)
    assert world.starts() == (300, 300)
    assert world.compare().equal and world.compare().records == 50
    world.fresh(20)
    world.copy()
    assert_equal(*world.clusters, world.topic)


def test_source_that_tells_no_topic_ids_is_followed_as_well(target_cluster: Cluster, topic_name: str) -> None:
    with clusters("without-ids", version="2.1.1") as (source,), ExitStack() as close:
        world = World(source, target_cluster, topic_name, close)
        assert world.plan.topics[0].source_topic_id == ""
        write(source, topic_name, 300, seed=1)  # years old
        world.fresh(50)
        world.copy()
        world.retain(300, retention_ms=str(2 * DAY))
        world.follow(24)
        assert world.starts() == (300, 0)
        assert world.follow(2).left_out == [] and world.starts() == (300, 300)
        assert world.compare().equal and world.compare().records == 50
        world.fresh(20)
        world.copy()
        assert_equal(source, target_cluster, topic_name)


def test_mapped_target_follows_through_its_map_and_copies_on(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    """Markers and aborted records of the source have no place there. Compared, and copied on, behind the new start."""
    with ExitStack() as close:
        world = World(source_cluster, target_cluster, topic_name, close, "mapped")
        write_transactions(source_cluster, topic_name, seed=3)
        write(source_cluster, topic_name, 300, seed=1)  # years old
        end = ends(source_cluster, topic_name)[0][2]
        world.fresh(50)
        world.copy()
        here, there = (cluster_end(cluster, topic_name) for cluster in world.clusters)
        assert there < here, "offsets are others"
        world.source.delete_records({world.tp: end}, unfenced)
        world.source.alter_topic_configs(topic_name, unfenced, {"retention.ms": str(2 * HOUR)})
        world.follow(24)
        assert world.starts() == (end, 0)
        world.follow(5)
        assert world.starts() == (end, there - 50)
        world.fresh(20)
        world.copy()
        plan, settings = world.plan, [config(cluster) for cluster in world.clusters]
        verdict = verify_rest(plan, *settings)({world.tp: cluster_end(source_cluster, topic_name)})
        assert [(one.equal, one.records) for one in verdict] == [(True, 70)]
        write(target_cluster, topic_name, 1, seed=5)  # somebody else's
        world.fresh(20)
        world.copy()
        world.source.delete_records({world.tp: end + 60}, unfenced)
        assert "records of others" not in str(world.follow(1).left_alone)
        world.source.delete_records({world.tp: end + 80}, unfenced)
        assert "lie records of others" in str(world.follow(1).left_alone)


def cluster_end(cluster: Cluster, topic: str) -> int:
    return ends(cluster, topic)[0][2]


def test_what_a_person_deleted_at_the_source_stays_on_the_target(world: World) -> None:
    world.source.alter_topic_configs(world.topic, unfenced, {"retention.ms": str(90 * DAY)})
    world.fresh(200)
    world.copy()
    world.source.delete_records({world.tp: 150}, unfenced)
    report = world.follow(40)
    assert world.starts() == (150, 0)
    assert report.kept == [
        f"{world.topic}-0: the source has lost offsets 0 to 149, and retention does not explain it; the target keeps them"
    ]
    assert world.compare().equal
    world.fresh(20)
    world.copy()
    assert world.compare().equal


def test_quiet_topic_that_expired_altogether_can_be_copied_on(world: World) -> None:
    """The last batch stays on the target: it says where the copy goes on, and that it is the same topic."""
    write(world.clusters[0], world.topic, 300, seed=2)
    world.copy()
    world.retain(300, retention_ms=str(DAY))
    world.follow(26)
    source, target = world.starts()
    assert source == 300 and 0 < target < 300
    world.retain(300, retention_ms="-1")
    world.fresh(40)
    world.copy()
    verdict = world.compare()
    assert verdict.equal and verdict.records == 40


def test_size_limit_is_followed_and_a_cut_into_its_last_segment_is_not(world: World) -> None:
    for admin in (world.source, world.target):
        admin.alter_topic_configs(world.topic, unfenced, {"segment.bytes": str(MIB)})
    world.fresh(800, os.urandom(10_000))
    world.copy()
    world.source.alter_topic_configs(world.topic, unfenced, {"retention.bytes": str(3 * MIB)})
    wait_until(lambda: world.starts()[0] > 350, "the source's retention has deleted", poll_s=0.2)
    one = world.process()  # a new one has to see for ten minutes first that the broker has cut
    world.follow(32, one)
    source, target = world.starts()
    assert 350 < target <= source and world.compare().equal
    size = partial(world.target.wire.log_sizes, [world.tp])
    wait_until(lambda: size()[world.tp] < 800 * 10_000 - 3 * MIB, "the target's broker has cut its log", poll_s=0.2)
    world.source.delete_records({world.tp: 790}, unfenced)  # the broker still has the whole segment
    assert world.follow(40, one).kept
    assert world.starts()[1] < 490 and world.compare().equal  # three MiB of 10 KB each


def test_transactions_follow_once_the_copys_markers_are_as_old(world: World) -> None:
    """Holes of the target are filled with markers of the time of the copy, which a search by time finds."""
    write_transactions(world.clusters[0], world.topic, seed=3)
    end = ends(world.clusters[0], world.topic)[0][2]
    world.copy()
    world.source.delete_records({world.tp: end - 5}, unfenced)
    world.source.alter_topic_configs(world.topic, unfenced, {"retention.ms": str(DAY)})
    world.follow(23)
    assert world.starts()[1] == 0
    world.follow(30)
    source, target = world.starts()
    assert 0 < target <= source and world.compare().equal


def test_log_start_that_somebody_raised_on_the_target_is_a_difference(world: World) -> None:
    write(world.clusters[0], world.topic, 300, seed=1)
    world.fresh(50)
    world.copy()
    world.retain(300, retention_ms=str(2 * DAY))
    world.follow(26)
    world.target.delete_records({world.tp: 310}, unfenced)
    verdict = world.compare()
    assert not verdict.equal and verdict.first_difference and verdict.first_difference.kind == "missing"


def test_second_writer_ends_it_before_anything_is_deleted(world: World) -> None:
    write(world.clusters[0], world.topic, 300, seed=1)
    world.fresh(50)
    world.copy()
    world.retain(300, retention_ms=str(2 * DAY))
    world.follow(24)
    lease.take(world.wire, world.mirror.name)
    with pytest.raises(LeaseLost):
        world.follow(2)
    assert world.starts() == (300, 0)


def test_compacted_topic_is_cleaned_again_once_its_backlog_arrived(world: World) -> None:
    """By the target's own log cleaner, while the copy goes on, and with the hold's watch content."""
    (one,) = world.plan.topics
    one = replace(one, compacted=True, held_configs=HELD_OPEN)
    world.plan = replace(world.plan, topics=(one,))
    world.target.alter_topic_configs(world.topic, unfenced, {**HELD_OPEN, **CLEANING})
    world.source.alter_topic_configs(world.topic, unfenced, {"cleanup.policy": "compact", **CLEANING})
    process = world.process()

    def policy() -> str | None:
        return world.target.topic_configs([world.topic])[world.topic]["cleanup.policy"].value

    def more() -> None:
        update(world.clusters[0], world.topic, 3, seed=world.now)
        world.copy()

    update(world.clusters[0], world.topic, 400, seed=1)
    world.follow(2, process)
    assert policy() == "delete"  # nothing was copied yet
    world.copy()
    assert world.follow(1, process).compacted and policy() == "compact,delete"
    cleaned(world.clusters[1], world.topic, more)
    cleaned(world.clusters[0], world.topic, more)
    verdict = world.compare(BOTH)
    assert verdict.equal and verdict.records, verdict
    assert not HoldWatch(world.plan, world.target, lambda: None).look_in_turn()
    world.follow(1, process)
    more()  # opened again in a log that was cleaned
    world.source.alter_topic_configs(world.topic, unfenced, {"cleanup.policy": "delete"})
    world.follow(1, process)
    assert policy() == "delete" and world.compare(BOTH).equal


def test_a_tail_shows_how_its_log_starts_follow(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 500, 1)
    log, job_dir = tmp_path / "tail.log", tmp_path / "job"
    mirror = {"name": f"m-{topic_name[-8:]}", "source": "source", "target": "target", "topics": [topic_name]}
    (tmp_path / "mirror.json").write_text(json.dumps(mirror))

    def shown() -> Any:
        file = job_dir / "status.json"
        return json.loads(file.read_text())["follows"].get("log_starts", {}) if file.exists() else {}

    arguments = ["--mirror", str(tmp_path / "mirror.json"), "--job-dir", str(job_dir)]
    tail = submit("streaming_tail.py", *properties_of(tmp_path, source_cluster, target_cluster), *arguments, log=log)
    try:
        wait_until(lambda: shown().get("topics") == 1, "its status says so")
        assert shown()["error"] is None and not shown()["failed"]["count"]
        stop(tail, log)
    finally:
        end_job(tail)
