"""Consumer groups follow on real brokers: their coordinators decide what a mirror may set."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ownership import begin, claim, mark_cut_over
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import FollowReport, GroupFollower
from airflow_mirror.sync.groups import translate
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.integration.copying import config, create, properties_of, write
from tests.integration.test_spark_jobs import end_job, stop, submit
from tests.waiting import wait_until

PARTITIONS = 3


class Killed(BaseException):
    """As a signal would end the process."""


class World:
    """One topic on two clusters, and the mirror that holds its lease."""

    def __init__(self, source_cluster: Cluster, target_cluster: Cluster, topic: str, close: ExitStack) -> None:
        self.topic, self.clusters = topic, (source_cluster, target_cluster)
        self.source, self.target = (
            close.enter_context(ClusterAdmin(config(c), timeout_s=120)) for c in self.clusters
        )  # fmt: skip
        for cluster in self.clusters:
            create(cluster, topic, PARTITIONS)
        mirror = Mirror(name=f"m-{topic[-8:]}", source="src", target="dst", topics=[topic], groups=[f"{topic}.*"])
        info = self.source.topics([topic])[topic]
        one = topic_plan(topic, dict.fromkeys(range(PARTITIONS), 0), source_topic_id=info.topic_id)
        self.plan = plan_of(mirror, one, source_cluster_id=self.source.cluster_id())
        self.ledger = begin(self.plan, self.target)
        claim(self.ledger, self.plan, self.target)
        self.wire = close.enter_context(WireCluster(config(target_cluster)))
        self.token = lease.take(self.wire, mirror.name)

    def follow(self, cut: str = "") -> FollowReport:
        """One pass of a new process, which may be cut off."""
        with ExitStack() as close:
            source, target = (close.enter_context(ClusterAdmin(config(c), timeout_s=120)) for c in self.clusters)
            state = state_of(target, notes.prefix(self.plan.mirror.name))
            write, commit = state.write, target.commit_groups

            def writes(values: Any, permit: Permit) -> None:
                if cut == "before the note":
                    raise Killed
                write(values, permit)
                if cut == "after the note":
                    raise Killed

            def commits(*arguments: Any) -> Any:
                done = commit(*arguments)
                if cut == "after the commit":
                    raise Killed
                return done

            if cut:
                state.write, target.commit_groups = writes, commits
            right = WritePermit(lambda: self.token)
            maps = SimpleNamespace(to_target=self.no_map)
            given = sides(self.plan, source, target, right, state=state, ledger=Ledger(target), maps=maps)
            return GroupFollower(given).follow(int(time.time() * 1000))

    @staticmethod
    def no_map(tp: TopicPartition, offset: int) -> Any:
        raise AssertionError("nothing is mapped")

    def put(self, admin: ClusterAdmin, group: str, *offsets: int) -> str:
        name = f"{self.topic}-{group}"
        positions = {TopicPartition(self.topic, p): GroupPosition(o, "note") for p, o in enumerate(offsets)}
        admin.commit_group_offsets(name, positions, unfenced)
        return name

    def at(self, group: str) -> list[int]:
        return [p.offset for _, p in sorted(self.target.group_offsets(group).items())]

    def fill(self, *counts: int) -> None:
        """Append the same number of records on both sides."""
        for cluster in self.clusters:
            for partition, count in enumerate(counts):
                write(cluster, self.topic, count, seed=partition, partition=partition)


@pytest.fixture
def world(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> Iterator[World]:
    with ExitStack() as close:
        made = World(source_cluster, target_cluster, topic_name, close)
        yield made
        made.source.delete_topics([topic_name], unfenced)
        made.target.delete_topics([topic_name], unfenced)


def test_positions_follow_in_both_directions_but_never_beyond_the_target(world: World) -> None:
    world.fill(50, 40)
    write(world.clusters[0], world.topic, 30, seed=9)  # the copy is behind
    group = world.put(world.source, "g", 20, 40)
    assert (world.follow().groups, world.at(group)) == (1, [20, 40])
    world.put(world.source, "g", 80, 5)
    report = world.follow()
    assert world.at(group) == [50, 5] and report.held == [f"{group} at {world.topic}-0: held at 50"]
    write(world.clusters[1], world.topic, 30, seed=9)
    assert not world.follow().held and world.at(group) == [80, 5]
    there = world.target.group_offsets(group)
    assert there == world.source.group_offsets(group)  # metadata, too
    assert world.follow().written == 0


def test_a_script_asks_where_a_group_stands_on_both_sides(world: World, tmp_path: Path) -> None:
    world.fill(50, 40)
    group = world.put(world.source, "g", 20, 40)
    world.put(world.target, "g", 7)
    write_plan(world.plan, tmp_path / "plan.json")
    settings = [{"bootstrap.servers": cluster.bootstrap} for cluster in world.clusters]
    first, second = translate(*settings, group, plan=tmp_path / "plan.json")
    assert (first.source_offset, first.translated, first.target_offset) == (20, 20, 7)
    assert (second.source_offset, second.translated, second.target_offset) == (40, 40, None)


def test_foreign_position_stays_until_somebody_deletes_it(world: World) -> None:
    world.fill(50, 40)
    group = world.put(world.source, "g", 20, 40)
    world.put(world.target, "g", 20)  # equal by chance
    assert len(world.follow().left_alone) == 1
    world.put(world.source, "g", 30, 10)
    assert len(world.follow().left_alone) == 1 and world.at(group) == [20, 10]
    world.target.forget_group_offsets(group, [TopicPartition(world.topic, 0)], unfenced)
    assert not world.follow().left_alone and world.at(group) == [30, 10]


@pytest.mark.parametrize("cut", ["before the note", "after the note", "after the commit"])
def test_pass_cut_off_anywhere_is_continued_and_strangers_are_not_overwritten(world: World, cut: str) -> None:
    world.fill(50, 40)
    group = world.put(world.source, "g", 20, 10)
    stranger = world.put(world.source, "stranger", 20, 10)
    world.follow()
    world.put(world.source, "g", 30, 5)
    world.put(world.source, "stranger", 30, 5)
    with pytest.raises(Killed):
        world.follow(cut)
    assert world.at(group) in ([20, 10], [30, 5])
    world.put(world.target, "stranger", 25)
    world.put(world.source, "g", 40, 8)
    assert len(world.follow().left_alone) == 1
    assert (world.at(group), world.at(stranger)) == ([40, 8], [25, 5])


def test_topic_in_production_is_left_out(world: World) -> None:
    world.fill(50, 40)
    group = world.put(world.source, "g", 20, 40)
    ids = {world.topic: world.target.topics([world.topic])[world.topic].topic_id}
    assert not world.follow().left_out and world.at(group) == [20, 40]
    world.put(world.source, "g", 30, 40)
    mark_cut_over(world.ledger, world.plan, ids, "2026-01-01T00:00:00+00:00")
    assert len(world.follow().left_out) == 1 and world.at(group) == [20, 40]


def test_only_the_holder_of_the_lease_sets_anything(world: World) -> None:
    world.fill(50, 40)
    group = world.put(world.source, "g", 20, 40)
    old, world.token = world.token, lease.take(world.wire, world.plan.mirror.name)
    world.follow()
    world.put(world.source, "g", 21)
    world.token, new = old, world.token
    with pytest.raises(LeaseLost):
        world.follow()
    assert world.at(group) == [20, 40]
    world.token = new
    world.follow()
    assert world.at(group) == [21, 40]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_members_on_the_target_is_not_touched(world: World, protocol: str) -> None:
    world.fill(50, 40)
    group = world.put(world.source, "g", 20, 40, 0)
    world.follow()
    settings = {
        "bootstrap.servers": world.clusters[1].bootstrap, "group.id": group, "group.protocol": protocol,
        "enable.auto.commit": "false", "auto.offset.reset": "error",
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.subscribe([world.topic])
        wait_until(lambda: (m := consumer.poll(0.2)) is not None and m.error() is None, "the member reads")
        world.put(world.source, "g", 30)
        report = world.follow()
        assert (report.active, report.failed, world.at(group)) == ([group], [], [20, 40, 0])
        # Also if nobody had seen that it has members.
        wanted = {group: {TopicPartition(world.topic, 0): GroupPosition(30)}}
        commit = world.target.commit_groups(wanted, lambda: None)[group]
        assert commit.active and commit.refused and not commit.done
    finally:
        consumer.close()

    def follows() -> bool:
        world.follow()
        return world.at(group) == [30, 40, 0]

    wait_until(follows, "it follows when the member has left")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_that_reads_on_the_source_is_followed_as_it_commits(world: World, protocol: str) -> None:
    world.fill(50, 40, 7)
    group = f"{world.topic}-reader"
    settings = {
        "bootstrap.servers": world.clusters[0].bootstrap, "group.id": group, "group.protocol": protocol,
        "enable.auto.commit": "false", "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer, read = Consumer(settings), 0
    try:
        consumer.subscribe([world.topic])
        while read < 97:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                read += 1
                if read % 25 == 0 or read == 97:
                    consumer.commit(asynchronous=False)
                    world.follow()
                    here = world.source.group_offsets(group)
                    assert [p.offset for _, p in sorted(here.items())] == world.at(group)
    finally:
        consumer.close()
    assert world.at(group) == [50, 40, 7]


def test_a_thousand_groups_are_followed_in_one_pass(world: World) -> None:
    """What the passes took is printed: the first sets them all, the second nothing, the third all again."""
    world.fill(50, 40)
    tps = [TopicPartition(world.topic, p) for p in range(PARTITIONS)]
    took = []
    # Read first, as each pass does: a cluster's first request for a coordinator creates the offsets topic, and a commit
    # is sent once.
    assert not any(world.source.groups_offsets([f"{world.topic}-{n:04}" for n in range(1000)]).values())
    for offset in (7, 7, 9):
        wanted = {f"{world.topic}-{n:04}": dict.fromkeys(tps[:2], GroupPosition(offset)) for n in range(1000)}
        assert all(len(c.done) == 2 for c in world.source.commit_groups(wanted, lambda: None).values())
        report = world.follow()
        assert (report.groups, report.positions) == (1000, 2000), report
        took.append(report.took_s)
    there = world.target.groups_offsets(wanted)
    assert all({p.offset for p in its.values()} == {9} for its in there.values())
    print(
        f"1,000 groups: {took[0]:.1f} s when all are new, {took[1]:.1f} s when none moved, {took[2]:.1f} s when all did"
    )


@pytest.mark.months
def test_groups_and_settings_follow_while_a_tail_runs_and_no_longer_after_it(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name, 1)
    write(source_cluster, topic_name, 500, 1)
    log, job_dir, group = tmp_path / "tail.log", tmp_path / "job", f"{topic_name}-g"
    mirror = {
        "name": f"m-{topic_name[-8:]}", "source": "source", "target": "target", "topics": [topic_name],
        "groups": [f"{topic_name}.*"], "group_interval_s": 0.5, "config_interval_s": 1,
    }  # fmt: skip
    (tmp_path / "mirror.json").write_text(json.dumps(mirror))
    tp = TopicPartition(topic_name, 0)
    with ClusterAdmin(config(source_cluster), 120) as source, ClusterAdmin(config(target_cluster), 120) as target:

        def there() -> int | None:
            found = target.group_offsets(group)
            return found[tp].offset if tp in found else None

        def shown(kind: str = "groups") -> Any:
            return json.loads((job_dir / "status.json").read_text())["follows"].get(kind, {})

        def segment_ms() -> str | None:
            return target.topic_configs([topic_name])[topic_name]["segment.ms"].value

        arguments = ["--mirror", str(tmp_path / "mirror.json"), "--job-dir", str(job_dir)]
        source.commit_group_offsets(group, {tp: GroupPosition(100)}, unfenced)
        tail = submit("streaming_tail.py", *properties_of(tmp_path, source_cluster, target_cluster), *arguments, log=log)
        try:
            for offset in (100, 500, 250):
                source.commit_group_offsets(group, {tp: GroupPosition(offset)}, unfenced)
                wait_until(lambda offset=offset: there() == offset, f"the group is at {offset} on the target")
            target.commit_group_offsets(group, {tp: GroupPosition(3)}, unfenced)
            wait_until(lambda: shown()["left_alone"]["count"] == 1, "its status says that somebody else has set it")
            (line,) = shown()["left_alone"]["first"]  # until the next pass what was there before counts as well
            assert line.startswith(f"{group} at {tp}: the target has 3, the mirror wrote ") and line.endswith("250")
            target.commit_group_offsets(group, {tp: GroupPosition(250)}, unfenced)
            wait_until(lambda: shown()["groups"] == 1 and not shown()["error"], "it is followed again")
            source.alter_topic_configs(topic_name, unfenced, {"retention.ms": "7200000", "segment.ms": "120000"})
            wait_until(lambda: segment_ms() == "120000", "a setting of the source is the target's")
            waits = {"count": 1, "first": [f"{topic_name}: retention.ms: -1 -> 7200000"]}
            wait_until(lambda: shown("configs")["latest"]["count"] == 1, "its status says what was set")
            assert shown("configs")["waiting"] == waits and not shown("configs")["error"], shown("configs")
            stop(tail, log)
        finally:
            end_job(tail)
        source.commit_group_offsets(group, {tp: GroupPosition(400)}, unfenced)
        source.alter_topic_configs(topic_name, unfenced, {"segment.ms": "130000"})
        assert there() == 250 and shown()["groups"] == 1 and segment_ms() == "120000"
