"""Every release that the sandbox has: it keeps what it is given, its nodes die and come back, nothing stays behind."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox import Cluster
from sandbox.versions import DEFAULT_VERSION, RELEASES
from tests.integration.copying import wait_until
from tests.listening import listeners

pytestmark = pytest.mark.versions

OLDER = [version for version in RELEASES if version != DEFAULT_VERSION]


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient(cluster.admin_properties())  # held: a future dies with its client

    def is_created() -> bool:
        try:  # before 2.4 there is no default for the number of replicas
            admin.create_topics([NewTopic(topic, 1, cluster.node_count)])[topic].result(60)
        except KafkaException as e:
            if e.args[0].code() == KafkaError._DESTROY_BROKER:  # a young broker hung up: nobody knows what it has done
                return False
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True

    wait_until(is_created, "the topic is created", 60)


def produce(properties: dict[str, str], topic: str, value: bytes) -> None:
    errors: list[KafkaError] = []
    producer = Producer(properties | {"acks": "all", "log_level": "0"})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(240) == 0
    if errors:
        raise KafkaException(errors[0])


def read(properties: dict[str, str], topic: str, last: bytes) -> list[bytes | None]:
    """Return the values of a topic's only partition, up to the one that was written last."""
    consumer = Consumer(properties | {"group.id": uuid.uuid4().hex, "enable.auto.commit": "false"})
    values: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def complete() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
            return values[-1:] == [last]

        wait_until(complete, f"{last!r} in {topic}")
    finally:
        consumer.close()
    return values


def is_refused(properties: dict[str, str], topic: str) -> bool:
    try:
        produce(properties, topic, b"probe")
    except KafkaException as e:
        return bool(e.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    return False


def acl(topic: str, principal: str, operation: kafka_admin.AclOperation) -> kafka_admin.AclBinding:
    return kafka_admin.AclBinding(
        kafka_admin.ResourceType.TOPIC, topic, kafka_admin.ResourcePatternType.LITERAL, principal, "*",
        operation, kafka_admin.AclPermissionType.ALLOW,
    )  # fmt: skip


def javas() -> list[psutil.Process]:
    """Return the brokers and ZooKeepers that this process has started."""
    return [child for child in psutil.Process().children() if "java" in child.name()]


def others(before: list[psutil.Process]) -> Callable[[], list[psutil.Process]]:
    return lambda: [process for process in javas() if process not in before]


@pytest.mark.parametrize(
    ("version", "zookeeper"), [*((version, None) for version in OLDER), ("3.4.1", True), ("3.9.1", True)]
)
def test_killed_broker_of_every_version_comes_back_with_its_data(
    version: str, zookeeper: bool | None, topic_name: str
) -> None:
    started = others(javas())
    with Cluster("old", version=version, zookeeper=zookeeper) as cluster:
        processes = started()
        assert len(processes) == (2 if zookeeper or RELEASES[version].needs_zookeeper else 1)
        opened = listeners(process.pid for process in processes)
        assert len(opened) == 2, "broker, and controller or ZooKeeper"
        assert all(listener.is_local for listener in opened)
        create(cluster, topic_name)
        produce(cluster.properties(), topic_name, b"before")
        cluster.kill(1)
        cluster.restart(1)
        cluster.pause(1)
        cluster.resume(1)
        produce(cluster.properties(), topic_name, b"after")
        assert read(cluster.properties(), topic_name, b"after") == [b"before", b"after"]
        cluster.shut_down(1)
        cluster.restart(1)
        assert read(cluster.properties(), topic_name, b"after") == [b"before", b"after"]
        assert re.search(rf"Kafka version ?: {re.escape(version)} ", cluster.log_path(1).read_text())
        directory = cluster.directory
    assert not started() and not any(process.is_running() for process in processes) and not directory.exists()


@pytest.mark.parametrize("version", ["0.11.0.3", "1.1.1", "2.1.1", "2.8.2", "3.4.1"])
def test_three_old_nodes_with_authorizer_lose_one_and_obey_acls(version: str, topic_name: str) -> None:
    with Cluster("old-secured", nodes=3, authorizer=True, version=version) as cluster:
        admin = AdminClient(cluster.admin_properties())
        create(cluster, topic_name)
        alice, mirror = cluster.properties("alice"), cluster.properties("mirror")
        produce(alice, topic_name, b"while nothing is forbidden")
        rules = [
            acl(topic_name, "User:mirror", kafka_admin.AclOperation.WRITE),
            acl(topic_name, "User:mirror", kafka_admin.AclOperation.READ),
            # 0.11 hides a topic from those who may not see it, and their producers wait for it.
            acl(topic_name, "User:*", kafka_admin.AclOperation.DESCRIBE),
        ]
        for future in admin.create_acls(rules).values():
            future.result(60)
        for refused in (alice, cluster.properties()):
            wait_until(lambda user=refused: is_refused(user, topic_name), "the leader obeys the rules")
        cluster.kill(2)
        produce(mirror, topic_name, b"mirror may")
        cluster.restart(2)
        wait_until(lambda: len(admin.list_topics(timeout=60).brokers) == 3, "all know that the node is back")
        produce(cluster.admin_properties(), topic_name, b"admin may anything")
        # Rules need a moment to spread: a probe may have been let in before.
        values = read(mirror, topic_name, b"admin may anything")
        assert [v for v in values if v != b"probe"] == [
            b"while nothing is forbidden",
            b"mirror may",
            b"admin may anything",
        ]
