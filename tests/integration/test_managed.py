"""A migration to each kind of managed cluster on which a ledger may live: brokers that forbid what the kind is known to.

The rules are those of docs/managed.md. The mirror's user has the rights that ``airflow-mirror rights`` prints, without
those on the cluster that the kind isn't known to give.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.main import main
from airflow_mirror.extras.drill.disaster import warm_up, write_canaries
from airflow_mirror.extras.drill.failover import fail_over
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.rights import rights_of
from airflow_mirror.plan.targets import KINDS
from sandbox import Cluster
from sandbox.strict import StrictCluster
from tests.integration.copying import assert_equal, config, create, ends, read, wait_until, write, write_transactions
from tests.integration.plain import Follow, copy
from tests.integration.test_compacted_sides import CLEANING, KEYS, cleaned, update

pytestmark = pytest.mark.managed

PARTITIONS = 2
OURS = "User:mirror"
TRUSTS = ("--accept-ledger-writers", "User:*", "--open-by-default", "true")
POLICIES = ("delete", "compact", "compact,delete")
HOLDS_A_LEDGER = [name for name, kind in KINDS.items() if not kind.forbids]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictCluster]:
    with StrictCluster("strict", tmp_path_factory.mktemp("strict"), ready_timeout_s=400) as cluster:
        yield cluster


class Migration:
    """Topics with holes, above 0, compacted; a group; and what has to be typed."""

    def __init__(self, source: Cluster, target: StrictCluster, kind: str, topic: str, directory: Path) -> None:
        target.be(kind)
        self.source, self.target, self.kind, self.topic, self.directory = source, target, kind, topic, directory
        self.table, self.both, self.group = f"{topic}-table", f"{topic}-both", f"{topic}-readers"
        self.mirror = Mirror(
            name=f"m-{topic[-8:]}", source="s", target="t", topics=[f"{topic}.*"], groups=[self.group], target_kind=kind
        )
        self.clusters: list[str] = []
        for role, cluster in (("source", source), ("target", target)):
            file = directory / f"{role}.properties"
            file.write_text("".join(f"{k}={v}\n" for k, v in cluster.properties("mirror").items()))
            self.clusters += [f"--{role}", str(file)]
        self.declare()
        create(source, topic, PARTITIONS)
        create(source, self.table, cleanup_policy="compact")
        create(source, self.both, cleanup_policy="compact,delete")
        write(source, topic, 100, seed=1)
        with ClusterAdmin(config(source)) as admin:
            admin.delete_records({TopicPartition(topic, 0): 7}, unfenced)
            admin.commit_group_offsets(self.group, {TopicPartition(topic, 0): GroupPosition(60, "note")}, unfenced)
        write_transactions(source, topic, seed=2, transactions=2, partitions=PARTITIONS)
        for compacted in (self.table, self.both):
            update(source, compacted, 50, seed=3)
        self._grant()

    def declare(self, **fields: Any) -> None:
        """Have these fields in the file that jobs read."""
        file, self.mirror = self.directory / "mirror.json", replace(self.mirror, **fields)
        file.write_text(json.dumps(self.mirror.to_dict()))
        self.flow = [*self.clusters, "--mirror", str(file)]

    def _grant(self) -> None:
        on_cluster = KINDS[self.kind].rules.get("cluster", "").split()
        acls = [g.acl for g in rights_of(self.mirror, "target", OURS).grants]
        (some, *_) = [acl for acl in acls if acl.resource_type == "CLUSTER"]
        acls = [acl for acl in acls if acl.resource_type != "CLUSTER"]
        acls += [replace(some, operation=operation) for operation in on_cluster]
        with self.admin("target") as admin:
            admin.create_acls(acls, unfenced)

    def plan(self, user: str | None = "mirror", **fields: Any) -> Plan:
        with self.admin("source", "mirror") as source, self.admin("target", user) as target:
            return build(replace(self.mirror, **fields), source, target)

    def admin(self, role: str, user: str | None = None) -> ClusterAdmin:
        cluster = {"source": self.source, "target": self.target}[role]
        return ClusterAdmin(ClientConfig(cluster.properties(user), role), timeout_s=120)

    def run(self, command: str, *words: str) -> int:
        """Run a command about the mirror, by its name; its reports lie below the test's directory."""
        return main([command, *self.clusters, "--mirror", self.mirror.name, *words])

    def setting(self, role: str, topic: str, key: str) -> str | None:
        with self.admin(role) as admin:
            return admin.topic_configs([topic])[topic][key].value

    def close(self) -> None:
        with self.admin("source") as admin:
            admin.delete_acls(admin.describe_acls(resource_type="TOPIC", name=self.topic), unfenced)


@pytest.fixture
def migration(
    request: pytest.FixtureRequest, walled_cluster: Cluster, strict: StrictCluster, topic_name: str, tmp_path: Path
) -> Iterator[Migration]:
    made = Migration(walled_cluster, strict, request.param, topic_name, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("migration", HOLDS_A_LEDGER, indirect=True)
def test_whole_migration_by_the_commands_of_the_runbook(
    migration: Migration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = migration.plan()
    assert not plan.blocks, plan.blocks
    assert {t.mode for t in plan.topics} == {"identical"} and plan.capabilities.markers == "coordinator"
    unserved = "WriteTxnMarkers" in KINDS[migration.kind].rules.get("unserved", "")
    assert any(lack.startswith("WriteTxnMarkers: ") for lack in plan.capabilities.lacks) is unserved
    assert {t.replication_factor for t in plan.topics} == {KINDS[migration.kind].replicas or 1}
    assert copy(*migration.flow, log=tmp_path / "copy.log") == 0, (tmp_path / "copy.log").read_text()[-3000:]
    with Follow(*migration.flow, log=tmp_path / "follow.log") as tail:
        tail.says("offsets behind in 4 partitions")
        write(migration.source, migration.topic, 30, seed=4, partition=1)
        wait_until(lambda: migration.run("verify") == 0, "both sides are equal", poll_s=1)
        assert migration.run("cutover", "--home", str(tmp_path), *TRUSTS, "--yes") == 0, capsys.readouterr().out
        assert tail.process.wait(60) == 0
    assert main(["configs", *migration.clusters, "--name", migration.mirror.name, "--after", "--yes"]) == 0
    for topic in (migration.topic, migration.table, migration.both):
        for key in ("cleanup.policy", "retention.ms", "min.compaction.lag.ms"):
            assert migration.setting("target", topic, key) == migration.setting("source", topic, key)
    assert_equal(migration.source, migration.target, migration.topic, PARTITIONS)
    with migration.admin("target") as admin:
        assert admin.group_offsets(migration.group)[TopicPartition(migration.topic, 0)].offset == 60


@pytest.fixture(scope="module")
def dying() -> Iterator[Cluster]:
    """A source that a test may kill; the next one starts it again."""
    with Cluster("dying", authorizer=True, ready_timeout_s=400) as cluster:
        yield cluster


@pytest.fixture
def mirrored(
    request: pytest.FixtureRequest, dying: Cluster, strict: StrictCluster, topic_name: str, tmp_path: Path
) -> Migration:
    if not dying.alive(1):
        dying.restart(1)
    return Migration(dying, strict, request.param, topic_name, tmp_path)


WITH_RULES = [name for name in HOLDS_A_LEDGER if KINDS[name].rules]


@pytest.mark.parametrize("mirrored", WITH_RULES, indirect=True)
def test_target_is_promoted_when_its_source_is_gone(
    mirrored: Migration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = TopicPartition(mirrored.topic, 0)
    was = {t: mirrored.setting("source", t, "cleanup.policy") for t in (mirrored.topic, mirrored.table, mirrored.both)}
    arguments = ["failover", *mirrored.clusters[2:], mirrored.mirror.name]
    with Follow(*mirrored.flow, log=tmp_path / "follow.log") as tail, mirrored.admin("target") as target:
        tail.says("offsets behind in 4 partitions")

        def moved() -> bool:  # until its records are there, it stands at the target's end
            position = target.group_offsets(mirrored.group).get(at)
            return position is not None and position.offset == 60

        wait_until(moved, "groups follow", poll_s=0.5)
        held = ends(mirrored.source, mirrored.topic, PARTITIONS)
        wait_until(lambda: ends(mirrored.target, mirrored.topic, PARTITIONS) == held, "all is copied", poll_s=0.5)
        assert main([*arguments, "--yes"]) == 2, "the source lives"
        mirrored.source.kill(1)
        wait_until(lambda: main([*arguments, "--yes"]) == 0, "the source counts as gone", poll_s=1)
        assert tail.process.wait(60) is not None
        assert target.group_offsets(mirrored.group)[at].offset == 60
    assert {topic: mirrored.setting("target", topic, "cleanup.policy") for topic in was} == was
    write(mirrored.target, mirrored.topic, 10, seed=5)  # production
    capsys.readouterr()


@pytest.mark.parametrize("mirrored", WITH_RULES, indirect=True)
def test_drill_of_its_failover_by_the_users_own_logins(mirrored: Migration, tmp_path: Path) -> None:
    drilled = f"{mirrored.topic}-drill"
    create(mirrored.source, drilled, PARTITIONS)
    source, target = (ClientConfig(c.properties("mirror"), "asked") for c in (mirrored.source, mirrored.target))
    with mirrored.admin("target") as admin:
        admin.create_acls(
            [_may("READ", "GROUP", drilled), *[_may(o, "TOPIC", drilled) for o in ("READ", "WRITE")]], unfenced
        )
    with Follow(*mirrored.flow, log=tmp_path / "follow.log") as tail:
        tail.says("offsets behind in 6 partitions")
        warm_up(source, target, drilled, timeout_s=240)
        canaries = write_canaries(source, drilled, drilled, seconds=3, per_s=20, disaster=tail.kill)
    report = fail_over(target, canaries, timeout_s=240)
    assert report.on_target + report.lost == report.acknowledged > 0
    assert (report.skipped, report.reread) == (0, 0)


def _may(operation: str, resource_type: str, name: str) -> Acl:
    return Acl(
        resource_type=resource_type, name=name, pattern_type="LITERAL", principal=OURS, host="*", operation=operation,
        permission="ALLOW",
    )  # fmt: skip


@pytest.mark.parametrize("migration", ["confluent-cloud"], indirect=True)
def test_setting_beyond_a_bound_blocks_the_plan_and_is_left_out(migration: Migration) -> None:
    small = f"{migration.topic}-small"
    create(migration.source, small, segment_bytes="1048576")
    (block,) = migration.plan().blocks
    assert (block.check, block.object) == ("refused_configs", f"target topic {small!r}")
    assert "'segment.bytes' with value '1048576' is lower than the minimum allowed value of 52428800" in block.evidence
    assert "exclude_configs=['segment.bytes']" in block.remedy
    assert migration.plan(exclude_configs=["segment.bytes"]).blocks == []


@pytest.mark.parametrize("migration", ["confluent-cloud"], indirect=True)
def test_another_number_of_replicas_than_the_one_there_is_blocks_the_plan(migration: Migration) -> None:
    blocks = migration.plan(replication_factor=2).blocks
    assert len(blocks) == 3 and all("Topic replication factor must be 3" in one.evidence for one in blocks)


def settings(cluster: Cluster, topic: str, **changed: str) -> None:
    with ClusterAdmin(config(cluster)) as admin:
        admin.alter_topic_configs(topic, unfenced, changed)


@pytest.mark.parametrize("migration", ["aiven"], indirect=True)
def test_cleaner_takes_nothing_of_topics_that_are_held_by_their_lag_and_all_of_it_afterwards(
    migration: Migration, tmp_path: Path
) -> None:
    """On a cluster that lets no topic's policy change, and whose cleaner comes within seconds."""
    source, target, topics = migration.source, migration.target, (migration.table, migration.both)
    target.obey({"never.cleanup.policy": ";".join(f"{a}>{b}" for a in POLICIES for b in POLICIES if a != b)})
    migration.declare(topics=topics)
    blocked = migration.plan(user="admin").blocks  # the mirror may not alter its scratch topic, and hears of nothing
    assert [(f.check, f.object) for f in blocked] == [("compacted", "2 topics")], blocked
    assert "Altering cleanup.policy from 'delete' to 'compact' is not supported" in blocked[0].evidence
    migration.declare(compacted_hold="lag")
    assert not migration.plan(user="admin").blocks
    for topic in topics:
        update(source, topic, 400, seed=5)
    assert copy(*migration.flow, log=tmp_path / "copy.log") == 0, (tmp_path / "copy.log").read_text()[-3000:]
    for topic in topics:
        settings(source, topic, **CLEANING)
    by_name = [*migration.clusters, "--name", migration.mirror.name]
    assert main(["configs", *by_name, "--yes"]) == 0
    twin = f"{migration.topic}-twin"
    create(target, twin, replicas=3, cleanup_policy="compact")
    update(target, twin, 400, seed=6)
    settings(target, twin, **CLEANING)
    for seed in (7, 8):  # segments are rolled on both sides
        for topic in topics:
            cleaned(source, topic, lambda topic=topic, seed=seed: update(source, topic, 3, seed))  # type: ignore[misc]
        assert copy(*migration.flow, log=tmp_path / "copy.log") == 0, (tmp_path / "copy.log").read_text()[-3000:]
    cleaned(target, twin, lambda: update(target, twin, 3, seed=9))
    assert all(len(read(target, topic)) >= 450 for topic in topics)
    assert migration.setting("target", migration.table, "segment.ms") == CLEANING["segment.ms"]
    assert main(["configs", *by_name, "--after", "--yes"]) == 0
    for topic, policy in zip(topics, ("compact", "compact,delete"), strict=True):
        assert migration.setting("target", topic, "cleanup.policy") == policy
        assert migration.setting("target", topic, "max.compaction.lag.ms") == CLEANING["max.compaction.lag.ms"]
        cleaned(target, topic, lambda topic=topic: update(target, topic, 3, seed=10))  # type: ignore[misc]
        assert len(read(target, topic)) <= KEYS + 15
