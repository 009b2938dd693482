"""Consumers and a producer as applications use them: what a drill reads and writes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_mirror.errors import BrokerError, ClusterUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mirror.config import ClientConfig

POLL_S = 0.2


def consume(
    cluster: ClientConfig,
    topic: str,
    group: str,
    enough: Callable[[list[tuple[int, int, str]]], bool],
    timeout_s: float,
    reset: str,
    on_first: Callable[[], None] = lambda: None,
) -> list[tuple[int, int, str]]:
    """Read ``[partition, offset, key]`` as a member of ``group`` until ``enough``; commit what was read."""
    from confluent_kafka import Consumer

    settings = {"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer({**cluster.common(), **settings})
    consumer.subscribe([topic])
    seen: list[tuple[int, int, str]] = []
    deadline = time.monotonic() + timeout_s
    try:
        while not enough(seen) and time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                raise BrokerError(f"read {topic}", message.error().code(), message.error().name())
            if not seen:
                on_first()
            seen.append((message.partition(), message.offset(), message.key().decode()))
        if seen:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return seen


def everything(cluster: ClientConfig, topic: str, ends: dict[int, int], timeout_s: float) -> set[tuple[int, int, str]]:
    """Read the whole topic up to ``ends`` without a group."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({**cluster.common(), "group.id": "airflow-mirror-drill-reader", "enable.auto.commit": False})
    todo = {p for p, end in ends.items() if end}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in todo])
    held: set[tuple[int, int, str]] = set()
    deadline = time.monotonic() + timeout_s
    try:
        while todo and time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            # What was written after the failover lies behind `ends` and is no canary.
            if message is not None and message.error() is None and message.offset() < ends[message.partition()]:
                held.add((message.partition(), message.offset(), message.key().decode()))
            reached = consumer.position(list(consumer.assignment()))
            todo -= {tp.partition for tp in reached if tp.offset >= ends[tp.partition]}
    finally:
        consumer.close()
    return held


def write_one(cluster: ClientConfig, topic: str, timeout_s: float) -> None:
    """Write one record and wait for its acknowledgement.

    :raises ClusterUnreachable: when there is none in time.
    """
    from confluent_kafka import Producer

    producer = Producer({**cluster.common(), "acks": "all", "linger.ms": 0})
    producer.produce(topic, key=b"after-failover", value=b"")
    if producer.flush(timeout_s):
        raise ClusterUnreachable(cluster.role, cluster.bootstrap, f"a record for {topic!r} was not acknowledged")
