"""Small calls on confluent-kafka's admin client, each waiting for its answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

TIMEOUT_S = 30.0

Settings = Mapping[str, str]
"""librdkafka settings that reach one cluster as one user: ``bootstrap.servers``, security."""


class Partition(NamedTuple):
    """A partition by name and number; unlike confluent-kafka's own, it has no offset that would take part in ``==``."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


def config(settings: Settings, **more: Any) -> dict[str, Any]:
    """Return the settings of one client; dots in the names of ``more`` are written as underscores.

    librdkafka's own log goes to standard error, past the demo's lines. What goes wrong comes back as an error.
    """
    return {**settings, "log_level": 2, **{name.replace("_", "."): value for name, value in more.items()}}


def admin(settings: Settings) -> AdminClient:
    """Return an admin client."""
    return AdminClient(config(settings))


def create_topics(client: AdminClient, topics: Iterable[tuple[str, int, Mapping[str, str]]]) -> None:
    """Create topics given as (name, partitions, configs), one replica each, and wait until every partition has a leader.

    :raises KafkaException: the first one that the broker refuses.
    """
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs))
        for name, partitions, configs in topics
    ]
    for future in client.create_topics(wanted, operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    for topic in wanted:
        while len(partitions_of(client, topic.topic)) < topic.num_partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic.topic!r} has no leaders {TIMEOUT_S:.0f} s after it was created")
            time.sleep(0.05)


def delete_topic(client: AdminClient, topic: str) -> None:
    """Delete a topic and wait until no broker knows it."""
    client.delete_topics([topic], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while topic in client.list_topics(timeout=TIMEOUT_S).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic!r} is still there {TIMEOUT_S:.0f} s after it was deleted")
        time.sleep(0.1)


def topics_of(client: AdminClient) -> dict[str, int]:
    """Return every topic that is not Kafka's own, with its number of partitions."""
    metadata = client.list_topics(timeout=TIMEOUT_S)
    return {name: len(t.partitions) for name, t in metadata.topics.items() if not name.startswith("__")}


def partitions_of(client: AdminClient, topic: str) -> list[Partition]:
    """Return the partitions of a topic that have a leader; empty when there is no such topic."""
    metadata = client.list_topics(timeout=TIMEOUT_S).topics.get(topic)
    if metadata is None or metadata.error is not None:
        return []
    return sorted(Partition(topic, p) for p, info in metadata.partitions.items() if info.leader >= 0)


def set_topic_configs(client: AdminClient, topic: str, values: Mapping[str, str | None]) -> None:
    """Set (a string) or delete (None) settings of a topic; the others stay."""
    _alter_configs(client, ConfigResource(ConfigResource.Type.TOPIC, topic), values)


def set_cluster_configs(client: AdminClient, values: Mapping[str, str | None]) -> None:
    """Set (a string) or delete (None) dynamic settings of every broker.

    One by one: confluent-kafka refuses the empty resource name that stands for all of them.
    """
    for broker in client.list_topics(timeout=TIMEOUT_S).brokers:
        _alter_configs(client, ConfigResource(ConfigResource.Type.BROKER, str(broker)), values)


def _alter_configs(client: AdminClient, resource: Any, values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=operation))
    for future in client.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)


def topic_configs(client: AdminClient, topic: str) -> dict[str, str]:
    """Return the settings of a topic that were set on it (no defaults)."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: e.value for name, e in entries.items() if e.source == 1}  # 1: dynamic topic config


def log_bounds(client: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return (log start, log end) of each partition; the end is the high watermark, the next offset to be read."""
    wanted = list(partitions)
    edges = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        asked = {TopicPartition(*p): spec for p in wanted}
        futures = client.list_offsets(asked, request_timeout=TIMEOUT_S) if asked else {}
        edges.append({Partition(tp.topic, tp.partition): f.result(TIMEOUT_S).offset for tp, f in futures.items()})
    return {p: (edges[0][p], edges[1][p]) for p in wanted}


def delete_records(client: AdminClient, before: Mapping[Partition, int]) -> None:
    """Move log starts: delete the records below an offset (-1: all of them)."""
    asked = [TopicPartition(*p, offset) for p, offset in before.items()]
    for future in client.delete_records(asked).values():
        future.result(TIMEOUT_S)


def group_positions(settings: Settings, group: str) -> dict[Partition, int]:
    """Return what a group has committed: the next offset to read of each partition. Empty for an unknown group.

    Asked by a consumer that never joins the group. The admin client's list_consumer_group_offsets would end the whole
    process (librdkafka 2.16: rd_kafka_cgrp_op on an instance without a group) when the coordinator answers that it is
    not the coordinator any more or not yet, as on every new cluster.
    """
    consumer = Consumer(config(settings, group_id=group, enable_auto_commit=False))
    try:
        topics = consumer.list_topics(timeout=TIMEOUT_S).topics
        asked = [TopicPartition(t, p) for t, info in topics.items() if not t.startswith("__") for p in info.partitions]
        found = consumer.committed(asked, TIMEOUT_S) if asked else []
        return {Partition(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}
    finally:
        consumer.close()


def commit_positions(settings: Settings, group: str, positions: Mapping[Partition, int], note: str = "") -> None:
    """Commit as a consumer of the group would: through its coordinator, with the metadata string that some clients add.

    :raises KafkaException: when the coordinator refuses a partition.
    """
    consumer = Consumer(config(settings, group_id=group, enable_auto_commit=False))
    try:
        wanted = [TopicPartition(p.topic, p.number, offset, note) for p, offset in positions.items()]
        for answer in consumer.commit(offsets=wanted, asynchronous=False) or ():
            if answer.error is not None:
                raise KafkaException(answer.error)
    finally:
        consumer.close()
