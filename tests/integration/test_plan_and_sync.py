"""From plan to moved groups on two real clusters, and each bad situation that the plan has to see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import (
    ClusterUnreachable,
    GroupActive,
    InputError,
    NothingMatches,
    OffsetOutOfRange,
)
from airflow_mirror.kafka.admin import ClusterAdmin, ConfigEntry, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.configs import BY_LAG, HELD_OPEN
from airflow_mirror.plan.store import write as write_plan
from airflow_mirror.plan.target_configs import try_configs
from airflow_mirror.plan.targets import KINDS
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.group_translation import translate_positions
from airflow_mirror.sync.groups import commit_groups, read_positions
from airflow_mirror.sync.topics import create_target_topics
from sandbox import Cluster
from tests.waiting import wait_until


@pytest.fixture
def source(source_cluster: Cluster) -> Iterator[Any]:
    with ClusterAdmin(ClientConfig({"bootstrap.servers": source_cluster.bootstrap}, "source"), timeout_s=120) as admin:
        yield admin


@pytest.fixture
def target(target_cluster: Cluster) -> Iterator[Any]:
    with ClusterAdmin(ClientConfig({"bootstrap.servers": target_cluster.bootstrap}, "target"), timeout_s=120) as admin:
        yield admin


@pytest.fixture
def make(source: Any, target: Any, topic_name: str) -> Iterator[Any]:
    """Create topics; delete everything of this test afterwards, on both sides."""

    def create(admin: Any, name: Any = topic_name, partitions: int = 2, **overrides: Any) -> Any:
        configs = {key.replace("_", "."): value for key, value in overrides.items()}
        admin.create_topics([NewTopicSpec(name, partitions, 1, configs)], unfenced)
        wait_until(lambda: name in admin.topics([name]))
        return name

    yield create
    for admin in (source, target):
        admin.delete_topics([name for name in admin.topic_names() if topic_name in name], unfenced)


def produce(cluster: Any, topic: Any, count: Any, partition: int = 0) -> None:
    producer, errors = Producer({"bootstrap.servers": cluster.bootstrap}), []
    now_ms = round(time.time() * 1000)  # older records would fall to the source's own retention during the test
    for i in range(count):
        producer.produce(
            topic,
            b"v%d" % i,
            b"k%d" % (i % 7),
            partition,
            timestamp=now_ms - i,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(240) == 0 and set(errors) <= {None}


def mirror_of(*topics: Any, **fields: Any) -> Any:
    return Mirror(**{"name": "m", "source": "kafka_dc1", "target": "kafka_dc2", "topics": topics, **fields})


def test_plan_create_hold_copy_and_let_go(
    make: Any, source: Any, target: Any, source_cluster: Cluster, tmp_path: Path
) -> None:
    topic = make(source, retention_ms="86400000", cleanup_policy="compact,delete", max_message_bytes="3000000")
    produce(source_cluster, topic, 50)
    source.alter_topic_configs(topic, unfenced, set={"cleanup.policy": "delete"})  # DeleteRecords needs it
    wait_until(lambda: source.topic_configs([topic])[topic]["cleanup.policy"].value == "delete")
    source.delete_records({TopicPartition(topic, 0): 9}, unfenced)
    source.alter_topic_configs(topic, unfenced, set={"cleanup.policy": "compact,delete"})
    wait_until(lambda: source.topic_configs([topic])[topic]["cleanup.policy"].value == "compact,delete")
    source.commit_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): GroupPosition(30)}, unfenced)

    plan = build(mirror_of(topic, groups=[f"g-{topic}"]), source, target)
    plan.raise_if_blocked()
    planned = plan.topic(topic)
    assert (planned.starts, planned.ends, planned.prime) == ({0: 9, 1: 0}, {0: 50, 1: 0}, {0: 9})
    assert planned.source_topic_id == source.topics([topic])[topic].topic_id
    assert plan.positions == {f"g-{topic}": {topic: {0: 30}}}
    write_plan(plan, tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan

    assert create_target_topics(plan, target, unfenced).created == (topic,)
    again = create_target_topics(plan, target, unfenced)
    assert (again.created, again.existing, again.differences) == ((), (topic,), ())
    there = {key: entry.value for key, entry in target.topic_configs([topic])[topic].items()}
    assert {key: there[key] for key in HELD_OPEN} == HELD_OPEN
    assert there["max.message.bytes"] == "3000000"

    assert sync_configs(plan, source, target, unfenced).drift == ()
    target.alter_topic_configs(topic, unfenced, set={"retention.ms": "1000"})  # somebody meddles
    wait_until(lambda: target.topic_configs([topic])[topic]["retention.ms"].value == "1000")
    assert create_target_topics(plan, target, unfenced).differences == (f"{topic}: retention.ms=1000, planned -1",)
    assert sync_configs(plan, source, target, unfenced, dry_run=True).drift == (f"{topic}: retention.ms: 1000 -> -1",)
    assert sync_configs(plan, source, target, unfenced).drift == (f"{topic}: retention.ms: 1000 -> -1",)

    assert sync_configs(plan, source, target, unfenced, hold=False).applied
    here, there = (admin.topic_configs([topic])[topic] for admin in (source, target))
    assert {k: e.value for k, e in here.items()} == {k: e.value for k, e in there.items()}
    assert sync_configs(plan, source, target, unfenced, hold=False).drift == ()


@pytest.fixture(scope="module")
def hoarding() -> Iterator[Any]:
    """A source whose broker file keeps records for a month and takes records of 10 MB."""
    file = {"log.retention.hours": "720", "message.max.bytes": "10485760", "log.segment.bytes": "268435456"}
    with (
        Cluster("hoarding", overrides=file, ready_timeout_s=240) as cluster,
        ClusterAdmin(ClientConfig({"bootstrap.servers": cluster.bootstrap}, "source"), timeout_s=120) as admin,
    ):
        yield admin


def test_what_the_sources_broker_file_keeps_the_target_keeps(
    hoarding: Any, target: Any, make: Any, topic_name: str
) -> None:
    make(hoarding)
    plan = build(mirror_of(topic_name), hoarding, target)
    plan.raise_if_blocked()
    create_target_topics(plan, target, unfenced)
    assert sync_configs(plan, hoarding, target, unfenced).drift == ()
    there = target.topic_configs([topic_name])[topic_name]
    assert (there["retention.ms"].value, there["max.message.bytes"].value) == ("-1", "10485760")
    assert sync_configs(plan, hoarding, target, unfenced, hold=False).applied
    here, there = (admin.topic_configs([topic_name])[topic_name] for admin in (hoarding, target))
    assert here["retention.ms"].value == str(720 * 3_600_000)
    assert {key: e.value for key, e in here.items()} == {key: e.value for key, e in there.items()}
    chosen = {key for key, e in there.items() if e.source == "DYNAMIC_TOPIC_CONFIG"}
    assert {"retention.ms", "max.message.bytes", "segment.bytes"} <= chosen
    assert sync_configs(plan, hoarding, target, unfenced, hold=False).drift == ()


def test_target_says_which_settings_it_does_not_know(make: Any, source: Any, target: Any, topic_name: str) -> None:
    make(source)
    vendors = NewTopicSpec(topic_name, 1, 1, {"vendor.tier": "gold"})
    assert "vendor.tier" in target.refused_topics([vendors])[topic_name].detail
    entries = {
        "vendor.tier": ConfigEntry(value="gold"),
        "retention.ms": ConfigEntry(value="5"),
        "segment.bytes": ConfigEntry(value="1"),
    }
    held = {*HELD_OPEN, *BY_LAG}  # asked for in any case
    assert set(try_configs(target, [entries], topic_name)) == {*held, "retention.ms", "segment.bytes"}
    assert topic_name not in target.topics([topic_name])


def test_what_the_target_has_against_one_topic_blocks_that_one(
    make: Any, source: Any, target: Any, topic_name: str
) -> None:
    """A name that collides with one of its own: found when the topic was created, once, and none was copied."""
    for suffix in (".orders", ".payments"):
        make(source, topic_name + suffix)
    make(target, topic_name + "_orders")
    with pytest.raises(
        InputError, match=rf"'{topic_name}\.orders'.*INVALID_TOPIC_EXCEPTION: .*collides with .*_orders"
    ) as e:
        build(mirror_of(rf"{topic_name}\..*"), source, target).raise_if_blocked()
    assert ".payments" not in str(e.value)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("event-hubs", "it is Azure Event Hubs, as target_kind says.*ledger can't be"),
        ("aiven", "target_kind says Aiven for Apache Kafka, and its addresses are those of Google"),
        ("redpanda", "it is Redpanda, as target_kind says, and it answers.*: it serves WriteTxnMarkers"),
        ("confluent-cloud", "its brokers are 1, too few for 3 replicas"),
    ],
)
def test_target_on_which_no_ledger_can_live_or_of_another_kind_is_refused_before_anything_is_tried_on_it(
    make: Any, source: Any, target: Any, kind: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scratch topic as well: such a cluster has answers of its own, and each would be told as another cause."""
    topic, sent = make(source), list[str]()
    if kind == "aiven":
        monkeypatch.setitem(KINDS, "google", replace(KINDS["google"], address=r"localhost|127\.0\.0\.\d+"))  # type: ignore[misc]
    for name in ("create_topics", "refused_topics", "delete_topics", "alter_topic_configs"):
        monkeypatch.setattr(ClusterAdmin, name, lambda *_, name=name, **__: sent.append(name))
    with pytest.raises(InputError, match=rf"(?s)1 check.*{says}"):
        build(mirror_of(topic, target_kind=kind), source, target).raise_if_blocked()
    assert sent == []


def test_an_unknown_pattern_names_the_topics_that_exist(make: Any, source: Any, target: Any) -> None:
    topic = make(source)
    with pytest.raises(NothingMatches, match=r"(?s)no-such-.*Topics there: ") as refused:
        build(mirror_of("no-such-.*"), source, target)
    assert topic in refused.value.available


def test_foreign_records_on_the_target_block_the_plan(
    make: Any, source: Any, target: Any, target_cluster: Cluster
) -> None:
    """Nothing is written."""
    topic = make(source)
    make(target)
    produce(target_cluster, topic, 3, partition=1)
    with pytest.raises(InputError, match=rf"{topic}.*did not write \(partition 1 ends at 3\)"):
        build(mirror_of(topic), source, target).raise_if_blocked()
    assert target.offsets([TopicPartition(topic, p) for p in (0, 1)]) == {(topic, 0): 0, (topic, 1): 3}


def test_our_own_records_on_the_target_are_a_resume(
    make: Any, source: Any, target: Any, source_cluster: Cluster, target_cluster: Cluster
) -> None:
    topic = make(source)
    produce(source_cluster, topic, 5)
    first = build(mirror_of(topic), source, target)
    create_target_topics(first, target, unfenced)
    produce(target_cluster, topic, 3)
    build(mirror_of(topic), source, target, known_topics=first.known_topics).raise_if_blocked()
    produce(target_cluster, topic, 3)  # now it is longer than the source
    assert [f.check for f in build(mirror_of(topic), source, target, first.known_topics).blocks] == ["target_data"]


def test_target_topic_with_fewer_partitions_blocks_and_is_not_grown(make: Any, source: Any, target: Any) -> None:
    topic = make(source, partitions=3)
    make(target, partitions=2)
    plan = build(mirror_of(topic), source, target)
    with pytest.raises(InputError, match="3 partitions on the source, 2 on the target"):
        plan.raise_if_blocked()
    with pytest.raises(InputError, match=f"{topic}: 2 partitions, 3 needed"):
        create_target_topics(plan, target, unfenced)
    assert target.topics([topic])[topic].partitions == 2


def test_our_target_topic_grows_with_the_source(make: Any, source: Any, target: Any) -> None:
    topic = make(source, partitions=2)
    first = build(mirror_of(topic), source, target)
    create_target_topics(first, target, unfenced)
    source.grow_partitions(topic, 5, unfenced)
    wait_until(lambda: source.topics([topic])[topic].partitions == 5)
    second = build(mirror_of(topic), source, target, first.known_topics)
    second.raise_if_blocked()
    assert create_target_topics(second, target, unfenced).grown == (topic,)
    assert target.topics([topic])[topic].partitions == 5
    assert create_target_topics(second, target, unfenced).grown == ()


def test_the_same_cluster_by_two_addresses_is_found_out(make: Any, source: Any, source_cluster: Cluster) -> None:
    topic = make(source)
    port = source_cluster.bootstrap.rpartition(":")[2]
    with (
        ClusterAdmin(ClientConfig({"bootstrap.servers": f"localhost:{port}"}, "target")) as other,
        pytest.raises(InputError, match=f"same_cluster.*{source.cluster_id()}"),
    ):
        build(mirror_of(topic), source, other).raise_if_blocked()


@pytest.mark.parametrize("dead", ["source", "target"])
def test_an_unreachable_side_is_named(make: Any, source: Any, target: Any, dead: str) -> None:
    topic = make(source)
    nowhere = ClusterAdmin(ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, dead), timeout_s=3)
    sides = {"source": source, "target": target, dead: nowhere}
    with pytest.raises(ClusterUnreachable, match=f"{dead} cluster: no broker at 127.0.0.1:1"):
        build(mirror_of(topic), sides["source"], sides["target"])


def test_message_limit_and_timestamp_type_block_together(make: Any, source: Any, target: Any) -> None:
    """A small message limit and LogAppendTime on the target are reported by one plan."""
    topic = make(source, max_message_bytes="3000000")
    make(target, message_timestamp_type="LogAppendTime")
    plan = build(mirror_of(topic), source, target)
    assert {f.check for f in plan.blocks} == {"message_size", "timestamp_type"}


def test_start_time_selects_the_first_record_from_then_on(
    make: Any, source: Any, target: Any, source_cluster: Cluster
) -> None:
    topic = make(source, retention_ms="-1")  # the records are of 2023
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
    for day in (1, 2, 3):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + day * 86_400_000)
    assert producer.flush(240) == 0
    plan = build(mirror_of(topic, start="2023-11-16T22:13:20+00:00"), source, target)
    assert plan.topic(topic).starts == {0: 1, 1: 0}


def move(source: Any, target: Any, plan: Any, **options: Any) -> Any:
    topics = [t.source_topic for t in plan.topics]
    partitions = [TopicPartition(t.source_topic, p) for t in plan.topics for p in range(t.partitions)]
    starts = source.offsets(partitions, "earliest")
    there = target.offsets(partitions, "earliest"), target.offsets(partitions, "latest")
    translated = translate_positions(read_positions(source, plan.mirror, topics), plan.topics, starts, *there)
    return commit_groups(target, translated, unfenced, **options)


def test_groups_go_on_exactly_where_they_stood(
    make: Any, source: Any, target: Any, source_cluster: Cluster, target_cluster: Cluster
) -> None:
    topic = make(source)
    produce(source_cluster, topic, 20)
    plan = build(mirror_of(topic, groups=[f".*{topic}"]), source, target)
    create_target_topics(plan, target, unfenced)
    produce(target_cluster, topic, 20)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    wanted = {"start": 0, "middle": 13, "end": 20}
    for name, offset in wanted.items():
        source.commit_group_offsets(f"{name}-{topic}", {p0: GroupPosition(offset, name), p1: GroupPosition(0)}, unfenced)
    move(source, target, plan, dry_run=True)
    assert target.group_states([f"middle-{topic}"]) == {f"middle-{topic}": "Dead"}
    report = move(source, target, plan)
    assert {m.action for m in report.moves} == {"commit"} and len(report.moves) == 6
    for name, offset in wanted.items():
        assert target.group_offsets(f"{name}-{topic}") == {p0: GroupPosition(offset, name), p1: GroupPosition(0)}
    settings = {"group.id": f"middle-{topic}", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": target_cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    try:
        (first,) = consumer.consume(1, 120)
        assert first.error() is None and first.offset() == 13
    finally:
        consumer.close()
    assert {m.action for m in move(source, target, plan).moves} == {"same"}


def test_group_ahead_or_live_on_the_target_is_refused(
    make: Any, source: Any, target: Any, source_cluster: Cluster, target_cluster: Cluster
) -> None:
    """Its offset is above the target's log end, or it has members there."""
    topic = make(source)
    group, p0 = f"g-{topic}", TopicPartition(topic, 0)
    produce(source_cluster, topic, 20)
    plan = build(mirror_of(topic, groups=[group]), source, target)
    create_target_topics(plan, target, unfenced)
    source.commit_group_offsets(group, {p0: GroupPosition(20)}, unfenced)
    with pytest.raises(OffsetOutOfRange, match=rf"'{group}' at {topic}-0 offset 20: the target holds \[0, 0\]"):
        move(source, target, plan)
    produce(target_cluster, topic, 20)
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": target_cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None, timeout_s=120)
        with pytest.raises(GroupActive, match=f"'{group}' is Stable on the target"):
            move(source, target, plan)
    finally:
        consumer.close()
    wait_until(lambda: target.group_states([group]) == {group: "Empty"})
    assert target.group_offsets(group) == {}
    assert [m.action for m in move(source, target, plan).moves] == ["commit"]
