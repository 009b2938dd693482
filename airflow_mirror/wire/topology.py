"""Leaders, addresses and topics: the part of a cluster's metadata that routing needs, as values."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from airflow_mirror.common.partition import TopicPartition

T = TypeVar("T")

ID_BYTES = 16  # of a topic's id in a request


class Leader(NamedTuple):
    """The leader of a partition and its epoch. ``node_id`` -1: no leader now; ``epoch`` -1: unknown."""

    node_id: int
    epoch: int


@dataclass(frozen=True)
class Topic:
    """A topic as its cluster describes it. ``leaders`` maps partition numbers; ``topic_id`` is "" before Kafka 2.8."""

    name: str
    topic_id: str
    leaders: Mapping[int, Leader]


@dataclass
class Rumour:
    """A report that a topic or partition does not exist: its age, and the brokers that made it without contradiction."""

    since: float
    brokers: set[int] = field(default_factory=set)


class ProducerState(NamedTuple):
    """What a partition's leader knows about a producer.

    ``last_sequence`` -1: no data, or only markers. ``last_timestamp`` is the newest *record* timestamp in ms, or the
    time of the write for markers. ``current_txn_start`` -1: no open transaction. ``coordinator_epoch``: the epoch of
    the coordinator that wrote the last marker; a marker with an older epoch is rejected.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    current_txn_start: int
    coordinator_epoch: int = -1


def topic_of(described: Any) -> Topic:
    """Return the topic for an entry of a MetadataResponse (kafka-python) that has no error."""
    leaders = {p.partition_index: Leader(p.leader_id, p.leader_epoch) for p in described.partitions}
    return Topic(described.name, _topic_id(described.topic_id), leaders)


def _topic_id(value: uuid.UUID | None) -> str:
    """Format an id as Kafka's tools and confluent-kafka do: URL-safe base64 without padding."""
    if value is None or value.int == 0:
        return ""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def id_of(topic_id: str) -> uuid.UUID:
    """Return the UUID of a topic's id as it is written."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic, as requests need them."""
    return grouped(partitions, lambda tp: tp.partition)


def grouped(partitions: Iterable[TopicPartition], made: Callable[[TopicPartition], T]) -> dict[str, list[T]]:
    """Return what is made of each partition, by topic."""
    groups: dict[str, list[T]] = {}
    for tp in partitions:
        groups.setdefault(tp.topic, []).append(made(tp))
    return groups
