"""ClusterAdmin against old brokers: the same calls give the same answers, or the answer that such a broker can give."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, GroupActive, MissingRight, RequestRefused
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.errors import ApiNotServed, UnknownTopic
from sandbox import Cluster
from tests.builders import rule
from tests.waiting import wait_until

pytestmark = pytest.mark.versions

VERSIONS = ("0.11.0.3", "1.1.1", "2.1.1", "2.8.2", "3.4.1")  # 3.4.1 with ZooKeeper here, as the older ones
DENY = rule("orders", "WRITE", "DENY")
PREFIX = rule("ord", "READ", "ALLOW", "User:alice", pattern="PREFIXED")


@pytest.fixture(scope="module", params=VERSIONS)
def old(request: pytest.FixtureRequest) -> Iterator[Any]:
    name = f"admin-{request.param.replace('.', '-')}"
    # The sandbox leaves open what has no rule; here nobody may do what no rule allows.
    closed = {"allow.everyone.if.no.acl.found": "false"}
    with Cluster(
        name, overrides=closed, authorizer=True, version=request.param, zookeeper=True, ready_timeout_s=400
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(old: Any) -> Iterator[Any]:
    with ClusterAdmin(ClientConfig(old.admin_properties(), "source"), timeout_s=120) as admin:
        yield admin


@pytest.fixture
def topic(admin: Any) -> Iterator[Any]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopicSpec(name, 2, 1, {"retention.ms": "-1", "segment.bytes": "2000000"})], unfenced)
    wait_until(lambda: name in admin.topics([name]))
    yield name
    admin.delete_topics([name], unfenced)


def since(cluster: Any, *number: Any) -> Any:
    return cluster.release.number >= number


def test_topics_are_created_described_refused_and_deleted(admin: Any, topic: Any, old: Any) -> None:
    info = admin.topics([topic, "absent"])[topic]
    assert (info.partitions, info.replication_factor) == (2, 1)
    assert len(info.topic_id) == (22 if since(old, 2, 8) else 0)
    assert topic in admin.topic_names() and admin.topics() == admin.topics(admin.topic_names())
    assert admin.broker_count() == 1 and len(admin.cluster_id()) == 22
    with pytest.raises(BrokerError, match=f"create topic '{topic}'.*TOPIC_ALREADY_EXISTS.*already exists"):
        admin.create_topics([NewTopicSpec(topic, 1, 1)], unfenced)
    with pytest.raises(RequestRefused, match="create topic 'x'.*INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopicSpec("x", 1, 9)], unfenced)
    # Before 2.0 the code is UNKNOWN_SERVER_ERROR; the words are the same.
    with pytest.raises((RequestRefused, BrokerError), match="create topic 'x'.*Not a number of type LONG"):
        admin.create_topics([NewTopicSpec("x", 1, 1, {"retention.ms": "long"})], unfenced)
    with pytest.raises(BrokerError, match="delete topic 'absent'.*UNKNOWN_TOPIC_OR_PARTITION"):
        admin.delete_topics(["absent"], unfenced)


def test_partitions_grow_where_the_broker_can(admin: Any, topic: Any, old: Any) -> None:
    if not since(old, 1, 0):
        with pytest.raises(ApiNotServed, match="CreatePartitions"):
            admin.grow_partitions(topic, 5, unfenced)
        return
    admin.grow_partitions(topic, 5, unfenced)
    wait_until(lambda: admin.topics([topic])[topic].partitions == 5)
    with pytest.raises(RequestRefused, match="INVALID_PARTITIONS"):
        admin.grow_partitions(topic, 3, unfenced)


def test_changing_one_override_keeps_the_others(admin: Any, topic: Any, old: Any) -> None:
    unset = "DEFAULT_CONFIG" if since(old, 1, 1) else "UNKNOWN_CONFIG"
    before = admin.topic_configs([topic])[topic]
    assert (before["retention.ms"].value, before["retention.ms"].source) == ("-1", "DYNAMIC_TOPIC_CONFIG")
    assert before["cleanup.policy"].source == unset
    admin.alter_topic_configs(topic, unfenced, set={"max.message.bytes": "5000000"}, delete={"retention.ms"})
    wait_until(lambda: admin.topic_configs([topic])[topic]["retention.ms"].source == unset)
    after = admin.topic_configs([topic])[topic]
    assert (after["max.message.bytes"].value, after["segment.bytes"].value) == ("5000000", "2000000")
    with pytest.raises(RequestRefused, match=f"alter configs of topic '{topic}'"):
        admin.alter_topic_configs(topic, unfenced, set={"retention.ms": "long"})
    assert admin.topic_configs([topic])[topic]["segment.bytes"].value == "2000000"
    (broker,) = admin.broker_configs().values()
    assert broker["log.dirs"].source == "STATIC_BROKER_CONFIG"


def test_offsets_by_every_kind_of_question(admin: Any, topic: Any, old: Any) -> None:
    producer = Producer(old.admin_properties())
    for i in range(100):
        producer.produce(topic, b"v%d" % i, partition=0, timestamp=1000 + i)
    assert producer.flush(240) == 0
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.delete_records({p0: 10}, unfenced) == {p0: 10}
    assert admin.offsets([p0, p1], "earliest") == {p0: 10, p1: 0}
    assert admin.offsets([p0, p1], "latest") == admin.offsets([p0, p1], "latest_committed") == {p0: 100, p1: 0}
    assert admin.offsets([p0, p1], 1050) == {p0: 50, p1: -1}
    with pytest.raises(RequestRefused, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({p0: 1000}, unfenced)


def test_groups_are_listed_read_set_and_forgotten(admin: Any, topic: Any, old: Any) -> None:
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    groups = [f"{topic}-{n}" for n in range(120)]
    assert admin.group_states(groups[:1]) == {groups[0]: "Dead"} and admin.group_offsets(groups[0]) == {}
    for n, group in enumerate(groups):
        admin.commit_group_offsets(group, {p0: GroupPosition(n, "état"), p1: GroupPosition(7)}, unfenced)
    expected = {g: {p0: GroupPosition(n, "état"), p1: GroupPosition(7)} for n, g in enumerate(groups)}
    assert admin.groups_offsets(groups) == expected
    assert admin.group_states(groups) == dict.fromkeys(groups, "Empty")
    assert {(g, "Empty") for g in groups} <= {(g.group_id, g.state) for g in admin.groups()}
    if since(old, 2, 4):
        admin.forget_group_offsets(groups[0], [p1], unfenced)
        assert admin.group_offsets(groups[0]) == {p0: GroupPosition(0, "état")}
    else:
        with pytest.raises(ApiNotServed, match="OffsetDelete"):
            admin.forget_group_offsets(groups[0], [p1], unfenced)


def test_group_with_members_refuses_positions_until_they_left(admin: Any, topic: Any, old: Any) -> None:
    group, p0 = f"live-{topic}", TopicPartition(topic, 0)
    consumer = Consumer({**old.admin_properties(), "group.id": group})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment())
        wait_until(lambda: admin.group_states([group]) == {group: "Stable"})
        with pytest.raises(GroupActive, match=f"'{group}'"):
            admin.commit_group_offsets(group, {p0: GroupPosition(3)}, unfenced)
    finally:
        consumer.close()
    wait_until(lambda: admin.group_states([group]) == {group: "Empty"})
    admin.commit_group_offsets(group, {p0: GroupPosition(3)}, unfenced)
    assert admin.group_offsets(group) == {p0: GroupPosition(3)}


def test_rules_are_added_found_and_removed_exactly(admin: Any, old: Any) -> None:
    admin.create_acls([DENY], unfenced)
    wait_until(lambda: admin.describe_acls(resource_type="TOPIC") == [DENY])
    assert admin.describe_acls(name="orders", pattern_type="MATCH") == [DENY] and admin.describe_acls(name="other") == []
    if since(old, 2, 0):
        admin.create_acls([PREFIX], unfenced)
        wait_until(lambda: admin.describe_acls(name="orders", pattern_type="MATCH") == sorted([DENY, PREFIX]))
        assert admin.delete_acls([PREFIX], unfenced) == [PREFIX]
    else:
        with pytest.raises(ApiNotServed, match="CreateAcls"):
            admin.create_acls([PREFIX], unfenced)
    assert admin.delete_acls([DENY], unfenced) == [DENY]
    wait_until(lambda: admin.describe_acls(resource_type="TOPIC") == [])


def test_what_a_principal_may_not_do_is_said(admin: Any, old: Any) -> None:
    admin.create_topics([NewTopicSpec("secret", 1, 1)], unfenced)
    wait_until(lambda: "secret" in admin.topics(["secret"]))
    with ClusterAdmin(ClientConfig(old.properties("alice"), "source"), timeout_s=120) as alice:
        of_topics = [
            lambda: alice.topics(["secret"]),
            lambda: alice.topic_configs(["secret"]),
            lambda: alice.offsets([TopicPartition("secret", 0)]),
            lambda: alice.delete_topics(["secret"], unfenced),
            lambda: alice.alter_topic_configs("secret", unfenced, set={"retention.ms": "1"}),
        ]
        if not since(old, 1, 0):  # such a broker hides a topic that may not be seen: it is unknown there
            assert of_topics.pop(0)() == {}
            for hidden in of_topics:
                with pytest.raises((BrokerError, UnknownTopic), match="UNKNOWN_TOPIC_OR_PARTITION|no topic or partition"):
                    hidden()
            of_topics = []
        for refused in (
            *of_topics,
            lambda: alice.describe_acls(resource_type="TOPIC"),
            lambda: alice.create_acls([DENY], unfenced),
            lambda: alice.delete_acls([DENY], unfenced),
            lambda: alice.group_offsets("g"),
            lambda: alice.commit_group_offsets("g", {TopicPartition("secret", 0): GroupPosition(0)}, unfenced),
        ):
            with pytest.raises(MissingRight, match="AUTHORIZATION_FAILED.*User:alice lacks"):
                refused()
    admin.delete_topics(["secret"], unfenced)
