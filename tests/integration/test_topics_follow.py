"""Topics follow a real tail: what appears on the source joins, what goes stops alone, and who comes later knows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.ledger_store import fetch, keep
from airflow_mirror.plan.owned import active_topics
from airflow_mirror.plan.ownership import begin
from airflow_mirror.plan.recreated_topics import decisions_of
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.wire.errors import UnknownTopic
from sandbox import Cluster
from tests.integration.copying import assert_equal, config, create, ends, properties_of, wait_until, write
from tests.integration.test_spark_jobs import driver_of, end_job, stop, submit, summary_of
from tests.integration.warm_jobs import WarmJobs

pytestmark = pytest.mark.months


class World:
    """A mirror of all topics whose names begin with a test's own, with a plan that its target keeps."""

    def __init__(self, source: Cluster, target: Cluster, name: str, directory: Path, close: ExitStack) -> None:
        self.name, self.directory, self.clusters = name, directory, (source, target)
        self.source, self.target = (close.enter_context(ClusterAdmin(config(c), 120)) for c in self.clusters)
        self.mirror = Mirror(
            name=f"m-{name[-8:]}", source="source", target="target", topics=[f"{name}-.*"], groups=[f"{name}.*"],
            topic_interval_s=1, group_interval_s=1,
        )  # fmt: skip
        (directory / "mirror.json").write_text(json.dumps(self.mirror.to_dict()))
        self.properties = properties_of(directory, source, target)
        self.tails = 0

    def create(self, topic: str, partitions: int = 1, records: int = 90) -> str:
        """Create a topic on the source, with so many records in each partition."""
        name = f"{self.name}-{topic}"
        create(self.clusters[0], name, partitions)
        for partition in range(partitions):
            write(self.clusters[0], name, records, seed=partition, partition=partition)
        return name

    def plan(self, last: Plan | None = None) -> Plan:
        known, decisions = (last.known_topics, decisions_of(Ledger(self.target))) if last else ({}, {})
        plan = build(self.mirror, self.source, self.target, known, probe_target=False, decisions=decisions)
        ledger = begin(plan, self.target)
        keep(plan, state_of(self.target, PLAN.below(self.mirror.name), keys_only=True), ledger)
        return plan

    def fetched(self, plan: Plan) -> Plan:
        """As the tasks of a plan get it."""
        return fetch(plan.hash, self.mirror.name, self.target, Ledger(self.target))

    @contextmanager
    def tail(self, plan: Plan) -> Iterator[Tail]:
        """A tail on a host that has no file of the plan."""
        self.tails += 1
        one = Tail(self, self.directory / f"tail-{self.tails}", plan)
        try:
            yield one
        finally:
            end_job(one.process)

    def equal(self, name: str, partitions: int = 1) -> None:
        at = ends(self.clusters[0], name, partitions)

        def is_copied() -> bool:
            try:
                return ends(self.clusters[1], name, partitions) == at
            except UnknownTopic:  # its tail creates it
                return False

        wait_until(is_copied, f"{name} is copied", poll_s=0.2)
        assert_equal(*self.clusters, name, partitions)

    def move_group(self, topic: str, offset: int) -> None:
        """Set a group's position on the source, and wait until it is the target's."""
        group, tp = f"{self.name}-group", TopicPartition(topic, 0)
        self.source.commit_group_offsets(group, {tp: GroupPosition(offset)}, unfenced)
        there = partial(self.target.group_offsets, group)
        wait_until(lambda: tp in (its := there()) and its[tp].offset == offset, "the group has followed", poll_s=0.2)

    def verify(self, jobs: WarmJobs, plan: Plan) -> dict[str, Any]:
        """Compare as a task of the plan does, on a host without a file of it; return the summary."""
        log = self.directory / "verify.log"
        arguments = ["--mirror", str(self.directory / "mirror.json"), "--plan", str(self.directory / f"{plan.hash}.json")]
        assert jobs.run("verify", *self.properties, *arguments, log=log) == 0, log.read_text()[-3000:]
        return summary_of(log)

    def there(self, name: str) -> TopicInfo | None:
        return self.target.topics([name]).get(name)


class Tail:
    def __init__(self, world: World, directory: Path, plan: Plan) -> None:
        directory.mkdir()
        self.log, self.status_file = directory / "log", directory / "job" / "status.json"
        arguments = ["--mirror", str(world.directory / "mirror.json"), "--job-dir", str(directory / "job")]
        arguments += ["--plan", str(directory / f"{plan.hash}.json")]
        self.process: subprocess.Popen[bytes] = submit("streaming_tail.py", *world.properties, *arguments, log=self.log)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.status_file.read_text())) if self.status_file.exists() else {"follows": {}}

    def says(self, key: str, topic: str, words: str = "") -> None:
        """Wait until its report of topics lists one."""

        def listed() -> bool:
            lines = self.status()["follows"].get("topics", {}).get(key, {"first": []})["first"]
            return any(topic in line and words in line for line in lines)

        wait_until(listed, f"the status lists {topic} as {key}", poll_s=0.2)

    def kill(self) -> None:
        os.kill(driver_of(self.process.pid), signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def world(source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as close:
        yield World(source_cluster, target_cluster, topic_name, tmp_path, close)


def test_topics_and_partitions_that_appear_are_copied_by_whoever_comes(world: World, warm_jobs: WarmJobs) -> None:
    """One that may not be mirrored is listed; one that is deleted, or created again, stops alone."""
    first, goes, again = world.create("first"), world.create("goes"), world.create("again")
    plan = world.plan()
    create_target_topics(plan, world.target, unfenced)
    foreign = f"{world.name}-foreign"
    create(world.clusters[1], foreign)
    write(world.clusters[1], foreign, 5, seed=9)
    with world.tail(plan) as tail:
        for name in (first, goes, again):
            world.equal(name)
        # A topic appears, and one whose name is taken on the target.
        new = world.create("new", partitions=2)
        world.create("foreign")
        world.equal(new, 2)
        settings = world.target.topic_configs([new])[new]
        assert {key: settings[key].value for key in ("retention.ms", "cleanup.policy")} == {
            key: HELD_OPEN[key] for key in ("retention.ms", "cleanup.policy")
        }
        tail.says("left_out", foreign, "holds data that this mirror did not write")
        tail.says("added", new)
        amended = world.fetched(plan)
        assert [t.source_topic for t in amended.topics] == sorted([again, first, goes, new])
        assert amended.hash == plan.hash != amended.revision == tail.status()["follows"]["topics"]["revision"]
        assert {t.target_topic for t in amended.topics} == active_topics(Ledger(world.target), amended, world.target)
        # What carries out the plan by its hash has it: groups, and a comparison.
        world.move_group(new, 20)
        compared = world.verify(warm_jobs, plan)
        assert (compared["plan"], compared["revision"]) == (plan.hash, amended.revision) and not compared["differences"]
        assert {f"{new}-0", f"{new}-1"} < compared["end_offsets"].keys()
        # Partitions are added.
        world.source.grow_partitions(first, 3, unfenced)
        wait_until(lambda: (info := world.there(first)) is not None and info.partitions == 3, "it has grown", poll_s=0.2)
        for partition in (1, 2):
            write(world.clusters[0], first, 40, seed=partition, partition=partition)
        world.equal(first, 3)
        wait_until(lambda: world.fetched(plan).topic(first).partitions == 3, "the plan knows", poll_s=0.2)
        # One topic is deleted, one is created again.
        world.source.delete_topics([goes, again], unfenced)
        wait_until(lambda: not world.source.topics([goes, again]), "they are gone")
        world.create("again", records=200)
        tail.says("gone", goes, "offsets [0, 90): the source topic is gone")
        tail.says("again", again)
        write(world.clusters[0], new, 30, seed=5, partition=1)
        world.equal(new, 2)
        world.move_group(new, 33)
        tail.kill()
    late = world.create("late")
    with world.tail(plan) as tail:  # elsewhere: nothing but the target knows what was added
        write(world.clusters[0], new, 30, seed=6)
        world.equal(new, 2)
        world.equal(first, 3)
        world.equal(late)
        tail.says("gone", goes, "It is not copied any more")
        assert any(goes in note for note in tail.status()["notes"])
        tail.says("again", again)
        tail.says("left_out", foreign)
        stop(tail.process, tail.log)
    assert summary_of(tail.log)["gone"] == sorted([again, goes])
    there = world.there(again)
    assert there is not None and ends(world.clusters[1], again)[0][2] <= 200
    # A new plan that nobody has prepared leaves it out alone; once the old records are gone a tail takes it in.
    world.target.delete_topics([foreign], unfenced)
    wait_until(lambda: world.there(foreign) is None, "the foreign topic is gone")
    later = world.plan(world.fetched(plan))
    assert [t.source_topic for t in later.topics] == sorted([first, foreign, late, new])
    create_target_topics(later, world.target, unfenced)
    with world.tail(later) as tail:
        write(world.clusters[0], first, 20, seed=8)
        world.equal(first, 3)
        tail.says("left_out", again, "Delete the target topic")
        world.target.delete_topics([again], unfenced)
        world.equal(again)
        tail.says("added", again)
        stop(tail.process, tail.log)
