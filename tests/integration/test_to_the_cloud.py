"""The whole way from an old cluster with passwords to a managed one with tokens, with schemas and their registry.

Applications write and read by the serializers of confluent-kafka. What they read on the target, from the offset that
they had committed on the source and by the target's registry alone, is what was written: offsets, records, groups and
ids of schemas are proven by that, beside the report that says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console.main import main
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.users import ScramCredential
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.rights import rights_of
from sandbox import Cluster
from sandbox.registry import SchemaRegistry
from sandbox.settings import USERS
from sandbox.strict import StrictCluster
from tests.clouds import own_key
from tests.integration import serializers
from tests.integration.copying import assert_equal, create, ends, wait_until
from tests.integration.plain import Follow, copy
from tests.integration.test_quotas_and_users import SCRAM

pytestmark = [pytest.mark.managed, pytest.mark.in_order("one migration, told from its plan to its last client")]

KINDS = ("avro", "json", "protobuf")
KIND = "msk"
# With IAM it has no ACLs by API, and before Kafka 3.8 no WriteTxnMarkers; and no right on the cluster is given here.
RULES = {"replicas": "3", "unserved": "DescribeAcls CreateAcls DeleteAcls WriteTxnMarkers"}
PARTITIONS = 2
SESSION_S, TOKEN_S, TAIL_S = 10.0, 20, 600.0
BEFORE, WRITTEN, EACH = 20, 50, 5  # records: read before, written before the copy, written in each round of the tail
TRUSTS = ("--accept-ledger-writers", "User:*", "--open-by-default", "true")


class Move:
    """A topic and a group of readers for each kind of serializer."""

    def __init__(
        self, source: Cluster, target: StrictCluster, here: SchemaRegistry, there: SchemaRegistry, directory: Path,
        close: ExitStack,
    ) -> None:  # fmt: skip
        self.source, self.target, self.directory = source, target, directory
        self.old_schemas, self.new_schemas, self.here, self.there = here, there, here.url, there.url
        self.names = {kind: [f"{kind}-{i}" for i in range(WRITTEN)] for kind in KINDS}
        self.mirror = Mirror(
            name="to-the-cloud", source="s", target="t", topics=list(map(self.topic, KINDS)), target_kind=KIND,
            replication_factor=3, groups=list(map(self.group, KINDS)), source_registry=here.url,
            target_registry=there.url, sync_schemas=True, schema_interval_s=5,
        )  # fmt: skip
        self.noted = directory / "tokens"
        self.clusters = [*self._file("source", self.by_scram("mirror")), *self._file("target", self._by_token())]
        self.flow = self.flow_of("mirror", self.mirror)
        self.tail: Follow | None = None
        self._close = close

    def knows(self, schema_id: int) -> bool:
        """Return whether the target's registry has an id."""
        try:
            return bool(self.new_schemas.ask("GET", f"/schemas/ids/{schema_id}/versions"))
        except OSError:
            return False

    def flow_of(self, name: str, mirror: Mirror) -> list[str]:
        (file := self.directory / f"{name}.json").write_text(json.dumps(mirror.to_dict()))
        return [*self.clusters, "--mirror", str(file)]

    def follow(self) -> Follow:
        self.tail = self._close.enter_context(Follow(*self.flow, log=self.directory / "follow.log"))
        return self.tail

    def topic(self, kind: str) -> str:
        return f"cloud-{kind}"

    def group(self, kind: str) -> str:
        return f"cloud-{kind}-readers"

    def by_scram(self, user: str) -> dict[str, str]:
        return self.source.properties(user) | {"sasl.mechanism": "SCRAM-SHA-512"}

    def _by_token(self) -> dict[str, str]:
        where = {"bootstrap.servers": self.target.bootstrap_sasl, "security.protocol": "SASL_PLAINTEXT"}
        config = f"{TOKEN_S} {self.noted}"
        login = {"oauth_cb": "tests.short_tokens.token", "sasl.oauthbearer.config": config}
        return {**where, "sasl.mechanism": "OAUTHBEARER", **login}

    def _file(self, role: str, settings: dict[str, str]) -> tuple[str, str]:
        (file := self.directory / f"{role}.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        return f"--{role}", str(file)

    def admit(self) -> None:
        """Make users and topics on the source, and give rights on the target."""
        old = ClusterAdmin(ClientConfig(self.source.admin_properties(), "source"), timeout_s=120)
        new = ClusterAdmin(ClientConfig(self.target.properties(None), "target"), timeout_s=120)
        with old, new:
            for user in ("mirror", "alice"):
                secret = ScramCredential(mechanism="SCRAM-SHA-512", iterations=4096, password=USERS[user])
                old.create_scram_users({user: [secret]}, unfenced)
            granted = [one.acl for one in rights_of(self.mirror, "target", "User:AKIAEXAMPLE").grants]
            new.create_acls([acl for acl in granted if acl.resource_type != "CLUSTER"], unfenced)
            new.create_acls([_may_all(kind, "cloud-") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")], unfenced)
        for kind in KINDS:
            create(self.source, self.topic(kind), PARTITIONS)

    def client(self, at: Cluster, *, writes: str = "") -> dict[str, str]:
        """Return an application's settings. :param writes: the kind that it writes in transactions."""
        own = {"transactional.id": f"cloud-{writes}-writer"} if writes else {}
        return (self.by_scram("alice") if at is self.source else at.properties("alice")) | own

    def write(self, at: Cluster, registry: str, kind: str, names: list[str]) -> None:
        serializers.write(self.client(at, writes=kind), registry, self.topic(kind), kind, names)

    def read(self, at: Cluster, registry: str, kind: str, count: int) -> list[str]:
        return serializers.read(self.client(at), registry, self.topic(kind), kind, self.group(kind), count)

    def run(self, command: str, *words: str) -> int:
        return main([command, *self.clusters, "--mirror", self.mirror.name, *words])

    def clients(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = self.run("clients", "--json", *words)
        return status, json.loads(capsys.readouterr().out)


def _may_all(resource_type: str, prefix: str) -> Acl:
    return Acl(
        resource_type=resource_type, name=prefix, pattern_type="PREFIXED", principal="User:alice", host="*",
        operation="ALL", permission="ALLOW",
    )  # fmt: skip


@pytest.fixture(scope="module")
def move(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Move]:
    directory = tmp_path_factory.mktemp("cloud")
    with ExitStack() as close:
        start = close.enter_context
        own_key(start(pytest.MonkeyPatch.context()), directory)
        old = start(Cluster("old", version="2.8.2", authorizer=True, overrides=SCRAM, ready_timeout_s=400))
        new = start(StrictCluster("cloud", directory, session_s=SESSION_S, ready_timeout_s=400))
        new.obey(RULES)
        here, there = start(SchemaRegistry("old-schemas")), start(SchemaRegistry("new-schemas"))
        here.register("gone", '"string"')  # the target's own counter would give other ids
        here.ask("DELETE", "/subjects/gone")
        made = Move(old, new, here, there, directory, close)
        made.admit()
        yield made


def test_plan_is_blocked_unless_the_tail_is_to_bring_the_schemas(move: Move, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        move.write(move.source, move.here, kind, move.names[kind])
        assert len(move.read(move.source, move.here, kind, BEFORE)) == BEFORE
    fence = ["--fence", "acl", "--open-by-default", "true"]
    alone = move.flow_of("alone", replace(move.mirror, sync_schemas=False))
    capsys.readouterr()
    assert main(["plan", *alone, *fence]) == 1, "the target's registry knows none of the ids"
    assert "| BLOCK | cutover_schemas |" in capsys.readouterr().out
    assert main(["plan", *move.flow, *fence]) == 0, capsys.readouterr().out
    log = move.directory / "copy.log"
    assert copy(*move.flow, log=log) == 0, log.read_text()[-3000:]


def test_tail_of_ten_minutes_takes_many_tokens(move: Move) -> None:
    tail = move.follow()
    began = time.monotonic()
    tail.says(f"offsets behind in {PARTITIONS * len(KINDS)} partitions")
    tail.says(f"{len(KINDS) + 1} versions of schemas kept level")  # and one that is deleted softly
    late = move.old_schemas.register("late-value", '"bytes"')
    wait_until(lambda: move.knows(late), "a schema follows that came behind the tail's start", 60, 1)
    while time.monotonic() - began < TAIL_S:
        for kind in KINDS:
            more = [f"{kind}-{len(move.names[kind]) + i}" for i in range(EACH)]
            move.write(move.source, move.here, kind, more)
            move.names[kind] += more
            time.sleep(10)
    assert len(move.noted.read_text().split()) > TAIL_S / TOKEN_S
    wait_until(lambda: move.run("verify") == 0, "both sides are equal", poll_s=1)


def test_cutover_proves_all_that_it_moved(move: Move, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = move.source, move.target
    status, inventory = move.clients(capsys)
    assert {one["group"] for one in inventory["readers"]} == set(map(move.group, KINDS))
    wrote = {topic for one in inventory["writers"] for topic in one["topics"]}
    assert wrote == set(map(move.topic, KINDS)) and inventory["waiting"] == []
    (unseen,) = inventory["unseen"]
    assert status == 1 and "since Kafka 3.0" in unseen, unseen
    capsys.readouterr()
    home = str(move.directory)
    assert move.run("cutover", "--home", home, *TRUSTS, "--yes") == 0, capsys.readouterr().out
    assert move.tail is not None and move.tail.process.wait(60) == 0
    *_, page = capsys.readouterr().out.splitlines()
    report = json.loads(Path(page.removeprefix("report: ")).with_name("report.json").read_text())
    held = {kind: ends(source, move.topic(kind), PARTITIONS) for kind in KINDS}
    assert {(row["topic"], row["partition"]): row["end"] for row in report["ends"]} == {
        (move.topic(kind), partition): end for kind in KINDS for partition, (_, _, end) in held[kind].items()
    }
    compared = report["verification"]
    assert len(compared) == PARTITIONS * len(KINDS) and all(row["equal"] for row in compared)
    assert {row["group"] for row in report["groups"] if row["committed"]} == set(map(move.group, KINDS))
    assert {at["action"] for row in report["groups"] for at in row["positions"]} == {"same"}
    assert {(row["topic"], row["verdict"]) for row in report["schemas"]} == {(move.topic(kind), "same") for kind in KINDS}

    status, inventory = move.clients(capsys)
    assert inventory["waiting"] == [f"group {move.group(kind)!r} has not come to the target" for kind in KINDS]
    for kind in KINDS:
        assert_equal(source, target, move.topic(kind), PARTITIONS)
        every = move.names[kind]
        left = move.read(target, move.there, kind, len(every) - BEFORE)
        assert len(set(left)) == len(left) and set(left) <= set(every)
        move.write(target, move.there, kind, ["moved"])
        assert move.read(target, move.there, kind, 1) == ["moved"]
    _, inventory = move.clients(capsys, "--watch", "1")
    assert inventory["waiting"] == [] and inventory["unseen"][0] == unseen
    (hidden,) = inventory["unseen"][1:]
    assert hidden.startswith("some transactional ids of the target, perhaps: ACLs can't be read"), hidden
    assert {one["on_target"] for one in inventory["readers"]} == {"has committed since"}
