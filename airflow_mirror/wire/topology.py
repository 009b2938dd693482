"""Who leads what: the part of a cluster's metadata that routing needs, as values."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_mirror.errors import InvalidField

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mirror.partition import TopicPartition


class Leader(NamedTuple):
    """The broker that leads a partition, and its term. ``node_id`` -1: no leader now; ``epoch`` -1: not known."""

    node_id: int
    epoch: int


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Topic:
    """A topic as its cluster describes it. ``leaders`` maps partition numbers; ``topic_id`` is "" before Kafka 2.8."""

    name: str
    topic_id: str
    leaders: Mapping[int, Leader]


class ProducerState(NamedTuple):
    """What a partition's leader remembers of a producer.

    ``last_sequence`` -1: no data, or only markers. ``last_timestamp`` is the newest *record* time in ms, or the time of
    the write for markers. ``current_txn_start`` -1: no open transaction. ``coordinator_epoch``: the term in which its
    coordinator wrote the last marker; a marker of an earlier term is refused.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    current_txn_start: int
    coordinator_epoch: int = -1


def parse_bootstrap(servers: str) -> list[Address]:
    """Split ``host:port,host:port``; librdkafka's default port is 9092, and ``PLAINTEXT://`` in front is allowed.

    :raises InvalidField: an entry is no host and port.
    """
    addresses = []
    for item in servers.split(","):
        text = item.strip().rpartition("://")[2]
        if not text:
            continue
        host, separator, port = text.rpartition(":")
        if not separator or (host.count(":") and not host.endswith("]")):  # no port, or a bare IPv6 address
            host, port = text, "9092"
        if not host or not port.isdigit() or int(port) > 65535:
            raise InvalidField("bootstrap.servers", item.strip(), "no host:port", "Give, for example, broker1:9092.")
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses


def topic_of(described: Any) -> Topic:
    """Return the topic of a MetadataResponse's entry (kafka-python) that has no error."""
    leaders = {p.partition_index: Leader(p.leader_id, p.leader_epoch) for p in described.partitions}
    return Topic(described.name, _topic_id(described.topic_id), leaders)


def _topic_id(value: uuid.UUID | None) -> str:
    """Write an id as Kafka's tools and confluent-kafka do: URL-safe base64 without padding."""
    if value is None or value.int == 0:
        return ""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def by_topic(partitions: list[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, as requests want them."""
    grouped: dict[str, list[int]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return grouped
