"""Ways to write a topic: plain batches of a chosen codec, transactions that abort, a log to be compacted, bulk.

Every function returns when all of it is acknowledged, and raises when one record was not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from demo.clients import TIMEOUT_S, Settings, config
from demo.records import CODECS, Record

Progress = Callable[[float, float], None]
"""Called with (done, total) now and then."""


class Writer:
    """One producer with one codec. Records given to one ``write`` call go into one batch, if they fit (1 MB)."""

    def __init__(self, settings: Settings, codec: str = "none", transactional_id: str | None = None) -> None:
        more: dict[str, Any] = {"transactional_id": transactional_id} if transactional_id else {}
        # Nothing is sent before flush(): the batch is then what write() was given.
        more |= {"linger_ms": 2_000, "batch_num_messages": 100_000, "batch_size": 1_000_000}
        self.producer = Producer(config(settings, compression_type=codec, enable_idempotence=True, **more))
        self._failed: list[KafkaError] = []

    def write(self, topic: str, partition: int, records: Iterable[Record]) -> None:
        """Write records and wait for the acknowledgement.

        :raises KafkaException: the first error of a record.
        """
        for record in records:
            self.producer.produce(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                timestamp=record.timestamp_ms,
                headers=list(record.headers) or None,
                on_delivery=self._delivered,
            )
        self.flush()

    def flush(self) -> None:
        """Wait until everything is acknowledged.

        :raises KafkaException: the first error of a record, or a timeout.
        """
        left = self.producer.flush(TIMEOUT_S)
        if left and not self._failed:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} records without an answer"))
        if self._failed:
            raise KafkaException(self._failed[0])

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)


def write_in_batches(writer: Writer, topic: str, partition: int, records: Sequence[Record], sizes: Sequence[int]) -> None:
    """Write records in batches whose sizes repeat ``sizes``: one, a few, hundreds."""
    start = number = 0
    while start < len(records):
        size = sizes[number % len(sizes)]
        writer.write(topic, partition, records[start : start + size])
        start, number = start + size, number + 1


def write_transactions(
    settings: Settings, topic: str, partitions: int, records: Sequence[Record], rng: random.Random, progress: Progress
) -> tuple[int, int]:
    """Write records by three producers whose transactions overlap; a quarter of them abort.

    :return: committed and aborted transactions. Aborted records are in the log, where no read_committed reader sees them.
    """
    writers = [Writer(settings, codec, f"{topic}-app-{codec}") for codec in ("none", "lz4", "zstd")]
    for writer in writers:
        writer.producer.init_transactions(TIMEOUT_S)
    committed = aborted = start = 0
    while start < len(records):
        for writer in writers:
            writer.producer.begin_transaction()
        for writer in writers:
            size = rng.choice((1, 2, 9, 40))
            writer.write(topic, rng.randrange(partitions), records[start : start + size])
            start += size
        for writer in rng.sample(writers, k=len(writers)):  # ended in another order than begun
            # What was not flushed before an abort would never reach the log; write() has flushed.
            if rng.random() < 0.25:
                writer.producer.abort_transaction(TIMEOUT_S)
                aborted += 1
            else:
                writer.producer.commit_transaction(TIMEOUT_S)
                committed += 1
        progress(min(start, len(records)), len(records))
    return committed, aborted


def write_rounds(
    settings: Settings, topic: str, first_ms: int, rounds: int, rng: random.Random, progress: Progress
) -> int:
    """Write a changelog: ``rounds`` batches, a minute apart by their timestamps, over few keys, with tombstones.

    A round rewrites a run of neighbouring keys and some that are not, so that the cleaner leaves long holes and short
    ones. A segment is rolled by the timestamps of its records: with a small ``segment.ms`` each round gets its own, and
    the cleaner may take all but the last.

    :return: how many of these records the cleaner can remove.
    """
    writers = [Writer(settings, codec) for codec in CODECS]
    rewritten, seen, last = 0, set[int](), list[int]()
    for number in range(rounds):
        at_ms, first = first_ms + number * 60_000, rng.randrange(70 * rounds)
        last = [*range(first, first + rng.choice((1, 60, 180)))]
        last += [rng.randrange(70 * rounds) for _ in range(rng.choice((0, 2, 5)))]
        batch = [
            Record(at_ms + n, b"account-%d" % key, None if rng.random() < 0.1 else rng.randbytes(90))
            for n, key in enumerate(last)
        ]
        writers[number % len(writers)].write(topic, 0, batch)
        if number < rounds - 1:
            rewritten += len(last)
            seen.update(last)
        progress(number + 1, rounds)
    return rewritten - len(seen)


def write_bulk(
    settings: Settings, topic: str, partitions: int, values: Sequence[bytes], count: int, now_ms: int, progress: Progress
) -> None:
    """Write ``count`` records as fast as one process can; half of the partitions lz4, half zstd."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for part, codec in enumerate(("lz4", "zstd")):
        # Only failures are reported back: a callback for each of some 100,000 records costs more than the record.
        more = {"linger_ms": 50, "batch_num_messages": 100_000, "batch_size": 1_000_000}
        more |= {"queue_buffering_max_messages": 200_000, "delivery_report_only_error": True}
        producer = Producer(config(settings, compression_type=codec, **more) | {"on_delivery": delivered})
        produce = producer.produce
        for number in range(part * count // 2, (part + 1) * count // 2):
            partition = (number // 900 * 2 + part) % partitions  # runs, so that batches fill up
            while True:
                try:
                    produce(
                        topic, values[number % len(values)], b"session-%d" % (number % 9973), partition,
                        timestamp=now_ms - count + number,
                    )  # fmt: skip
                    break
                except BufferError:  # the broker is slower than we are
                    producer.poll(0.1)
            if number % 10_000 == 0:
                producer.poll(0)
                progress(number, count)
        if producer.flush(2 * TIMEOUT_S) or failed:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT, f"{topic}: no answer"))


def wait_for_cleaner(
    settings: Settings, topic: str, written: int, removable: int, note: Callable[[str], None], timeout_s: float = 300.0
) -> None:
    """Wait until the log cleaner has removed what it can from partition 0 of a topic.

    :raises TimeoutError: when it has not in ``timeout_s`` seconds, with what it did.
    """
    deadline, removed = time.monotonic() + timeout_s, 0
    while time.monotonic() < deadline:
        removed = written - _count(settings, topic)
        note(f"the log cleaner removed {removed:,} of {written:,} records so far")
        if removed >= removable:
            return
        time.sleep(0.4)
    raise TimeoutError(f"topic {topic!r}: the log cleaner removed {removed} of {removable} records in {timeout_s:.0f} s")


def _count(settings: Settings, topic: str) -> int:
    more = {"enable_auto_commit": False, "enable_partition_eof": True, "auto_offset_reset": "error"}
    consumer = Consumer(config(settings, group_id="demo-count", **more))
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        while True:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    return count
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
