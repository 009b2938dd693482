"""Consumers and a producer as applications use them: what a drill reads and writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, ClusterUnreachable, DrillMissed, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin

if TYPE_CHECKING:
    Row = tuple[int, int, str]

POLL_S = 0.2
_TOLD = 5


@dataclass(kw_only=True)
class Read:
    """What a member of a group got.

    :param rows: ``(partition, offset, key)``, as they came.
    :param reached: the offset behind the last row, by partition.
    :param astray: partitions in which the group has no position that the log still has, or has yet.
    """

    rows: list[Row] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    astray: set[int] = field(default_factory=set)


def consume(
    cluster: ClientConfig,
    topic: str,
    group: str,
    enough: Callable[[Read], bool],
    timeout_s: float,
    reset: str,
    on_first: Callable[[], None] = lambda: None,
) -> Read:
    """Read as a member of ``group`` until ``enough`` or for ``timeout_s``; commit what was read.

    :param enough: is asked before each record, so it has to be quick: its time would count as the cluster's.
    :param reset: ``auto.offset.reset``; ``error`` notes partitions as astray.
    """
    from confluent_kafka import Consumer, KafkaError

    settings = {"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer({**cluster.common(), **settings})
    consumer.subscribe([topic])
    read = Read()
    deadline = time.monotonic() + timeout_s
    try:
        while not enough(read) and time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() != KafkaError._AUTO_OFFSET_RESET:
                    raise BrokerError(f"read {topic}", error.code(), error.name())
                read.astray.add(message.partition())
                continue
            if not read.rows:
                on_first()
            read.rows.append((message.partition(), message.offset(), message.key().decode()))
            read.reached[message.partition()] = message.offset() + 1
        if read.rows:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return read


def read_to(
    cluster: ClientConfig,
    topic: str,
    group: str,
    stands: Mapping[int, int],
    ends: Mapping[int, int],
    timeout_s: float,
    on_first: Callable[[], None] = lambda: None,
) -> Read:
    """Read as a member of ``group`` from where it stands to ``ends``; commit what was read.

    Where it has no valid position, an application would go on at the log's start or end. Here it is astray and gets
    nothing.

    :param stands: its positions, by partition.
    :raises ClusterUnreachable: it did not come to the end in time, and where it stands. What it had no time to read must
        not count as skipped.
    """

    def unread(read: Read) -> dict[int, int]:
        places = {p: read.reached.get(p, stands[p]) for p in ends if p not in read.astray}
        return {p: place for p, place in places.items() if place < ends[p]}

    read = consume(cluster, topic, group, lambda read: not unread(read), timeout_s, "error", on_first)
    if late := unread(read):
        places = ", ".join(f"{topic}-{p}: {late[p]:,} of {ends[p]:,}" for p in list(late)[:_TOLD])
        cause = f"group {group!r} did not read {len(late)} partitions to their ends within {timeout_s:g} s ({places})"
        raise ClusterUnreachable(cluster.role, cluster.bootstrap, cause)
    return read


def everything(cluster: ClientConfig, topic: str, ends: dict[int, int], timeout_s: float) -> set[Row]:
    """Read the whole topic up to ``ends`` without a group.

    :raises ClusterUnreachable: it takes longer than ``timeout_s``; unread records would count as lost.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer
    from confluent_kafka import TopicPartition as Assigned

    consumer = Consumer({**cluster.common(), "group.id": "airflow-mirror-drill-reader", "enable.auto.commit": False})
    todo = {p for p, end in ends.items() if end}
    consumer.assign([Assigned(topic, p, OFFSET_BEGINNING) for p in todo])
    held: set[Row] = set()
    deadline = time.monotonic() + timeout_s
    try:
        while todo and time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            # Records written after the failover are at or above `ends` and are not canaries.
            if message is not None and message.error() is None and message.offset() < ends[message.partition()]:
                held.add((message.partition(), message.offset(), message.key().decode()))
            reached = consumer.position(list(consumer.assignment()))
            todo -= {tp.partition for tp in reached if tp.offset >= ends[tp.partition]}
    finally:
        consumer.close()
    if todo:
        cause = f"partitions {sorted(todo)} of {topic!r} were not read to their ends within {timeout_s:.0f} s"
        raise ClusterUnreachable(cluster.role, cluster.bootstrap, cause)
    return held


def write_one(cluster: ClientConfig, topic: str, timeout_s: float) -> None:
    """Write one record and wait for its acknowledgement.

    :raises ClusterUnreachable: there is none in time.
    :raises BrokerError: the record was rejected; the queue is empty then too.
    """
    from confluent_kafka import Producer

    errors: list[Any] = []
    producer = Producer({**cluster.common(), "acks": "all", "linger.ms": 0})
    producer.produce(topic, key=b"after-failover", value=b"", on_delivery=lambda error, _: errors.append(error))
    if producer.flush(timeout_s):
        raise ClusterUnreachable(cluster.role, cluster.bootstrap, f"a record for {topic!r} was not acknowledged")
    for error in errors:
        if error is not None:
            raise BrokerError(f"write to {topic!r}", error.code(), error.name())


def patiently(call: Callable[[], object], timeout_s: float, passing: type[Exception] = TryAgain) -> None:
    """Call until it succeeds: the first group of a cluster waits for its coordinator to be elected, for example.

    :param passing: what is tried again.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            call()
            return
        except passing:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def id_of(cluster: ClusterAdmin, topic: str, timeout_s: float = 30.0) -> str:
    """Return the id of a topic that was created a moment ago; "" on brokers that have none."""
    found: list[str] = []

    def look() -> None:
        there = cluster.topics([topic]).get(topic)
        if there is None:  # this broker has not heard of it yet
            raise TryAgain(f"the {cluster.role} cluster has no topic {topic!r}", "it was created just now")
        found.append(there.topic_id)

    patiently(look, timeout_s)
    return found[0]


def partitions_of(cluster: ClusterAdmin, topic: str) -> list[TopicPartition]:
    """Return the partitions of the drill's topic.

    :raises DrillMissed: the topic does not exist: the mirror never created it, or somebody deleted it.
    """
    found = cluster.topics([topic])
    if topic not in found:
        raise DrillMissed([f"the {cluster.role} cluster has no topic {topic!r}"], "the tasks before this one")
    return [TopicPartition(topic, p) for p in range(found[topic].partitions)]
