"""The page for after a disaster: each command in it is typed. A source dies, returns, and applications go back to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror import errors
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.rollback.run import way_back
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build, ledger_store
from airflow_mirror.plan.ownership import begin, claim
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from sandbox import Cluster
from tests.builders import rule
from tests.cutting_over import go_back
from tests.integration.copying import assert_equal, create, read, wait_until, write, write_transactions
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import HeardFence, kept_in
from tests.integration.shell import ROOT, Shell, commands_of, sections_with_commands

pytestmark = pytest.mark.tools
PAGE = (ROOT / "docs" / "after-a-disaster.md").read_text(encoding="utf-8")
PARTITIONS, LATE = 2, 20
MAY, MAY_NOT = ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Application(threading.Thread):
    """A producer of the old source that nobody has told. It writes as soon as that answers, until it is refused."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({**cluster.properties("alice"), "message.timeout.ms": 2000, "log_level": 0})
        self._topic, self._over = topic, threading.Event()
        self.acked, self.first, self.refused = 0, 0.0, 0.0

    def run(self) -> None:
        while not self._over.wait(0.02) and not self.refused:
            self._producer.produce(self._topic, b"nobody told me", partition=0, on_delivery=self._delivered)
            self._producer.flush(5)

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.acked, self.first = self.acked + 1, self.first or time.monotonic()
        elif "authoriz" in str(error).lower():
            self.refused = time.monotonic()

    def end(self) -> None:
        self._over.set()
        self.join(30)


class World:
    """Four topics on an old source and all of them on the target. Each will have another fate."""

    def __init__(self, old: Cluster, new: Cluster, topic: str, directory: Path, close: ExitStack) -> None:
        self.old, self.new, self.directory = old, new, directory
        self.keep, self.split, self.stay, self.lost = (f"{topic}-{fate}" for fate in ("keep", "split", "stay", "lost"))
        self.source, self.target = (
            close.enter_context(ClusterAdmin(ClientConfig(one.properties("mirror"), role), timeout_s=120))
            for one, role in ((old, "source"), (new, "target"))
        )
        for number, name in enumerate(self.topics):
            create(old, name, PARTITIONS)
            write(old, name, 60, seed=number)
            write_transactions(old, name, seed=number, partitions=PARTITIONS)
        with ClusterAdmin(ClientConfig(old.admin_properties(), "source"), timeout_s=120) as admin:
            users = ("alice", "mirror", "ANONYMOUS")  # the referee; without any the topics may be open to everybody
            admin.create_acls(
                [rule(name, "ALL", "ALLOW", f"User:{user}") for name in self.topics for user in users], unfenced
            )
        self.group = f"{topic}-reads"
        self.mirror = Mirror(
            name=f"m-{topic[-8:]}", source="src", target="dst", topics=[f"{topic}-.*"], groups=[f"{topic}-.*"]
        )
        self.plan = build(self.mirror, self.source, self.target, probe_target=False)
        create_target_topics(self.plan, self.target, unfenced)
        ledger = begin(self.plan, self.target)
        claim(ledger, self.plan, self.target)
        ledger_store.keep(self.plan, state_of(self.target, PLAN.below(self.mirror.name)), ledger)
        self.copy(self.plan, self.source, self.target)
        for side, name in ((self.source, "src"), (self.target, "dst")):
            settings = side.config.properties.items()
            (directory / f"{name}.properties").write_text("\n".join(f"{key}={value}" for key, value in settings))

    @property
    def topics(self) -> list[str]:
        return [self.keep, self.split, self.stay, self.lost]

    def copy(self, plan: Plan, source: ClusterAdmin, target: ClusterAdmin) -> None:
        """Copy what is there by now, as a tail of this plan does."""
        os.environ["AFTER_SOURCE"], os.environ["AFTER_TARGET"] = source.config.dump(), target.config.dump()
        tps = [TopicPartition(t.source_topic, p) for t in plan.topics for p in range(t.partitions)]
        stable, starts = source.wire.last_stable(tps), source.wire.log_starts(tps)
        ranges = [
            CopyRange(
                source_topic=tp.topic, target_topic=tp.topic, partition=tp.partition, start_offset=starts[tp],
                end_offset=stable[tp], source_topic_id=plan.topic(tp.topic).source_topic_id,
            )
            for tp in tps
        ]  # fmt: skip
        token = lease.take(target.wire, plan.mirror.name)
        options = CopyOptions(mirror=plan.mirror.name)
        work = CopyWork(source="env:AFTER_SOURCE", target="env:AFTER_TARGET", options=options, lease=token)
        results = copy_ranges(work, ranges)
        lease.release(target.wire, token)
        assert [one.error for one in results] == [None] * len(ranges)

    def commands(self, heading: str) -> list[str]:
        names = {"dc1-to-dc2": self.mirror.name, r"\borders\b": self.split, r"\binvoices\b": self.stay}
        return commands_of(PAGE, heading, names)

    def answers(self, cluster: Cluster, user: str, topics: Collection[str]) -> set[int]:
        with WireCluster(ClientConfig(cluster.properties(user), "asked")) as wire:
            return set(
                wire.write_answers([TopicPartition(name, p) for name in topics for p in range(PARTITIONS)]).values()
            )


@pytest.fixture
def world(topic_name: str, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as close:
        old, new = (
            close.enter_context(Cluster(f"disaster-{name}", authorizer=True, ready_timeout_s=400))
            for name in ("old", "new")
        )
        yield World(old, new, topic_name, tmp_path, close)


def said_by(process: subprocess.Popen[str], until: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if until in line:
            return
    raise AssertionError("".join(lines))


def test_source_dies_returns_is_fenced_and_applications_go_back(world: World, tmp_path: Path) -> None:
    """One topic goes on where it ended, one is created again, one stays as it is, and one was gone."""
    shell, old, new = Shell(tmp_path), world.old, world.new
    status, check = world.commands("1. Is it gone?")
    assert shell.type(status) == 0 and world.mirror.name in shell.said
    assert shell.type(check) == 0, shell.said
    (failover,) = world.commands("3. Fail over")
    assert shell.type(failover) == 0, shell.said
    assert world.answers(old, "alice", world.topics) == {MAY}
    cut = world.source.wire.log_ends([TopicPartition(name, 0) for name in world.topics])
    for name in (world.split, world.stay):
        write(old, name, LATE, seed=9)  # after the cut: nobody copies that
    for node in range(1, old.node_count + 1):
        old.kill(node)
    fence, after = world.commands("5. The source returns")
    application = Application(old, world.split)
    with shell.start(fence) as process:
        try:
            said_by(process, "not fenced yet")
            application.start()
            for name in world.topics:
                write(new, name, 40, seed=5)  # production
            for node in range(1, old.node_count + 1):
                old.restart(node)
            assert process.stdout is not None
            said = process.stdout.read()
            assert process.wait(300) == 0, said
        finally:
            process.kill()
            application.end()
    wrote_s = application.refused - application.first if application.acked else 0.0
    print(f"{application.acked} records in {wrote_s:.1f} s until the fence: {said}")
    assert wrote_s < 10.0
    assert "has returned, and was fenced" in said and f"{world.split}-0: " in said and world.keep not in said
    assert world.answers(old, "alice", world.topics) == world.answers(old, "mirror", world.topics) == {MAY_NOT}
    assert shell.type(after) == 0 and f"{world.stay}-0: {LATE} offsets, {LATE} records" in shell.said, shell.said
    assert shell.type(failover) == 0 and "the source returned, and was fenced" in shell.said
    with ClusterAdmin(ClientConfig(old.admin_properties(), "source"), timeout_s=120) as admin:
        admin.delete_topics([world.lost], unfenced)
        wait_until(lambda: admin.topics([world.lost]) == {}, "a topic is gone, as with a disk")
        admin.commit_group_offsets(world.group, {TopicPartition(world.keep, 0): GroupPosition(7)}, unfenced)

    verdicts, export, dump, recreate, arm = world.commands("6. Back to the old source")
    assert shell.type(arm) == 1 and f"{world.split} has diverged" in shell.said, shell.said
    assert shell.type(verdicts) == 0 and "1 delta, 2 diverged, 1 gone" in shell.said, shell.said
    surplus = {name: read(old, name, 0, first=cut[TopicPartition(name, 0)]) for name in (world.split, world.stay)}
    assert len(surplus[world.split]) >= LATE + application.acked and len(surplus[world.stay]) == LATE
    assert shell.type(export) == 0 and f"exported {world.stay}: " in shell.said, shell.said
    manifests = {place.name.partition(".")[0]: json.loads((place / "manifest.json").read_text()) for place in
                 (tmp_path / "surplus").iterdir()}  # fmt: skip
    for name, rows in surplus.items():
        (first,) = (row for row in manifests[name]["partitions"] if row["partition"] == 0)
        assert first["records"] == len(rows)
    assert shell.type(dump) == 0, shell.said
    dumped = [int(offset) for offset in re.findall(r"^\| offset: (\d+) .*keySize", shell.said, re.MULTILINE)]
    assert dumped == [row[0] for row in surplus[world.split]], shell.said
    before = world.source.topics([world.split])[world.split].topic_id
    assert shell.type(recreate) == 0 and f", id {before}" in shell.said, shell.said
    assert world.source.topics([world.split]) == {}
    assert world.answers(old, "alice", [world.keep, world.stay]) == {MAY_NOT}
    assert shell.type(arm) == 0 and "start the tail of mirror" in shell.said, shell.said

    way = way_back(world.mirror.name, Platform.of(world.source, world.target))
    back = [t.source_topic for t in way.plan.topics]
    assert back == sorted([world.keep, world.lost, world.split]) and way.decided.generation == 2
    wait_until(lambda: world.answers(old, "mirror", back) == {MAY}, "the mirror may write to the old source")
    assert world.answers(old, "alice", back) == {MAY_NOT}
    world.copy(way.plan, world.target, world.source)
    for name in back:
        assert_equal(new, old, name, PARTITIONS)
    assert read(old, world.stay, 0)[-LATE:] == surplus[world.stay], "it stays as it is"
    verify = verify_rest(way.plan, world.target.config, world.source.config)
    how: dict[str, Any] = {"fence": HeardFence(world.target), "verify": verify, "limits": LIMITS}
    how |= {"accept_ledger_writers": ["User:*"]}
    on = Platform.of(world.source, world.target)
    back_of = kept_in(on.turned(), way.plan.mirror.name, tmp_path / "back")
    report = go_back(way, on, back_of, **how)
    assert report.fence is not None
    print(f"failed back: nobody could write for {report.fence.seconds:.1f} s")
    wait_until(lambda: world.answers(old, "alice", back) == {MAY}, "applications write to the old source again")
    assert world.answers(new, "alice", back) == {MAY_NOT}
    for name in back:
        assert_equal(new, old, name, PARTITIONS)


def test_source_returns_with_empty_disks_and_gets_everything_back(world: World, tmp_path: Path) -> None:
    """Its topics and its access rules are gone. An application has created one of them, and written to it."""
    shell, old, new = Shell(tmp_path), world.old, world.new
    (failover,) = world.commands("3. Fail over")
    assert shell.type(failover) == 0, shell.said
    for name in world.topics:
        write(new, name, 40, seed=5)  # production
    old.wipe()
    for node in range(1, old.node_count + 1):
        old.restart(node)
    create(old, world.split)
    write(old, world.split, LATE, seed=9)
    fence, _ = world.commands("5. The source returns")
    assert shell.type(fence) == 2 and "4 topic(s) of the source have no ACL" in shell.said, shell.said
    assert shell.type(f"{fence} --open-by-default true") == 0, shell.said
    assert "has returned, and was fenced" in shell.said and f"{world.split}-0: " in shell.said, shell.said
    verdicts, export, _, recreate, arm = world.commands("6. Back to the old source")
    assert shell.type(verdicts) == 0 and "0 delta, 1 diverged, 3 gone" in shell.said, shell.said
    assert shell.type(export) == 0 and f"exported {world.split}: {LATE} records" in shell.said, shell.said
    assert shell.type(recreate) == 0, shell.said
    assert shell.type(arm.replace(f" --exclude-topic {world.stay}", "")) == 0, shell.said
    way = way_back(world.mirror.name, Platform.of(world.source, world.target))
    assert [t.source_topic for t in way.plan.topics] == sorted(world.topics)
    wait_until(lambda: world.answers(old, "mirror", world.topics) == {MAY}, "the mirror may write to the old source")
    assert world.answers(old, "alice", world.topics) == {MAY_NOT}
    world.copy(way.plan, world.target, world.source)
    for name in world.topics:
        assert_equal(new, old, name, PARTITIONS)


def test_source_that_was_formatted_anew_is_another_cluster(world: World, tmp_path: Path) -> None:
    """Nothing of the mirror's is there, and nothing of it is fenced: it may be anybody's."""
    shell, old = Shell(tmp_path), world.old
    (failover,) = world.commands("3. Fail over")
    assert shell.type(failover) == 0, shell.said
    before, another = world.plan.source_cluster_id, "AnotherClusterAltogeth"
    old.wipe(cluster_id=another)
    for node in range(1, old.node_count + 1):
        old.restart(node)
    fence, _ = world.commands("5. The source returns")
    assert shell.type(fence) == 2, shell.said
    assert f"the source is cluster {another}" in shell.said, shell.said
    assert f"mirror {world.mirror.name!r} copied from {before}" in shell.said, shell.said
    with ClusterAdmin(ClientConfig(old.admin_properties(), "source"), timeout_s=120) as admin:
        assert admin.describe_acls(resource_type="TOPIC") == []


def test_every_command_of_the_page_is_typed_by_a_test() -> None:
    """A section of commands that nobody types here would be right only by chance."""
    assert sections_with_commands(PAGE) == set(
        re.findall(r'commands\("([^"]+)"', Path(__file__).read_text(encoding="utf-8"))
    )


def test_every_error_of_the_page_is_said_by_the_software() -> None:
    """The words in the tables are those of an error or a report."""
    texts = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "airflow_mirror").rglob("*.py"))
    texts = re.sub(r'"\s*\n\s*f?"', "", texts)
    first = [row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| `")]
    quoted = [words for cell in first for words in re.findall(r"`([^`]+)`", cell)]
    parts = [part.strip() for words in quoted for part in re.split("…", words) if part.strip()]
    assert [part for part in parts if part not in texts] == [] and hasattr(errors, "ExportBroken")
