"""ClusterAdmin against real brokers: what it reads is what is there, and each refusal has its own error."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPosition

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import (
    AuthenticationFailed,
    BrokerError,
    ClusterUnreachable,
    GroupActive,
    InputError,
    MissingRight,
    MissingSetting,
    RequestRefused,
)
from airflow_mirror.kafka import session
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.errors import UnknownTopic
from sandbox import Cluster
from tests.builders import rule
from tests.waiting import wait_until


@pytest.fixture
def admin(source_cluster: Cluster) -> Iterator[Any]:
    # A young cluster creates its offsets topic at the first commit: on a slow machine that takes long.
    with ClusterAdmin(ClientConfig({"bootstrap.servers": source_cluster.bootstrap}, "source"), timeout_s=120) as admin:
        yield admin


@pytest.fixture
def topic(admin: Any, topic_name: str) -> Iterator[Any]:
    admin.create_topics([NewTopicSpec(topic_name, 2, 1, {"retention.ms": "-1", "segment.bytes": "2000000"})], unfenced)
    wait_until(lambda: topic_name in admin.topics([topic_name]))
    yield topic_name
    admin.delete_topics([topic_name], unfenced)


def produce(cluster: Any, topic: Any, count: Any, partition: int = 0, first_ms: int = 1000) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for i in range(count):
        producer.produce(topic, b"v%d" % i, partition=partition, timestamp=first_ms + i)
    assert producer.flush(240) == 0


def test_existing_topic_is_described_and_unknown_one_is_absent(admin: Any, topic: Any) -> None:
    found = admin.topics([topic, "no-such-topic"])
    assert list(found) == [topic]
    assert (found[topic].partitions, found[topic].replication_factor, len(found[topic].topic_id)) == (2, 1, 22)
    assert topic in admin.topic_names() and "no-such-topic" not in admin.topic_names()
    assert admin.broker_count() == 1 and len(admin.cluster_id()) == 22


def test_a_recreated_topic_has_another_id(admin: Any, topic: Any) -> None:
    before = admin.topics([topic])[topic].topic_id
    admin.delete_topics([topic], unfenced)
    wait_until(lambda: not admin.topics([topic]))
    admin.create_topics([NewTopicSpec(topic, 1, 1)], unfenced)
    wait_until(lambda: admin.topics([topic]))
    assert admin.topics([topic])[topic].topic_id != before


def test_configs_tell_who_set_them_and_change_one_by_one(admin: Any, topic: Any) -> None:
    configs = admin.topic_configs([topic])[topic]
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("-1", "DYNAMIC_TOPIC_CONFIG")
    assert configs["cleanup.policy"].is_default
    admin.alter_topic_configs(topic, unfenced, set={"max.message.bytes": "5000000"}, delete={"retention.ms"})
    wait_until(lambda: admin.topic_configs([topic])[topic]["retention.ms"].is_default)
    after = admin.topic_configs([topic])[topic]
    assert (after["max.message.bytes"].value, after["segment.bytes"].value) == ("5000000", "2000000")


def test_offsets_by_every_kind_of_question(admin: Any, topic: Any, source_cluster: Cluster) -> None:
    produce(source_cluster, topic, 100)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.delete_records({p0: 10}, unfenced) == {p0: 10}
    assert admin.offsets([p0, p1], "earliest") == {p0: 10, p1: 0}
    assert admin.offsets([p0, p1], "latest") == {p0: 100, p1: 0}
    assert admin.offsets([p0, p1], 1050) == {p0: 50, p1: -1}
    assert admin.offsets([], "latest") == {}


def test_the_stable_end_waits_for_an_open_transaction(admin: Any, topic: Any, source_cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(240)
    producer.begin_transaction()
    for i in range(7):
        producer.produce(topic, b"v%d" % i, partition=0)
    producer.flush(240)
    p0 = TopicPartition(topic, 0)
    assert (admin.offsets([p0], "latest")[p0], admin.offsets([p0], "latest_committed")[p0]) == (7, 0)
    producer.commit_transaction(240)
    wait_until(lambda: admin.offsets([p0], "latest_committed")[p0] == 8)


def test_each_broker_tells_its_free_disk(admin: Any) -> None:
    usable = admin.usable_bytes()
    assert usable.keys() == admin.broker_configs().keys() and all(0 < found < 1 << 60 for found in usable.values())


def test_partitions_grow_and_never_shrink(admin: Any, topic: Any) -> None:
    admin.grow_partitions(topic, 5, unfenced)
    wait_until(lambda: admin.topics([topic])[topic].partitions == 5)
    with pytest.raises(RequestRefused, match=f"grow to 3 partitions topic '{topic}'.*INVALID_PARTITIONS"):
        admin.grow_partitions(topic, 3, unfenced)


def test_every_refusal_names_object_and_cause(admin: Any, topic: Any) -> None:
    with pytest.raises(BrokerError, match=f"create topic '{topic}'.*already exists") as e:
        admin.create_topics([NewTopicSpec(topic, 1, 1)], unfenced)
    assert e.value.code == 36
    with pytest.raises(RequestRefused, match="create topic 'x'.*INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopicSpec("x", 1, 9)], unfenced)
    with pytest.raises(RequestRefused, match="Unknown topic config name: no.such"):
        admin.create_topics([NewTopicSpec("x", 1, 1, {"no.such": "1"})], unfenced)
    with pytest.raises(BrokerError, match="read configs of topic 'no-such-topic'"):
        admin.topic_configs([topic, "no-such-topic"])
    with pytest.raises(UnknownTopic, match=f"source cluster.*{topic}-9"):
        admin.offsets([TopicPartition(topic, 0), TopicPartition(topic, 9)])
    with pytest.raises(RequestRefused, match=f"DeleteRecords of {topic}-0.*OFFSET_OUT_OF_RANGE"):
        admin.delete_records({TopicPartition(topic, 0): 1}, unfenced)


def test_group_positions_with_their_metadata_come_back_as_committed(admin: Any, topic: Any) -> None:
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group = f"group-of-{topic}"
    wanted = {p0: GroupPosition(0, "état=1"), p1: GroupPosition(7)}
    assert admin.group_states([group]) == {group: "Dead"} and admin.group_offsets(group) == {}
    admin.commit_group_offsets(group, wanted, unfenced)
    assert admin.group_offsets(group) == wanted
    assert admin.group_states([group]) == {group: "Empty"}
    assert (group, "Empty") in [(g.group_id, g.state) for g in admin.groups()]


def test_offset_pending_in_open_transaction_is_waited_for(
    admin: Any, topic: Any, source_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNSTABLE_OFFSET_COMMIT is an error when time is up; the older position is never returned."""
    settings = {"bootstrap.servers": source_cluster.bootstrap}
    group, p0 = f"eos-{topic}", TopicPartition(topic, 0)
    admin.commit_group_offsets(group, {p0: GroupPosition(3)}, unfenced)
    producer = Producer({**settings, "transactional.id": group, "transaction.timeout.ms": 300_000})
    producer.init_transactions(240)
    producer.begin_transaction()
    member = Consumer({**settings, "group.id": group})
    producer.send_offsets_to_transaction([KafkaPosition(topic, 0, 5)], member.consumer_group_metadata(), 30)
    with ClusterAdmin(ClientConfig(settings, "source"), timeout_s=60) as impatient:
        impatient.groups()  # the first contact with a slow broker may take long
        monkeypatch.setattr(impatient, "timeout_s", 2.0)
        with pytest.raises(BrokerError, match=f"'{group}'.*UNSTABLE_OFFSET_COMMIT .88.: at {topic}-0"):
            impatient.group_offsets(group)
    producer.commit_transaction(240)
    wait_until(lambda: admin.group_offsets(group) == {p0: GroupPosition(5)})


def test_a_partition_that_does_not_exist_fails_the_commit(admin: Any, topic: Any) -> None:
    with pytest.raises(BrokerError, match=f"set offset of consumer group 'g-{topic}' at {topic}-9"):
        admin.commit_group_offsets(f"g-{topic}", {TopicPartition(topic, 9): GroupPosition(1)}, unfenced)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_refuses_offsets_until_they_left(
    admin: Any, topic: Any, source_cluster: Cluster, protocol: str
) -> None:
    produce(source_cluster, topic, 5)
    group, p0 = f"{protocol}-{topic}", TopicPartition(topic, 0)
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": source_cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None, timeout_s=120)
        wait_until(lambda: admin.group_states([group]) == {group: "Stable"})
        with pytest.raises(GroupActive, match=f"'{group}'"):
            admin.commit_group_offsets(group, {p0: GroupPosition(3)}, unfenced)
    finally:
        consumer.close()
    wait_until(lambda: admin.group_states([group]) == {group: "Empty"})
    admin.commit_group_offsets(group, {p0: GroupPosition(3)}, unfenced)
    assert admin.group_offsets(group)[p0].offset == 3


def test_acls_on_a_cluster_without_authorizer_are_refused_in_words(admin: Any) -> None:
    with pytest.raises(RequestRefused, match="SECURITY_DISABLED"):
        admin.describe_acls(resource_type="TOPIC")
    with pytest.raises(RequestRefused, match="SECURITY_DISABLED"):
        admin.create_acls([rule("t", "WRITE", "DENY")], unfenced)


@pytest.mark.parametrize("role", ["source", "target"])
def test_an_unreachable_cluster_is_named_within_ten_seconds(role: str) -> None:
    assert session.CONNECT_TIMEOUT_S < 10  # tests/unit/kafka/test_session.py holds that it is kept
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=f"{role} cluster: no broker at {address}.*Connection refused") as e:
            ClusterAdmin(ClientConfig({"bootstrap.servers": address}, role), timeout_s=300).cluster_id()
    assert (e.value.role, e.value.bootstrap) == (role, address)


def test_unsupported_setting_is_named_but_no_secret_is_shown(source_cluster: Cluster) -> None:
    settings = {"bootstrap.servers": source_cluster.bootstrap, "sasl.password": "hunter2", "security.protocol": "hunter2"}
    with pytest.raises(InputError, match=r"source settings: security\.protocol") as e:
        ClusterAdmin(ClientConfig(settings, "source"))
    assert "hunter2" not in str(e.value)


def test_missing_bootstrap_servers_is_refused_before_a_client_starts() -> None:
    with pytest.raises(MissingSetting, match="target cluster.*bootstrap.servers"):
        ClientConfig({"security.protocol": "PLAINTEXT"}, "target")


@pytest.fixture
def root(guarded: Any) -> Iterator[Any]:
    """The super user, on a cluster that has no rules before and after a test."""
    with ClusterAdmin(ClientConfig(guarded.admin_properties(), "source"), timeout_s=60) as admin:
        yield admin
        admin.delete_acls(admin.describe_acls(), unfenced)
        wait_until(lambda: admin.describe_acls() == [])


@pytest.fixture
def alice(guarded: Any) -> Iterator[Any]:
    with ClusterAdmin(ClientConfig(guarded.properties("alice"), "source"), timeout_s=60) as admin:
        yield admin


@pytest.fixture(scope="module")
def guarded() -> Iterator[Any]:
    with Cluster("guarded", authorizer=True, ready_timeout_s=240) as cluster:
        yield cluster


def test_rules_are_added_found_and_removed_exactly(root: Any) -> None:
    deny = rule("orders", "WRITE", "DENY")
    allow = rule("ord", "READ", "ALLOW", "User:alice", pattern="PREFIXED")
    root.create_acls([deny, allow], unfenced)
    root.create_acls([deny], unfenced)
    wait_until(lambda: root.describe_acls(resource_type="TOPIC") == sorted([allow, deny]))
    assert root.describe_acls(resource_type="TOPIC", name="orders", pattern_type="MATCH") == sorted([allow, deny])
    assert root.describe_acls(name="orders", permission="DENY") == [deny]
    assert root.delete_acls([deny], unfenced) == [deny] and root.delete_acls([deny], unfenced) == []
    wait_until(lambda: root.describe_acls() == [allow])
    root.delete_acls([allow], unfenced)
    wait_until(lambda: root.describe_acls() == [])  # an authorizer without rules is no error


def test_missing_right_is_an_error_never_an_empty_result(guarded: Any, root: Any, alice: Any) -> None:
    """The error names the principal, the right it lacks and the command that grants it."""
    root.create_topics([NewTopicSpec("secret", 1, 1)], unfenced)
    rules = [rule("secret", "ALL", "ALLOW", "User:mirror")]
    rules += [rule("kafka-cluster", o, "ALLOW", "User:mirror", kind="CLUSTER") for o in ("ALTER", "DESCRIBE")]
    root.create_acls(rules, unfenced)
    wait_until(lambda: len(root.describe_acls()) == 3)
    partition = TopicPartition("secret", 0)
    for refused in (
        lambda: alice.describe_acls(resource_type="TOPIC"),
        lambda: alice.create_acls(rules, unfenced),
        lambda: alice.delete_acls(rules, unfenced),
        lambda: alice.topics(["secret"]),
        lambda: alice.topic_configs(["secret"]),
        lambda: alice.offsets([partition]),
        lambda: alice.alter_topic_configs("secret", unfenced, set={"retention.ms": "1"}),
        lambda: alice.commit_group_offsets("g", {partition: GroupPosition(0)}, unfenced),
    ):
        with pytest.raises(MissingRight, match="source cluster.*AUTHORIZATION_FAILED.*User:alice lacks [A-Z].*--add"):
            refused()
    with ClusterAdmin(ClientConfig(guarded.properties("mirror"))) as mirror:
        assert len(mirror.describe_acls()) == 3


def test_groups_that_would_not_be_listed_are_told_by_any_broker(guarded: Any, root: Any, alice: Any) -> None:
    """Whether they exist or not, and where there is no topic of groups yet: none comes of the question."""
    before = root.topic_names()
    root.create_acls([rule("secret-", "DESCRIBE", "ALLOW", "User:mirror", kind="GROUP", pattern="PREFIXED")], unfenced)
    wait_until(lambda: len(root.describe_acls()) == 1)
    groups = [*(f"secret-{n}" for n in range(300)), "zone-1"]
    wait_until(lambda: alice.unseen_groups(groups) == sorted(groups[:-1]))
    assert root.unseen_groups(groups) == []
    assert root.topic_names() == before


def test_wrong_credentials_are_refused_at_once_and_not_shown(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 300.0)
    settings = {**guarded.properties("alice"), "sasl.password": "wr0ng-passw0rd"}
    with pytest.raises(AuthenticationFailed, match="target cluster.*Invalid username or password") as e:
        ClusterAdmin(ClientConfig(settings, "target"), timeout_s=300).cluster_id()
    assert "wr0ng" not in str(e.value)
