"""What applications do on a cluster: they write, read in groups, and commit. Librdkafka alone; none of our code judges.

Positions are compared by what lies before them: how many records that a reader sees. That is the same on both sides if
and only if a group that moves reads nothing again and misses nothing, whatever became of the offsets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned

from tests.integration.copying import TILL_FLUSH

PATIENCE_S = 240.0
_MOVES = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
# A record as a reader sees it: timestamp, key, value, headers.
Record = tuple[Any, ...]
Log = dict[int, list[tuple[int, Record]]]  # by partition: offset and record

Client = Mapping[str, str]  # settings


def append(
    client: Client, topic: str, counts: Sequence[int], seed: int = 1, *, keyed: bool = False, transactions: bool = False
) -> None:
    """Append so many records to each partition: binary, empty and null parts, repeated headers, falling times.

    :param keyed: no key is null, as compacted topics demand.
    :param transactions: two committed ones with an aborted one between them.
    """
    rng = random.Random(seed)
    # A transaction's linger.ms has to be below its timeout.
    own = {"transactional.id": f"{topic}-{seed}", "linger.ms": 20_000} if transactions else {"linger.ms": TILL_FLUSH}
    producer = Producer({**client, "compression.type": rng.choice(["none", "lz4", "zstd"]), **own})
    if not transactions:
        _append(producer, topic, counts, rng, keyed)
        assert producer.flush(PATIENCE_S) == 0
        return
    producer.init_transactions(PATIENCE_S)
    half = [count // 2 for count in counts]
    rest = [count - some for count, some in zip(counts, half, strict=True)]
    for part, ends in ((half, "commit"), ([3] * len(counts), "abort"), (rest, "commit")):
        producer.begin_transaction()
        _append(producer, topic, part, rng, keyed)
        producer.flush(PATIENCE_S)
        producer.commit_transaction(PATIENCE_S) if ends == "commit" else producer.abort_transaction(PATIENCE_S)


def _append(producer: Producer, topic: str, counts: Sequence[int], rng: random.Random, keyed: bool) -> None:
    for partition, count in enumerate(counts):
        for i in range(count):
            producer.produce(
                topic,
                value=rng.choice([b"", b"value %d" % i, rng.randbytes(rng.randint(1, 90))] + [None] * (not keyed)),
                key=b"k%d-%d" % (partition, i) if keyed else rng.choice([None, b"", b"k%d" % i, rng.randbytes(7)]),
                partition=partition,
                timestamp=int(time.time() * 1000) - rng.randint(0, 10**7),
                headers=rng.choice([[], [("h", None)], [("h", b"1"), ("h", b"\xff\x00"), ("é", b"")]]),
            )
            producer.poll(0)


def log_of(client: Client, topic: str) -> Log:
    """Return what a read_committed consumer sees of a topic, from its start to its end."""
    consumer = _consumer(client, "referee", "earliest")
    try:
        partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        consumer.assign([Assigned(topic, p, 0) for p in partitions])
        found: Log = {p: [] for p in partitions}
        for message in _until_end(consumer, {(topic, p) for p in partitions}):
            found[message.partition()].append((message.offset(), _record(message)))
        return found
    finally:
        consumer.close()


def ends(client: Client, topic: str) -> dict[int, int]:
    """Return the high watermark of each partition; nothing while the cluster does not know the topic."""
    consumer = _consumer(client, "referee", "earliest")
    try:
        found = consumer.list_topics(topic, PATIENCE_S).topics[topic]
        return {p: consumer.get_watermark_offsets(Assigned(topic, p), PATIENCE_S)[1] for p in found.partitions}
    finally:
        consumer.close()


def consume(client: Client, group: str, topics: Iterable[str], count: int) -> None:
    """Read as many records in a group, one after the other, and commit where every partition stands; then leave."""
    consumer, topics = _consumer(client, group, "earliest"), list(topics)
    try:
        consumer.subscribe(topics)
        deadline, read = time.monotonic() + PATIENCE_S, 0
        while read < count:
            assert time.monotonic() < deadline, f"{group}: {read} of {count} records"
            message = consumer.poll(0.5)
            read += message is not None and message.error() is None
        places = consumer.position(consumer.assignment())
        unread = _committed(consumer, [place for place in places if place.offset < 0])
        places = [place for place in places if place.offset >= 0]
        for place in unread:
            if place.offset < 0:
                place.offset = consumer.get_watermark_offsets(place, PATIENCE_S)[0]
        places += unread
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def commit(client: Client, group: str, places: Mapping[tuple[str, int], int]) -> None:
    """Set positions of a group without members."""
    consumer = _consumer(client, group, "error")
    consumer.commit(offsets=[Assigned(*at, offset) for at, offset in places.items()], asynchronous=False)
    consumer.close()


def positions(client: Client, group: str, topic: str) -> dict[int, int]:
    """Return the committed positions of a group, by partition; a partition without one is missing."""
    consumer = _consumer(client, group, "error")
    try:
        partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        found = _committed(consumer, [Assigned(topic, p) for p in partitions])
        return {place.partition: place.offset for place in found if place.offset >= 0}
    finally:
        consumer.close()


def _committed(consumer: Consumer, places: list[Assigned]) -> list[Assigned]:
    """Return committed positions; ask again while the coordinator moves, as it does on a machine that stands still."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return list(consumer.committed(places, PATIENCE_S))
        except KafkaException as e:
            if e.args[0].code() not in _MOVES or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def passed(log: Log, places: Mapping[int, int]) -> dict[int, int]:
    """Return how many records of each partition lie before a group's positions."""
    return {p: sum(offset < place for offset, _ in log[p]) for p, place in places.items()}


def resume(client: Client, group: str, topics: Iterable[str]) -> dict[tuple[str, int], list[Record]]:
    """Return what the members of a group get, up to the end of every partition. They commit nothing.

    A partition without a position fails: a reader would have to guess.
    """
    consumer, topics = _consumer(client, group, "error"), list(topics)
    try:
        consumer.subscribe(topics)
        there = {t: consumer.list_topics(t, PATIENCE_S).topics[t].partitions for t in topics}
        found: dict[tuple[str, int], list[Record]] = {(t, p): [] for t in topics for p in there[t]}
        for message in _until_end(consumer, set(found)):
            found[message.topic(), message.partition()].append(_record(message))
        return found
    finally:
        consumer.close()


def _until_end(consumer: Consumer, open_: set[tuple[str, int]]) -> Iterable[Any]:
    deadline = time.monotonic() + PATIENCE_S
    while open_:
        assert time.monotonic() < deadline, f"not read to the end within {PATIENCE_S} s: {sorted(open_)}"
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open_.discard((message.topic(), message.partition()))
            else:
                raise AssertionError(message.error())


def _record(message: Any) -> Record:
    return (message.timestamp(), message.key(), message.value(), message.headers())


def _consumer(client: Client, group: str, reset: str) -> Consumer:
    return Consumer(
        {
            **client, "group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True,
            "auto.offset.reset": reset,
        }
    )  # fmt: skip
