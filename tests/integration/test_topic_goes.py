"""A topic is deleted at the source while a tail copies it: others go on, and what was copied of it can be handed over."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import DONE
from airflow_mirror.errors import PlanOutdated
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.ledger_store import keep_on, last_between
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.plan.ownership import begin
from airflow_mirror.plan.recreated_topics import decisions_of
from airflow_mirror.verify.remaining import verify_rest
from sandbox import Cluster
from tests.builders import rule
from tests.cutting_over import cut_over
from tests.integration.copying import create, ends, wait_until, write
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import HeardFence, kept_in
from tests.integration.shell import Shell
from tests.integration.test_spark_jobs import end_job

pytestmark = pytest.mark.faults
RETENTION_MS = "9000000000000"
RECORDS, AT = 100, 50


class World:
    """Two topics and a group, all of them on the target, and the tail that has copied them; one topic is gone since."""

    def __init__(self, old: Cluster, new: Cluster, name: str, directory: Path, close: ExitStack) -> None:
        self.old, self.new, self.directory, self.group = old, new, directory, f"{name}-group"
        self.stays, self.goes = f"{name}-stays", f"{name}-goes"
        self.source, self.target = (
            close.enter_context(ClusterAdmin(ClientConfig(one.admin_properties(), role), timeout_s=120))
            for one, role in ((old, "source"), (new, "target"))
        )
        topics = (self.stays, self.goes)
        for topic in topics:
            create(old, topic, retention_ms=RETENTION_MS)
            write(old, topic, RECORDS, seed=1)
        # Else the topics may be open to everybody. The sandbox's writers come without a name.
        users = ("alice", "ANONYMOUS")
        self.source.create_acls([rule(topic, "ALL", "ALLOW", f"User:{u}") for topic in topics for u in users], unfenced)
        self.source.commit_group_offsets(
            self.group, {TopicPartition(topic, 0): GroupPosition(AT) for topic in topics}, unfenced
        )
        self.mirror = Mirror(
            name=f"m-{name[-8:]}", source="src", target="dst", topics=[f"{name}-.*"], groups=[f"{name}-.*"],
            topic_interval_s=1, group_interval_s=1,
        )  # fmt: skip
        (directory / "mirror.json").write_text(json.dumps(self.mirror.to_dict()))
        self.shell = Shell(directory)
        for file, admin in (("src", self.source), ("dst", self.target)):
            settings = admin.config.properties.items()
            (directory / f"{file}.properties").write_text("\n".join(f"{key}={value}" for key, value in settings))
        with (directory / "tail.log").open("wb") as log:
            self.tail: subprocess.Popen[str] = self.shell.start(
                "airflow-mirror follow --mirror mirror.json --source src.properties --target dst.properties"
                f" > {log.name} 2>&1"
            )
        close.enter_context(self.tail)
        close.callback(end_job, self.tail)
        wait_until(lambda: self.at() == {self.stays: AT, self.goes: AT}, "both topics are copied, and the group follows")
        self.source.delete_topics([self.goes], unfenced)
        said = f"gone from the source: {self.goes}"
        wait_until(lambda: self.type("status --target dst.properties") == 0 and said in self.shell.said, "it is told")
        write(old, self.stays, 30, seed=2)
        wait_until(lambda: ends(new, self.stays)[0][2] == RECORDS + 30, "the other topic goes on", poll_s=0.2)

    def type(self, words: str) -> int:
        return self.shell.type(f"airflow-mirror {words}")

    def at(self) -> dict[str, int]:
        """The group's positions on the target."""
        return {tp.topic: position.offset for tp, position in self.target.group_offsets(self.group).items()}

    def cut_over(self, plan: Plan, run: str) -> str:
        on = Platform.of(self.source, self.target)
        return cut_over(
            on, plan, kept_in(on, self.mirror.name, self.directory / run), fence=HeardFence(self.source), limits=LIMITS,
            accept_ledger_writers=["User:*"],
            verify=verify_rest(plan, self.source.config, self.target.config),
        ).outcome  # fmt: skip

    def require_open(self) -> None:
        """The copy is as the topic was, it is no mirror's that would write to it, and others may."""
        settings = self.target.topic_configs([self.goes])[self.goes]
        assert settings["retention.ms"].value == RETENTION_MS
        assert settings["retention.bytes"].is_default
        owned = owned_topics(Ledger(self.target)).get(self.goes)
        assert owned is None or owned.opened_at is not None
        assert self.at()[self.goes] == AT and ends(self.new, self.goes)[0][2] == RECORDS
        write(self.new, self.goes, 5, seed=3)
        assert ends(self.new, self.goes)[0][2] == RECORDS + 5


@pytest.fixture
def world(
    walled_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, unhurried: None
) -> Iterator[World]:
    with ExitStack() as close:
        yield World(walled_cluster, target_cluster, topic_name, tmp_path, close)


def test_others_are_cut_over_without_it_and_retiring_hands_over_its_copy(world: World) -> None:
    ledger = Ledger(world.target)
    last = last_between(world.mirror.name, world.source, world.target, ledger)
    assert last is not None
    with pytest.raises(PlanOutdated, match=f"source topic '{world.goes}' was deleted: .*'airflow-mirror retire'"):
        world.cut_over(last, "first")
    without = build(
        world.mirror, world.source, world.target, last.known_topics, probe_target=False, decisions=decisions_of(ledger)
    )
    assert [t.source_topic for t in without.topics] == [world.stays]
    begin(without, world.target)
    keep_on(world.target, without, ledger)
    assert world.cut_over(without, "second") == DONE
    world.tail.wait(120)
    assert world.target.topic_configs([world.goes])[world.goes]["retention.ms"].value == "-1"
    assert world.type(f"retire --target dst.properties --mirror {world.mirror.name} --yes") == 0, world.shell.said
    assert f"settings   {world.goes}: retention.ms: -1 -> {RETENTION_MS}" in world.shell.said
    world.require_open()


def test_failover_hands_over_its_copy_with_the_others(world: World) -> None:
    assert world.type(f"failover --target dst.properties {world.mirror.name} --yes --force") == 0, world.shell.said
    assert f"settings: {world.goes}: retention.ms: -1 -> {RETENTION_MS}" in world.shell.said
    world.tail.wait(120)
    world.require_open()
    # Nothing is fenced yet: whoever goes on too early is sent a step back. Then another cluster answers in the source's
    # place, as if somebody had built it anew.
    clusters = f"--target dst.properties --source dst.properties {world.mirror.name}"
    for command in ("failback", "arm-reverse"):
        assert world.type(f"{command} {clusters}") == 1, world.shell.said
        assert "'airflow-mirror fence-on-return' fences it" in world.shell.said
    for command in (f"fence-on-return {clusters}", f"failover {clusters} --after"):
        assert world.type(command) == 2, world.shell.said
        assert f"the source is cluster {world.target.cluster_id()}" in world.shell.said
        assert "make an ordinary mirror to it" in world.shell.said
