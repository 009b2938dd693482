"""Irregular records in, and all of them out again, by confluent-kafka alone: the referee shares no code with the copy."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.watermarks import watermarks

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def create(settings: Mapping[str, str], topic: str, partitions: int, **configs: str) -> None:
    """Create a topic and wait until it is there."""
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
    admin = AdminClient(dict(settings))  # kept: its requests end with it
    for future in admin.create_topics([new]).values():
        future.result(timeout=120)


def fill(settings: Mapping[str, str], topic: str, count: int, seed: int = 0, at_ms: int | None = None) -> None:
    """Write ``count`` irregular records: five codecs, nulls, empty values, binary, repeated headers, falling times.

    Fails if the broker does not take one.

    :param at_ms: base of the timestamps; default: now. They fall and repeat around it.
    """
    dice = random.Random(seed)
    base = at_ms if at_ms is not None else time.time_ns() // 1_000_000
    refused: list[str] = []

    def told(error: KafkaError | None, _: Message) -> None:
        refused.extend([] if error is None else [str(error)])

    for first, codec in enumerate(CODECS):
        producer = Producer({**settings, "compression.type": codec, "linger.ms": 20, "batch.size": 16_000})
        for n in range(first, count, len(CODECS)):
            value = dice.choice([None, b"", dice.randbytes(dice.randint(1, 900)), f"{n}".encode() * 20])
            key = dice.choice([None, b"", f"k{dice.randint(0, 50)}".encode()])
            headers = [("h", dice.randbytes(3)), ("h", None)] if dice.random() < 0.2 else []
            stamp = base + dice.randint(-900, 900)
            producer.produce(topic, value, key, headers=headers, timestamp=stamp, on_delivery=told)
            producer.poll(0)
        assert producer.flush(300) == 0 and not refused, refused


def read_all(settings: Mapping[str, str], topic: str) -> list[Row]:
    """Return every committed record of a topic, sorted by partition and offset."""
    consumer = Consumer(
        {**settings, "group.id": "referee", "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    rows: list[Row] = []
    try:
        partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
        for p in partitions:
            # A client that has just begun may not know yet who leads what it has listed.
            low, high = watermarks(consumer, TopicPartition(topic, p), 120.0, KafkaError._UNKNOWN_PARTITION)
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING)])
            deadline = time.monotonic() + 300
            while consumer.position([TopicPartition(topic, p)])[0].offset < high:
                assert time.monotonic() < deadline, f"{topic}-{p} can't be read up to {high}"
                message = consumer.poll(0.5)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                headers = tuple(message.headers() or ())
                rows.append((p, message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def commit(settings: Mapping[str, str], group: str, positions: Mapping[tuple[str, int], int]) -> None:
    """Leave a group without members at ``positions``."""
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in positions.items()], asynchronous=False)
    consumer.close()


def positions(settings: Mapping[str, str], group: str, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Return where a group stands; ``topics`` gives partition counts. Partitions without a position are left out."""
    consumer = Consumer({**settings, "group.id": group, "enable.auto.commit": False})
    try:
        asked = [TopicPartition(t, p) for t, count in topics.items() for p in range(count)]
        return {(tp.topic, tp.partition): tp.offset for tp in consumer.committed(asked, timeout=120) if tp.offset >= 0}
    finally:
        consumer.close()


class Writer:
    """A producer that goes on until it is refused (fenced) or stopped; counts what was acknowledged."""

    def __init__(self, settings: Mapping[str, str], topic: str, per_s: float = 100) -> None:
        self._settings, self._topic, self._pause = dict(settings), topic, 1 / per_s
        self._stop = threading.Event()
        self.acknowledged, self.refused = 0, 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=200)

    def _run(self) -> None:
        def told(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged += 1
            else:
                self.refused += 1

        producer = Producer({**self._settings, "linger.ms": 5, "message.timeout.ms": 120_000})
        while not self._stop.wait(self._pause) and not self.refused:
            try:
                producer.produce(self._topic, f"live-{self.acknowledged}".encode(), on_delivery=told)
            except KafkaException:  # librdkafka remembers a refusal and gives it at once
                self.refused += 1
            producer.poll(0)
        producer.flush(150)  # longer than a message may take: what is not told is not counted
