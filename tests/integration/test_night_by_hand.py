"""A migration and its way back by commands alone, in the order of the runbook, on real brokers with authorizers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.main import main
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from sandbox import Cluster
from tests.integration.copying import assert_equal, create, wait_until, write
from tests.integration.plain import Follow, copy
from tests.unit.schemas.registries import DrivenRegistry, driven

pytestmark = pytest.mark.nights

PARTITIONS = 2
RETENTION_MS = "999999999999"  # 30 years: the records are of 2023
MAY, MAY_NOT = ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
USERS = ("mirror", "alice", "ANONYMOUS")
TRUSTS = ("--accept-ledger-writers", "User:*", "--open-by-default", "true")


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Cluster, Cluster]]:
    with ExitStack() as close:
        yield tuple(  # type: ignore[misc]
            close.enter_context(Cluster(f"night-{n}", authorizer=True, ready_timeout_s=400)) for n in (1, 2)
        )


@contextmanager
def sharing(cluster: Cluster, topic: str) -> Iterator[None]:
    """Have a member in a share group (KIP-932), which commits no offset."""
    consumer = ShareConsumer({**cluster.properties("mirror"), "group.id": "sharers"})
    consumer.subscribe([topic])
    with ClusterAdmin(ClientConfig(cluster.properties("mirror"), "asked")) as admin:

        def is_in_it() -> bool:
            consumer.poll(0.5)
            return any(one.group_id == "sharers" and one.has_members for one in admin.groups(every=True))

        wait_until(is_in_it, "the share group has a member")
    yield
    consumer.close()


@pytest.fixture
def registries() -> Iterator[list[DrivenRegistry]]:
    """The source's, with a schema, and the target's."""
    with driven() as here, driven() as there:
        here.register(7, '"string"', "orders-value", 3)
        yield [here, there]


class Night:
    """One topic and one group on the old side; the mirror is an ordinary user on both."""

    def __init__(self, old: Cluster, new: Cluster, topic: str, directory: Path) -> None:
        self.old, self.new, self.topic, self.directory = old, new, topic, directory
        self.name, self.group = f"m-{topic[-8:]}", f"{topic}-readers"
        self.clusters: list[str] = []
        for role, cluster in (("source", old), ("target", new)):
            file = directory / f"{role}.properties"
            file.write_text("".join(f"{k}={v}\n" for k, v in cluster.properties("mirror").items()))
            self.clusters += [f"--{role}", str(file)]
        self.flow = [*self.clusters, "--name", self.name, "--include", topic, "--groups", self.group]
        create(old, topic, PARTITIONS)
        write(old, topic, 200, seed=1)
        with ClusterAdmin(ClientConfig(old.properties("mirror"), "asked")) as admin:
            admin.alter_topic_configs(topic, unfenced, {"retention.ms": RETENTION_MS}, [])
            admin.create_acls([self.all_for(user) for user in USERS], unfenced)
        self.commit(old, 60)

    def all_for(self, user: str) -> Acl:
        return Acl(
            resource_type="TOPIC", name=self.topic, pattern_type="LITERAL", principal=f"User:{user}", host="*",
            operation="ALL", permission="ALLOW",
        )  # fmt: skip

    def commit(self, at: Cluster, offset: int) -> None:
        with ClusterAdmin(ClientConfig(at.properties("mirror"), "asked")) as admin:
            at_one = {TopicPartition(self.topic, 0): GroupPosition(offset, "note")}
            admin.commit_group_offsets(self.group, at_one, unfenced)

    def position(self, at: Cluster) -> int | None:
        with ClusterAdmin(ClientConfig(at.properties("mirror"), "asked")) as admin:
            found = admin.group_offsets(self.group).get(TopicPartition(self.topic, 0))
            return None if found is None else found.offset

    def application(self, at: Cluster) -> None:
        """Write in a transaction, as one application does wherever it is."""
        producer = Producer({**at.properties("alice"), "transactional.id": f"{self.name}-orders"})
        producer.init_transactions(120)
        producer.begin_transaction()
        producer.produce(self.topic, b"in a transaction", partition=0)
        producer.commit_transaction(120)

    def applications(self, at: Cluster) -> set[int]:
        """What a cluster answers an application that writes."""
        with WireCluster(ClientConfig(at.properties("alice"), "asked")) as wire:
            return set(wire.write_answers([TopicPartition(self.topic, p) for p in range(PARTITIONS)]).values())

    def setting(self, at: Cluster) -> str | None:
        with ClusterAdmin(ClientConfig(at.properties("mirror"), "asked")) as admin:
            return admin.topic_configs([self.topic])[self.topic]["retention.ms"].value

    def run(self, command: str, *words: str) -> int:
        """Run a command about the mirror, by its name; its report's page lies below the test's directory."""
        return main([command, *self.clusters, "--mirror", self.name, *words])

    def ends(self, command: str, *words: str) -> int:
        return self.run(command, "--home", str(self.directory), *TRUSTS, *words)


def test_each_step_of_the_runbook_is_a_command(
    two: tuple[Cluster, Cluster], registries: list[DrivenRegistry], topic_name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    old, new = two
    night = Night(old, new, topic_name, tmp_path)
    night.application(old)
    schemas = [f"--{role}-registry={one.url}" for role, one in zip(("source", "target"), registries, strict=True)]
    assert main(["move-schemas", *schemas, "--hold", "--yes"]) == 0
    assert copy(*night.flow, log=tmp_path / "copy.log") == 0

    with Follow(*night.flow, log=tmp_path / "follow.log") as tail:
        wait_until(lambda: night.run("verify") == 0, "both sides are equal")
        compared = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert compared["records"] == 201 and not compared["spot_check"]["failed"]
        assert night.run("preview", *TRUSTS) == 0
        capsys.readouterr()
        with sharing(old, topic_name):
            assert night.run("clients", "--json") == 0
        inventory = json.loads(capsys.readouterr().out)
        assert [one["group"] for one in inventory["readers"]] == [night.group] and inventory["waiting"] == []
        assert inventory["untold"].endswith("which topics are read by share groups with members: 'sharers'")
        assert night.ends("cutover") == 0
        *_, unchanged, held = capsys.readouterr().out.splitlines()
        assert unchanged == "nothing was changed; --yes does it"
        revision = held.split()[0:2]
        assert night.applications(old) == {MAY}
        write(old, topic_name, 20, seed=2)  # what is still to be compared behind the fence
        assert [one.modes[""] for one in registries] == ["READWRITE", "READONLY"]
        assert night.ends("cutover", "--yes", "--release-registry", *schemas, *revision) == 0
        assert [one.modes[""] for one in registries] == ["READWRITE", "READWRITE"]
        said = capsys.readouterr().out.splitlines()
        assert "cut_over; nobody could write for" in said[0] and said[1] == "the source stays fenced"
        assert said[2] == "compared behind the fence: 20 records in 2 partitions"
        assert said[3].startswith(f"group {night.group}: set (") and Path(said[-1].removeprefix("report: ")).is_file()
        assert tail.process.wait(60) == 0 and "was ended by cutover, and this tail with it" in tail.said
    assert (night.position(new), night.setting(new)) == (60, "-1")
    capsys.readouterr()
    assert night.run("clients", "--json") == 1
    inventory = json.loads(capsys.readouterr().out)
    assert inventory["waiting"] == [
        f"group {night.group!r} has not come to the target", f"{night.name}-orders has not come to the target",
    ]  # fmt: skip
    assert not inventory["unseen"] and [one["kind"] for one in inventory["readers"]] == ["positions only"]
    night.application(new)
    night.commit(new, 61)
    assert night.run("clients", "--watch", "0.5") == 0, "they have come"
    assert "nobody is waited for" in capsys.readouterr().out
    assert (night.applications(old), night.applications(new)) == ({MAY_NOT}, {MAY})
    capsys.readouterr()
    assert night.ends("cutover", "--yes") == 0
    assert "cut_over before; both sides were compared once more" in capsys.readouterr().out
    by_name = [*night.clusters, "--name", night.name]
    assert main(["configs", *by_name, "--after", "--yes"]) == 0
    assert night.setting(new) == night.setting(old) == RETENTION_MS

    assert main(["arm-reverse", *night.clusters, night.name, "--yes"]) == 0
    write(new, topic_name, 100, seed=3, partition=1)
    night.commit(new, 90)
    with Follow(*night.clusters, "--reverse-of", night.name, log=tmp_path / "reverse.log") as back:
        back.says("offsets behind in 2 partitions")
        assert night.setting(old) == "-1", "what is copied back is held"

        def all_is_back() -> bool:
            if main(["verify", *night.clusters, "--reverse-of", night.name]):
                return False  # where nothing has arrived yet nothing is compared
            return bool(json.loads(capsys.readouterr().out.splitlines()[-1])["records"] == 322)

        wait_until(all_is_back, "what was written to the new cluster is on the old one")
        assert night.ends("rollback") == 0
        counted = capsys.readouterr().out.splitlines()
        assert "102 offsets, 101 records" in counted[0] and counted[-2] == "nothing was changed; --yes does it"
        assert night.ends("rollback", "--yes") == 0
        assert back.process.wait(60) == 0 and "was ended by rollback, and this tail with it" in back.said
        assert "the target stays fenced" in capsys.readouterr().out
    assert (night.applications(old), night.applications(new)) == ({MAY}, {MAY_NOT})
    assert night.position(old) == 90
    assert_equal(new, old, topic_name, PARTITIONS)
    assert night.ends("cutover", "--yes") == 2, "it was rolled back: nothing says that it is done"
