"""Quotas and SCRAM users that follow a mirror, at real brokers: they are in force, and they log in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from airflow_mirror.common.policy import Principals
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.kafka.users import ScramCredential
from airflow_mirror.sync.quotas import sync_quotas
from airflow_mirror.sync.users import sync_users
from sandbox import Cluster
from tests.integration.copying import wait_until

pytestmark = pytest.mark.nights

of = QuotaEntity.of
OWN = ("User:mirror", "User:mirror")
SCRAM = {
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster("users-target", authorizer=True, overrides=SCRAM, ready_timeout_s=180) as one:
        yield one


@pytest.fixture(scope="module")
def target(cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(ClientConfig(cluster.admin_properties(), "target"), timeout_s=60) as admin:
        yield admin


@pytest.fixture
def source(source_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(ClientConfig(source_cluster.properties(), "source"), timeout_s=60) as admin:
        left = {one: dict.fromkeys(values) for one, values in admin.quotas().items()}
        admin.alter_quotas(left, unfenced)
        yield admin
        admin.alter_quotas({one: dict.fromkeys(values) for one, values in admin.quotas().items()}, unfenced)


def can_log_in(cluster: Cluster, user: str, password: str) -> bool:
    errors: list[int] = []
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap_sasl, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password,
        "error_cb": lambda error: errors.append(error.code()),
    })  # fmt: skip
    while KafkaError._AUTHENTICATION not in errors:
        try:
            producer.list_topics(timeout=1)
            return True
        except KafkaException:
            producer.poll(0.1)
    return False


def test_quotas_of_every_kind_arrive_under_mapped_names(source: ClusterAdmin, target: ClusterAdmin) -> None:
    slow = of(client_id="slow")
    wanted = {
        of(user="alice"): {"request_percentage": 55.0}, of(user=None): {"consumer_byte_rate": 1e9},
        of(user="alice", client_id=None): {"producer_byte_rate": 1e8}, slow: {"producer_byte_rate": 1000.0},
        of(ip="10.9.8.7"): {"connection_creation_rate": 5.0}, of(ip=None): {"connection_creation_rate": 1e6},
        of(user="CN=app,OU=x", client_id="c"): {"consumer_byte_rate": 15.0},
    }  # fmt: skip
    source.alter_quotas({**wanted, of(user="mirror"): {"producer_byte_rate": 1.0}}, unfenced)
    wait_until(lambda: len(source.quotas()) == 8, "the source has its quotas")
    names = Principals({"User:CN=app,OU=x": "User:app"})
    dry = sync_quotas(source, target, names, *OWN, unfenced, dry_run=True)
    assert not target.quotas() and dry.changes == 7
    assert sync_quotas(source, target, names, *OWN, unfenced).diff == dry.diff
    there = target.quotas()
    assert there.pop(of(user="app", client_id="c")) == wanted.pop(of(user="CN=app,OU=x", client_id="c"))
    assert there == wanted
    assert sync_quotas(source, target, names, *OWN, unfenced).changes == 0
    source.alter_quotas({slow: {"producer_byte_rate": None}, of(user="alice"): {"request_percentage": 60.0}}, unfenced)
    wait_until(lambda: slow not in source.quotas(), "it is gone")
    assert sync_quotas(source, target, names, *OWN, unfenced).diff.drift == {slow: {"producer_byte_rate": 1000.0}}
    assert target.quotas()[of(user="alice")] == {"request_percentage": 60.0}
    sync_quotas(source, target, names, *OWN, unfenced, remove=True)
    assert slow not in target.quotas() and len(target.quotas()) == 6
    target.alter_quotas({one: dict.fromkeys(values) for one, values in target.quotas().items()}, unfenced)


def test_user_logs_in_with_the_new_secret_and_nobody_else_does(
    cluster: Cluster, source: ClusterAdmin, target: ClusterAdmin
) -> None:
    old = ScramCredential(mechanism="SCRAM-SHA-512", iterations=4096, password="the-old-one")
    source.create_scram_users({"CN-app": [old], "carol": [old]}, unfenced)
    wait_until(lambda: {"CN-app", "carol"} <= source.scram_users().keys(), "the source has its users")
    names = Principals({"User:CN-app": "User:app"})
    listed = sync_users(source, target, names, *OWN, unfenced)
    assert {row.target: row.action for row in listed.rows} == {"app": "needs a secret", "carol": "needs a secret"}
    assert not target.scram_users()
    assert not can_log_in(cluster, "app", "a-new-one")
    report = sync_users(source, target, names, *OWN, unfenced, secret_of={"app": "a-new-one"}.get)
    assert report.changes == 1 and target.scram_users() == {"app": {"SCRAM-SHA-512": 4096}}
    assert can_log_in(cluster, "app", "a-new-one") and not can_log_in(cluster, "app", "the-old-one")
    again = sync_users(source, target, names, *OWN, unfenced, secret_of={"app": "another"}.get)
    assert again.changes == 0 and can_log_in(cluster, "app", "a-new-one")
