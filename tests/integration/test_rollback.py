"""A cutover that is rolled back after applications have written to its target, on real brokers with authorizers.

The mirror is an ordinary user on both: what keeps applications out must let it in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.main import main
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.rollback.arm import arm, cutover_of
from airflow_mirror.cutover.rollback.foresee import foresee
from airflow_mirror.cutover.rollback.run import counted, way_back
from airflow_mirror.errors import NoWayBack, RollbackRefused
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build, ledger_store
from airflow_mirror.plan.direction import reverse_name
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from sandbox import Cluster
from tests.cutting_over import cut_over, go_back
from tests.integration.copying import abort_transaction, assert_equal, create, read, wait_until, write, write_transactions
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import HeardFence, kept_in

PARTITIONS = 2
MAY, MAY_NOT = ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Cluster, Cluster]]:
    with ExitStack() as close:
        yield tuple(  # type: ignore[misc]
            close.enter_context(Cluster(f"there-and-back-{n}", authorizer=True, ready_timeout_s=400)) for n in (1, 2)
        )


class World:
    """One topic on the old side, copied to the new side and cut over, with two groups. Its last records were aborted."""

    def __init__(self, old: Cluster, new: Cluster, topic: str, directory: Path, close: ExitStack) -> None:
        self.old, self.new, self.topic, self.directory = old, new, topic, directory
        self.tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        self.source, self.target = (
            close.enter_context(ClusterAdmin(ClientConfig(one.properties("mirror"), role), timeout_s=120))
            for one, role in ((old, "source"), (new, "target"))
        )
        create(old, topic, PARTITIONS)
        write(old, topic, 200, seed=1)
        write_transactions(old, topic, seed=2, partitions=PARTITIONS)
        abort_transaction(old, topic, PARTITIONS)
        self.mirror = Mirror(name=f"m-{topic[-8:]}", source="src", target="dst", topics=[topic], groups=[f"{topic}-.*"])
        self.plan = build(self.mirror, self.source, self.target, probe_target=False)
        create_target_topics(self.plan, self.target, unfenced)
        ledger = begin(self.plan, self.target)
        claim(ledger, self.plan, self.target)
        ledger_store.keep(self.plan, state_of(self.target, PLAN.below(self.mirror.name)), ledger)
        for name, offset in (("reads-on", 60), ("rests", 40)):
            self.commit(self.source, name, offset)
        self.copy(self.plan, self.source, self.target)

    @property
    def on(self) -> Platform:
        """Both clusters, as a process that begins now finds them."""
        return Platform.of(self.source, self.target)

    def commit(self, side: ClusterAdmin, suffix: str, offset: int) -> None:
        wait_until(lambda: side.topics([self.topic]) != {}, "the topic is there")
        side.commit_group_offsets(f"{self.topic}-{suffix}", {self.tps[0]: GroupPosition(offset, "note")}, unfenced)

    def at(self, side: ClusterAdmin, suffix: str) -> dict[TopicPartition, int]:
        return {tp: p.offset for tp, p in side.group_offsets(f"{self.topic}-{suffix}").items()}

    def copy(self, plan: Plan, source: ClusterAdmin, target: ClusterAdmin) -> None:
        """Copy what is there by now, as a tail of this plan does."""
        os.environ["BACK_SOURCE"], os.environ["BACK_TARGET"] = source.config.dump(), target.config.dump()
        stable, starts = source.wire.last_stable(self.tps), source.wire.log_starts(self.tps)
        ranges = [
            CopyRange(
                source_topic=self.topic, target_topic=self.topic, partition=tp.partition, start_offset=starts[tp],
                end_offset=stable[tp], source_topic_id=plan.topic(self.topic).source_topic_id,
            )
            for tp in self.tps
        ]  # fmt: skip
        token = lease.take(target.wire, plan.mirror.name)
        options = CopyOptions(mirror=plan.mirror.name)
        work = CopyWork(source="env:BACK_SOURCE", target="env:BACK_TARGET", options=options, lease=token)
        results = copy_ranges(work, ranges)
        lease.release(target.wire, token)
        assert [one.error for one in results] == [None] * PARTITIONS

    def how(self, plan: Plan, source: ClusterAdmin, target: ClusterAdmin) -> dict[str, Any]:
        verify = verify_rest(plan, source.config, target.config)
        accepted = {"accept_ledger_writers": ["User:*"]}
        return {"fence": HeardFence(source), "verify": verify, "limits": LIMITS, **accepted}

    def cut_over(self) -> ReportStore:
        run_dir = self.directory / "there"
        report_of = kept_in(self.on, self.mirror.name, run_dir)
        cut_over(self.on, self.plan, report_of, **self.how(self.plan, self.source, self.target))
        return report_of

    def answers(self, cluster: Cluster, user: str) -> set[int]:
        with WireCluster(ClientConfig(cluster.properties(user), "asked")) as wire:
            return set(wire.write_answers(self.tps).values())

    def retire_reverse(self) -> None:
        """As a person does who wants no way back any more; the fence stays."""
        file = self.directory / "old.properties"
        lines = (f"{key}={value}".replace("\n", "\\n") for key, value in self.old.admin_properties().items())
        file.write_text("\n".join((*lines, "")))
        options = ["--target", str(file), "--mirror", reverse_name(self.mirror.name), "--home", str(self.directory)]
        assert main(["retire", *options, "--yes"]) == 0


@pytest.fixture
def world(two: tuple[Cluster, Cluster], topic_name: str, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as close:
        yield World(*two, topic_name, tmp_path, close)


@pytest.mark.nights
def test_armed_reverse_mirror_writes_where_no_application_may(world: World) -> None:
    old, new, topic = world.old, world.new, world.topic
    with pytest.raises(NoWayBack, match="no cutover of it"):
        cutover_of(world.mirror.name, world.on.target)
    seen = foresee(world.plan, world.on, AclFence(world.source))
    assert (seen.level, seen.check) == ("pass", "way_back"), seen
    world.cut_over()
    report_of, plan = cutover_of(world.mirror.name, world.on.target)
    arm(world.on, report_of, plan, check_only=True)
    assert world.answers(old, "mirror") == {MAY_NOT}, "a check changes nothing"
    armed = arm(world.on, report_of, plan)
    assert armed.direction is not None and armed.direction.primary == world.target.cluster_id()
    wait_until(lambda: world.answers(old, "mirror") == {MAY}, "the mirror may write to the old source")
    assert world.answers(old, "alice") == {MAY_NOT} and world.answers(new, "alice") == {MAY}
    world.retire_reverse()
    with pytest.raises(NoWayBack, match="was retired since the way back was armed at .* Arm it again"):
        way_back(world.mirror.name, world.on)
    armed = arm(world.on, report_of, plan)
    assert armed.direction is not None and armed.direction.generation == 2
    write(new, topic, 100, seed=4)
    write_transactions(new, topic, seed=5, partitions=PARTITIONS)
    world.copy(armed.plan, world.target, world.source)
    assert_equal(new, old, topic, PARTITIONS)
    again = arm(world.on, report_of, plan)
    assert again.direction == armed.direction, "although the old source has moved on"
    world.retire_reverse()
    with pytest.raises(NoWayBack, match=f"was retired .*; {topic}-0 ends at .* on the old source, cut over at"):
        arm(world.on, report_of, plan)
    assert world.answers(old, "alice") == {MAY_NOT}


@pytest.mark.faults
def test_old_source_that_was_written_to_has_no_way_back(world: World) -> None:
    """By a super user, whom no fence binds."""
    report_of = world.cut_over()
    producer = Producer(world.old.admin_properties())
    producer.produce(world.topic, b"too late", partition=0)
    assert producer.flush(120) == 0
    with pytest.raises(NoWayBack, match=f"{world.topic}-0 ends at .* on the old source, cut over at"):
        arm(world.on, report_of, world.plan)
    assert world.answers(world.old, "mirror") == {MAY_NOT}


@pytest.mark.nights
def test_thousand_records_after_the_opening_come_back_at_the_same_offsets(world: World, tmp_path: Path) -> None:
    old, new, topic = world.old, world.new, world.topic
    report_of = world.cut_over()
    with pytest.raises(NoWayBack, match="none was armed"):
        way_back(world.mirror.name, world.on)
    armed = arm(world.on, report_of, world.plan)
    wait_until(lambda: world.answers(new, "alice") == {MAY}, "applications write to the target")
    producer = Producer({**new.properties("alice"), "linger.ms": 5})
    for number in range(1000):
        producer.produce(topic, b"after %d" % number, b"key", number % PARTITIONS)
    assert producer.flush(120) == 0
    write_transactions(new, topic, seed=3, partitions=PARTITIONS)
    written = [read(new, topic, p) for p in range(PARTITIONS)]
    world.commit(world.target, "reads-on", 90)
    world.copy(armed.plan, world.target, world.source)

    way = way_back(world.mirror.name, world.on)
    found = counted(way, world.source, world.target)
    assert len(found.written) == PARTITIONS and not found.problems
    assert sum(one.records or 0 for one in found.written) > 1000
    reader = Consumer({**new.properties("alice"), "group.id": f"{topic}-reads-on", "enable.auto.commit": False})
    with closing(reader):
        reader.subscribe([topic])
        wait_until(lambda: reader.poll(0.5) is not None, "the group has a member on the target")
        assert any("has members on the target" in one for one in counted(way, world.source, world.target).problems)
        assert not counted(replace(way, accepted=[f"{topic}-reads-on"]), world.source, world.target).problems, (
            "a person has picked"
        )
    wait_until(lambda: not counted(way, world.source, world.target).problems, "nobody is in it any more")
    world.commit(world.source, "reads-on", 61)
    with pytest.raises(RollbackRefused, match="committed on both sides"):
        go_back(
            way,
            world.on,
            kept_in(world.on.turned(), way.plan.mirror.name, tmp_path / "refused"),
            **world.how(way.plan, world.target, world.source),
        )
    assert world.answers(new, "alice") == {MAY}, "nothing was touched"
    how = world.how(way.plan, world.target, world.source)
    back = kept_in(world.on.turned(), way.plan.mirror.name, tmp_path / "back")
    report = go_back(replace(way, accepted=[f"{topic}-reads-on"]), world.on, back, **how)
    assert report.outcome == "cut_over" and report.fence is not None
    print(f"rolled back: nobody could write for {report.fence.seconds:.1f} s")
    assert [read(old, topic, p) for p in range(PARTITIONS)] == written
    assert_equal(new, old, topic, PARTITIONS)
    assert world.at(world.source, "reads-on") == {world.tps[0]: 90}
    assert world.at(world.source, "rests") == {world.tps[0]: 40}
    wait_until(lambda: world.answers(old, "alice") == {MAY}, "applications write to the old source again")
    assert world.answers(new, "alice") == {MAY_NOT}
    assert not world.source.describe_acls(resource_type="TOPIC", name=topic)
    back = kept_in(world.on.turned(), way.plan.mirror.name, tmp_path / "back")
    again = go_back(way, world.on, back, **how)
    assert again.steps[-1].name == "verify_again"
    with pytest.raises(NoWayBack, match="decided to be the primary"):
        arm(world.on, report_of, world.plan)
    back_of, plan = cutover_of(way.plan.mirror.name, world.on.source)
    forward = arm(world.on.turned(), back_of, plan)
    assert forward.plan.mirror.name == world.mirror.name and forward.direction is not None
    assert (forward.direction.generation, forward.direction.primary) == (3, world.source.cluster_id())
    wait_until(lambda: world.answers(new, "mirror") == {MAY}, "the mirror may write to the new side again")
    assert world.answers(new, "alice") == {MAY_NOT}
