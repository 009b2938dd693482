"""Rules that follow a mirror, at real authorizers: who really can read and write on the target, and when."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned

from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost, NoAuthorizer
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.acl_follower import AclFollower, AclFollowReport
from airflow_mirror.sync.acls import AclOptions, AclReport, sync_acls
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.builders import granted_freely, plan_of, rule, topic_plan
from tests.followed import sides
from tests.integration.copying import config, wait_until

PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret", "mirror": "mirror-secret"}
_USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
LOGIN = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    f'required username="admin" password="admin-secret" {_USERS};'
}
CLOSED = LOGIN | {"allow.everyone.if.no.acl.found": "false"}
ALICE, BOB = "User:alice", "User:bob"
_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)  # fmt: skip


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster("rules-source", authorizer=True, overrides=CLOSED, ready_timeout_s=180) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def closed() -> Iterator[Cluster]:
    """A target on which nobody but the super user may do anything by default."""
    with Cluster("rules-closed", authorizer=True, overrides=CLOSED, ready_timeout_s=180) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def opened() -> Iterator[Cluster]:
    """A target on which everybody may do everything, until a rule says otherwise."""
    with Cluster("rules-open", authorizer=True, overrides=LOGIN, ready_timeout_s=180) as cluster:
        yield cluster


class World:
    """A mirror of one topic, with names that no other test uses, between two clusters whose rules are the test's own."""

    def __init__(
        self, source: Cluster, target: Cluster, as_user: str = "admin", is_open: bool | None = False, **fields: Any
    ) -> None:
        self.target, self._is_open = target, is_open
        self.topic = f"ord-{uuid.uuid4().hex[:8]}"
        self.mirror = Mirror(name="m", source="dc1", target="dc2", topics=["ord-.*"], **fields)
        self.there = self.mirror.naming.target_topic(self.topic)
        self.here_admin = ClusterAdmin(ClientConfig(source.admin_properties(), "source"))
        self.root = ClusterAdmin(ClientConfig(target.admin_properties(), "target"))
        self.there_admin = ClusterAdmin(ClientConfig(settings(target, as_user), "target"))

    def __enter__(self) -> World:
        try:
            return self._begin()
        except BaseException:
            self.__exit__()
            raise

    def _begin(self) -> World:
        for admin, name in ((self.here_admin, self.topic), (self.root, self.there)):
            admin.delete_acls(admin.describe_acls(), unfenced)
            wait_until(lambda admin=admin: not admin.describe_acls(), "no rule is left")  # type: ignore[misc]
            admin.create_topics([NewTopicSpec(name, 1, 1)], unfenced)
            wait_until(lambda admin=admin, name=name: bool(admin.topics([name])), "the topic is there")  # type: ignore[misc]
        assert can_write(self.target, "admin", self.there)
        return self

    def __exit__(self, *_: object) -> None:
        for admin in (self.here_admin, self.root, self.there_admin):
            admin.close()

    @property
    def plan(self) -> Plan:
        topic = topic_plan(self.topic, {0: 0}, target_topic=self.there, source_topic_id="id")
        plan = plan_of(self.mirror, topic)
        return replace(plan, known_topics={self.there: "identical"}, positions={f"app-{self.there}": {}})

    def on_source(self, *rules: Acl) -> None:
        """Make these all rules of the source."""
        self.here_admin.delete_acls([r for r in self.here_admin.describe_acls() if r not in rules], unfenced)
        self.here_admin.create_acls(rules, unfenced)
        wait_until(lambda: self.here_admin.describe_acls() == sorted(rules), "the broker has heard of the rules")

    def sync(self, phase: str = "early", **given: Any) -> AclReport:
        how = AclOptions(phase=phase, open_to_all=self._is_open, **given)
        return sync_acls(self.plan, self.here_admin, self.there_admin, how, granted=granted_freely)


def settings(cluster: Cluster, user: str) -> dict[str, str]:
    return cluster.properties("alice") | {"sasl.username": user, "sasl.password": PASSWORDS[user]}


def can_read(cluster: Cluster, user: str, topic: str) -> bool:
    """Whether a user gets a record as a member of the group ``app-<topic>`` and may commit.

    :raises KafkaException: it failed for another reason than a missing right.
    """
    consumer = Consumer({
        **settings(cluster, user), "group.id": f"app-{topic}", "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        consumer.subscribe([topic])
        message = consumer.poll(240)
        assert message is not None
        if (error := message.error()) is not None:
            raise KafkaException(error)
        consumer.commit(offsets=[Assigned(topic, 0, 0)], asynchronous=False)  # the next one reads again
    except KafkaException as e:
        if e.args[0].code() not in _REFUSED:
            raise
        return False
    finally:
        consumer.close()
    return True


def can_write(cluster: Cluster, user: str, topic: str, transactional_id: str | None = None) -> bool:
    """Whether a user's record is acknowledged, or its transaction committed."""
    conf: dict[str, Any] = {**settings(cluster, user), "linger.ms": 0}
    producer = Producer(conf | ({"transactional.id": transactional_id} if transactional_id else {}))
    errors: list[KafkaError | None] = []
    try:
        if transactional_id:
            producer.init_transactions(120)
            producer.begin_transaction()
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(120) == 0
        if errors[0] is None and transactional_id:
            producer.commit_transaction(120)
    except KafkaException as e:
        errors = [e.args[0]]
    assert errors[0] is None or errors[0].code() in _REFUSED, errors[0]
    return errors[0] is None


@pytest.mark.months
def test_readers_read_before_the_cutover_and_writers_write_after_it(source: Cluster, closed: Cluster) -> None:
    """The application has a certificate on the source, and is a user of SCRAM or PLAIN on the target."""
    app, names = "User:CN=app,OU=x", {r"/User:CN=(app|other),.*/": r"User:\1", "User:CN=app,OU=x": ALICE}
    with World(source, closed, policy="prefix", principals=names) as w:
        tx = rule("app-tx", "WRITE", "ALLOW", app, kind="TRANSACTIONAL_ID", pattern="PREFIXED")
        w.on_source(
            rule("ord-", "ALL", "ALLOW", app, pattern="PREFIXED"), tx, rule("*", "READ"),
            rule(f"app-{w.there}", "READ", kind="GROUP"), rule(w.topic, "READ", "DENY", BOB),
            rule(w.topic, "WRITE", "DENY"),  # the fence
        )  # fmt: skip
        assert not can_read(closed, "alice", w.there)
        early = w.sync()
        assert can_read(closed, "alice", w.there)
        assert not can_read(closed, "bob", w.there), "denied on the source, although everybody else may read"
        assert not can_write(closed, "alice", w.there) and not can_write(closed, "alice", w.there, "app-tx-1")
        assert [one.rule.operation for one in early.diff.left_out] == ["WRITE"] and len(early.diff.later) == 2
        w.sync("cutover")
        assert can_write(closed, "alice", w.there) and can_write(closed, "alice", w.there, "app-tx-1")
        assert not can_write(closed, "alice", w.there, "other-tx") and not can_write(closed, "bob", w.there)
        assert not can_read(closed, "bob", w.there)
        there = w.root.describe_acls()
        for phase in ("early", "cutover"):
            assert w.sync(phase).changes == 0
        w.on_source(rule(w.topic, "READ", "DENY", BOB))
        assert len(w.sync().diff.drift) >= 5 and w.root.describe_acls() == there
        # `early` has allowed no id, and would take none away.
        w.sync("cutover", remove=True)
        assert not can_read(closed, "alice", w.there) and not can_write(closed, "alice", w.there)
        assert w.root.describe_acls() == [rule(w.there, "READ", "DENY", BOB)]


@pytest.mark.months
def test_rights_of_readers_follow_for_the_holder_of_the_lease(source: Cluster, closed: Cluster) -> None:
    with World(source, closed) as w, WireCluster(w.root.config) as wire:
        ledger, plan = Ledger(w.root), w.plan
        ledger.create()
        claim(ledger, plan, w.root)
        tokens = [lease.take(wire, w.mirror.name)]

        def follow(**fields: bool) -> AclFollowReport:
            now = replace(plan, mirror=replace(w.mirror, **fields))
            right = WritePermit(lambda: tokens[-1])
            state = state_of(w.there_admin, seen_acls.prefix(w.mirror.name))
            given = sides(now, w.here_admin, w.there_admin, right, state=state, ledger=Ledger(w.there_admin))
            return AclFollower(given).follow(0)

        group = rule(f"app-{w.there}", "READ", "ALLOW", ALICE, kind="GROUP")
        w.on_source(rule(w.topic, "READ", "ALLOW", ALICE), rule(w.topic, "WRITE", "ALLOW", ALICE), group)
        tokens.append(lease.take(wire, w.mirror.name))
        with pytest.raises(LeaseLost):
            tokens.reverse()
            follow()
        assert not can_read(closed, "alice", w.there)
        tokens.reverse()
        assert len(follow().later) == 1
        assert can_read(closed, "alice", w.there) and not can_write(closed, "alice", w.there)
        w.on_source(group)
        assert len(follow().drift) == 1 and can_read(closed, "alice", w.there)
        assert len(follow(remove_acls=True).removed) == 1 and not can_read(closed, "alice", w.there)


@pytest.mark.months
def test_wildcard_of_the_source_opens_no_topic_of_others(source: Cluster, closed: Cluster) -> None:
    with World(source, closed) as w:
        payments = f"payments-{uuid.uuid4().hex[:8]}"
        w.root.create_topics([NewTopicSpec(payments, 1, 1)], unfenced)
        wait_until(lambda: bool(w.root.topics([payments])), "the topic is there")
        assert can_write(closed, "admin", payments)
        group = rule(f"app-{w.there}", "READ", "ALLOW", ALICE, kind="GROUP")
        w.on_source(rule("*", "ALL", "ALLOW", ALICE), group, replace(group, name=f"app-{payments}"))
        w.sync("cutover")
        assert can_read(closed, "alice", w.there) and can_write(closed, "alice", w.there)
        assert not can_read(closed, "alice", payments) and not can_write(closed, "alice", payments)


@pytest.mark.months
def test_first_rule_of_an_open_topic_leaves_the_mirror_its_rights(source: Cluster, opened: Cluster) -> None:
    with World(source, opened, as_user="mirror", is_open=None) as w:
        w.on_source(rule(w.topic, "READ", "ALLOW", ALICE))
        assert can_read(opened, "bob", w.there) and can_write(opened, "mirror", w.there)
        dry = w.sync(dry_run=True)
        assert not w.root.describe_acls() and dry.open_by_default is None, "brokers hide the setting"
        report = w.sync()
        assert report.diff == dry.diff
        assert can_read(opened, "alice", w.there) and not can_read(opened, "bob", w.there)
        assert can_write(opened, "mirror", w.there) and not can_write(opened, "alice", w.there)
        w.there_admin.alter_topic_configs(w.there, unfenced, {"retention.ms": "-1"})
        (line,) = report.diff.lost
        assert w.there in line and "User:alice and the mirror alone" in line
        assert w.sync().changes == 0


@pytest.mark.months
def test_clusters_without_authorizer_are_named(source: Cluster, target_cluster: Cluster) -> None:
    plan = plan_of(Mirror(name="m", source="dc1", target="dc2"))
    here = ClusterAdmin(ClientConfig(source.admin_properties(), "source"))
    with here, ClusterAdmin(replace(config(target_cluster), role="target")) as there:
        with pytest.raises(NoAuthorizer, match="target cluster has no authorizer"):
            sync_acls(plan, here, there, granted=granted_freely)
        report = sync_acls(plan, there, here, AclOptions(own={"target": "User:admin"}), granted=granted_freely)
        assert "no authorizer" in report.notes[0]


@pytest.mark.faults
def test_ten_thousand_rules_survive_a_kill_in_the_middle(source: Cluster, closed: Cluster, tmp_path: Path) -> None:
    with World(source, closed) as w:
        many = [
            rule(w.topic, operation, "ALLOW", f"User:u{i}") for i in range(5000) for operation in ("READ", "DESCRIBE")
        ]
        w.on_source(*many)
        (tmp_path / "plan.json").write_text(w.plan.to_json())
        env = os.environ | {"SOURCE": w.here_admin.config.dump(), "TARGET": w.there_admin.config.dump()}
        command = [sys.executable, "-m", "tests.integration.acls_once", str(tmp_path / "plan.json"), "early"]
        with subprocess.Popen(command, env=env) as once:
            wait_until(lambda: bool(w.root.describe_acls()) or once.poll() is not None, "some rules are there", poll_s=0)
            once.kill()
        left = 10_000 - len(w.root.describe_acls())
        assert 0 < left < 10_000, "killed too late"
        assert len(w.sync().diff.granted) <= left
        assert w.root.describe_acls() == sorted(many) and w.sync().changes == 0
