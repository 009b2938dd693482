"""What the pages say that MirrorMaker 2 does with rights, users, secrets and the defaults of a cluster.

Both clusters have an authorizer; MirrorMaker comes over TLS, as a super user, with secrets of three providers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.kafka.users import ScramCredential
from sandbox import Cluster
from sandbox.process import Child
from sandbox.settings import SUPER_USER, USERS
from tests.builders import rule
from tests.integration.copying import config, ends, wait_until
from tests.integration.mirrormaker_once import running, settings_of, write_file
from tests.integration.parity.test_secured import SecuredCluster

pytestmark = pytest.mark.parity

WAIT_S = 240.0
PROVIDERS = "org.apache.kafka.common.config.provider."
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="{}";'
HERE = {
    "literal": rule("orders", "READ", principal="User:alice"), "all": rule("orders", "ALL", principal="User:bob"),
    "write": rule("orders", "WRITE", principal="User:carol"),
    "never": rule("orders", "WRITE", "DENY", principal="User:dan"),
    "pattern": rule("ord", "READ", principal="User:erin", pattern="PREFIXED"),
    "wildcard": rule("*", "READ", principal="User:fay"),
    "group": rule("readers", "READ", principal="User:alice", kind="GROUP"),
}  # fmt: skip


class World(NamedTuple):
    here: ClusterAdmin
    there: ClusterAdmin
    target: Cluster
    child: Child
    log: Path

    def rights(self) -> set[tuple[str, ...]]:
        """Those of topics on the target: name, kind of name, principal, operation, permission."""
        return {
            (one.name, one.pattern_type, one.principal, one.operation, one.permission)
            for one in self.there.describe_acls() if one.resource_type == "TOPIC"
        }  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The source keeps records for ever by its own default, the target deletes what is old."""
    directory = tmp_path_factory.mktemp("mm2")
    with ExitStack() as close:
        source, target = (
            close.enter_context(SecuredCluster(name, tmp_path_factory.mktemp(name), own, ready_timeout_s=240))
            for name, own in (
                ("primary", {"log.roll.ms": "30000000", "log.retention.ms": "-1"}),
                ("backup", {"log.roll.ms": "40000000", "log.index.interval.bytes": "8192"}),
            )
        )  # fmt: skip
        here, there = (close.enter_context(ClusterAdmin(config(cluster), 120)) for cluster in (source, target))
        fill(source, here)
        close.enter_context(pytest.MonkeyPatch.context()).setenv("MIRROR_USER", SUPER_USER)
        settings = settings_of("A", "orders", source, target, "B")
        settings |= {"S->B.use.defaults.from": "source", "S->B.enabled": "true", "S->B.topics": "orders"}
        for alias, cluster, password in (
            ("A", source, f"${{file:{directory}/secrets:password}}"),
            ("S", source, f"${{file:{directory}/secrets:password}}"),
            ("B", target, f"${{dir:{directory}/more:password}}"),
        ):  # fmt: skip
            authority = directory / f"{alias}.pem"
            authority.write_text(cluster.settings["ssl.ca.pem"])
            settings |= {
                f"{alias}.{key}": value for key, value in {
                    "bootstrap.servers": cluster.bootstrap_sasl, "security.protocol": "SASL_SSL",
                    "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority),
                    "sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN.format("${env:MIRROR_USER}", password),
                }.items()
            }  # fmt: skip
        (directory / "secrets").write_text(f"password={USERS[SUPER_USER]}\n")
        (directory / "more").mkdir()
        (directory / "more" / "password").write_text(USERS[SUPER_USER])
        settings |= {
            "clusters": "A, S, B", "config.providers": "file, dir, env",
            **{
                f"config.providers.{name}.class": f"{PROVIDERS}{kind}ConfigProvider"
                for name, kind in (("file", "File"), ("dir", "Directory"), ("env", "EnvVar"))
            },
            "A->B.topics": ".*", "A->B.sync.topic.configs.enabled": "true", "sync.topic.acls.enabled": "true",
            "sync.topic.acls.interval.seconds": "1", "sync.topic.configs.interval.seconds": "1",
            "emit.heartbeats.enabled": "false", "emit.checkpoints.enabled": "false",
            "S->B.sync.topic.acls.enabled": "false",
        }  # fmt: skip
        child = close.enter_context(running(write_file(settings, directory)))
        yield World(here, there, target, child, directory / "mirrormaker.log")


def fill(source: Cluster, here: ClusterAdmin) -> None:
    here.create_topics([NewTopicSpec(topic, 1, 1) for topic in ("orders", "old")], unfenced)
    wait_until(lambda: len(here.topics(["orders", "old"])) == 2, "they are there")
    producer = Producer({"bootstrap.servers": source.bootstrap})
    for number in range(10):
        producer.produce("orders", b"%d" % number)
        producer.produce("old", b"%d" % number, timestamp=1_500_000_000_000)
    assert producer.flush(240) == 0
    here.create_acls([*HERE.values()], unfenced)
    one = ScramCredential(mechanism="SCRAM-SHA-512", iterations=4096, password="never-mind-it")
    here.create_scram_users({"gail": [one]}, unfenced)
    here.alter_quotas({QuotaEntity.of(user="gail"): {"consumer_byte_rate": 1e6}}, unfenced)
    wait_until(lambda: "gail" in here.scram_users() and len(here.quotas()) == 1, "the source has a user with a quota")


def test_it_logs_in_over_tls_by_javas_settings_with_secrets_of_three_providers(world: World) -> None:
    wait_until(
        lambda: "A.orders" in world.there.topic_names() and ends(world.target, "A.orders")[0][2] == 10,
        f"its records arrive: {world.log.read_text()[-2000:]}", WAIT_S, 0.5,
    )  # fmt: skip


def test_rights_of_literal_topics_are_added_without_write_and_never_removed(world: World) -> None:
    wanted = {
        ("A.orders", "LITERAL", "User:alice", "READ", "ALLOW"), ("A.orders", "LITERAL", "User:bob", "READ", "ALLOW"),
        ("A.orders", "LITERAL", "User:dan", "WRITE", "DENY"),
    }  # fmt: skip
    wait_until(lambda: wanted <= world.rights(), f"they are there: {world.log.read_text()[-2000:]}", WAIT_S, 0.5)
    world.here.delete_acls([HERE["literal"]], unfenced)
    world.here.create_acls([rule("orders", "DESCRIBE", principal="User:hana")], unfenced)
    later = ("A.orders", "LITERAL", "User:hana", "DESCRIBE", "ALLOW")
    wait_until(lambda: later in world.rights(), "a later pass is over", WAIT_S, 0.5)
    assert {one for one in world.rights() if one[0] == "A.orders"} == {*wanted, later}
    assert not {one for one in world.rights() if one[2] in ("User:carol", "User:erin")}
    assert not [one for one in world.there.describe_acls() if one.resource_type == "GROUP"]


def test_a_wildcard_becomes_the_right_to_a_topic_that_nobody_has(world: World) -> None:
    wanted = ("A.*", "LITERAL", "User:fay", "READ", "ALLOW")
    wait_until(lambda: wanted in world.rights(), "it is there", WAIT_S, 0.5)


def test_users_and_quotas_stay_behind(world: World) -> None:
    wait_until(lambda: "A.orders" in {one[0] for one in world.rights()}, "rights have come", WAIT_S, 0.5)
    assert (world.there.scram_users(), world.there.quotas()) == ({}, {})


@pytest.mark.parametrize(("topic", "interval"), [("A.orders", "8192"), ("S.orders", "4096")])
def test_use_defaults_from_says_whose_default_a_topic_gets(world: World, topic: str, interval: str) -> None:
    """But nobody gets what the source's brokers have in their own file, as they have a segment.ms."""
    wait_until(lambda: topic in world.there.topic_names(), "it is there", WAIT_S, 0.5)
    configs = world.there.topic_configs([topic])[topic]
    assert (configs["index.interval.bytes"].value, configs["segment.ms"].value) == (interval, "40000000")


def test_old_records_are_deleted_as_soon_as_they_arrive(world: World) -> None:
    """The source keeps them by its default, which does not come along."""
    wait_until(
        lambda: "A.old" in world.there.topic_names() and ends(world.target, "A.old")[0][2] == 10, "they come", WAIT_S, 0.5
    )
    wait_until(lambda: ends(world.target, "A.old")[0][0] == 10, "they are deleted", WAIT_S, 0.5)
    at = TopicPartition("old", 0)
    assert world.here.offsets([at], "earliest")[at] == 0
