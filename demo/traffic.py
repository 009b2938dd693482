"""Live traffic: a producer and a consumer group that are there before, during and after the cutover.

The producer numbers its records and remembers which numbers a cluster has acknowledged: those are promises. The group
remembers which numbers it has seen. Afterwards both lists are compared: re-read and lost records are counted, not
estimated. Neither knows anything about the mirror. The producer learns of the fence as every producer would, from an
error; the group is told by its operator, who sees the producer silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from demo.clients import TIMEOUT_S, Partition, Settings, config
from demo.verdict import TrafficResult, count_traffic

PER_SECOND = 200


def value_of(number: int) -> bytes:
    """Return the value of record ``number``; the number is readable again with :func:`number_of`."""
    return b'{"seq": %012d, "page": "/article/%d"}' % (number, number % 371)


def number_of(value: bytes) -> int:
    """Return the number of a record."""
    return int(value[8:20])


class LiveProducer:
    """Writes numbered records until the cluster refuses them, and continues elsewhere when told to.

    :param per_second: records per second.
    """

    def __init__(self, topic: str, per_second: int = PER_SECOND) -> None:
        self.topic, self.per_second = topic, per_second
        self.acknowledged: dict[str, list[int]] = {}
        self.refused: list[int] = []
        self.errors: list[str] = []
        self.fenced = threading.Event()
        """Set when a record was refused and every other one has its answer: nothing is under way any more."""
        self.last_ack = self.first_ack = 0.0
        self._next = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, cluster: str, settings: Settings) -> None:
        """Begin to write to ``cluster``: first what another one has refused, then new numbers."""
        again = list(self.refused)
        self._stop.clear()
        self.first_ack = 0.0
        run = _Run(self, cluster, settings, again)
        self._thread = threading.Thread(target=run, name=f"live-producer-{cluster}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the answers to what is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * TIMEOUT_S)

    def take(self) -> int:
        """Return the next number."""
        self._next += 1
        return self._next - 1

    @property
    def stopping(self) -> bool:
        """Whether stop was asked for."""
        return self._stop.is_set()


class _Run:
    """One life of the producer, on one cluster."""

    def __init__(self, owner: LiveProducer, cluster: str, settings: Settings, again: list[int]) -> None:
        self.owner, self.again, self.refused = owner, again, False
        self.acknowledged = owner.acknowledged.setdefault(cluster, [])
        more: dict[str, Any] = {"enable_idempotence": True, "compression_type": "lz4", "linger_ms": 5}
        self.producer = Producer(config(settings, **more))

    def __call__(self) -> None:
        owner, tick_s = self.owner, 0.05
        # What was refused is owed first, in its order.
        del owner.refused[: len(self.again)]
        for number in self.again:
            self._produce(number)
        due = time.monotonic()
        while not self.refused and not owner.stopping:
            for _ in range(max(1, round(owner.per_second * tick_s))):
                self._produce(owner.take())
            self.producer.poll(0)
            due += tick_s
            time.sleep(max(0.0, due - time.monotonic()))
        left = self.producer.flush(TIMEOUT_S)
        if left:
            owner.errors.append(f"live producer: {left} records without an answer after {TIMEOUT_S:.0f} s")
        if self.refused:
            owner.refused.sort()
            owner.fenced.set()

    def _produce(self, number: int) -> None:
        def answered(error: KafkaError | None, _message: Message) -> None:
            self._answered(number, error)

        key = b"visitor-%d" % (number % 53)
        try:
            self.producer.produce(self.owner.topic, value_of(number), key, on_delivery=answered)
        except KafkaException as e:  # the client knows already that it may not write: the same answer, only sooner
            self._answered(number, e.args[0])

    def _answered(self, number: int, error: KafkaError | None) -> None:
        owner = self.owner
        if error is None:
            self.acknowledged.append(number)
            owner.last_ack = time.monotonic()
            owner.first_ack = owner.first_ack or owner.last_ack
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            owner.refused.append(number)
            self.refused = True
        else:
            owner.errors.append(f"live producer: record {number}: {error.str()}")


class LiveGroup:
    """A consumer group of one member that commits what it has read, and continues at its committed position."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        self.read: list[int] = []
        self.errors: list[str] = []
        self.started_at: dict[Partition, int] = {}
        """The committed positions from which the last life began."""
        self._leave, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, settings: Settings, from_start: bool = False) -> None:
        """Join the group on a cluster and read.

        :param from_start: a group without positions begins at the log start. Otherwise it is an error: after a
            migration a group that has no valid position would jump, and read again or lose.
        """
        self._leave.clear()
        more: dict[str, Any] = {"auto_offset_reset": "earliest" if from_start else "error"}
        # Short: a request that waits at the log end also holds up the question where the end is.
        more |= {"isolation_level": "read_committed", "enable_auto_commit": False, "fetch_wait_max_ms": 50}
        consumer = Consumer(config(settings, group_id=self.group, **more))
        run = self._guarded(lambda: self._consume(consumer))
        self._thread = threading.Thread(target=run, name="live-group", daemon=True)
        self._thread.start()

    def leave_at_end(self) -> None:
        """Let it read up to the end of the log, commit and leave the group; returns when it has."""
        self._leave.set()
        if self._thread is not None:
            self._thread.join(2 * TIMEOUT_S)
            if self._thread.is_alive():
                self.errors.append(f"live group: not at the end of the log after {2 * TIMEOUT_S:.0f} s")

    def stop(self) -> None:
        """Leave the group at once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(TIMEOUT_S)

    def _guarded(self, run: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                run()
            except KafkaException as e:  # the rim of a thread: what it raises nobody would see
                self.errors.append(f"live group: {e.args[0]}")

        return guarded

    def _consume(self, consumer: Consumer) -> None:
        consumer.subscribe([self.topic], on_assign=self._remember)
        try:
            while not self._stop.is_set():
                leaving = self._leave.is_set()  # looked at before the log end: what is under way then is read below
                messages = consumer.consume(1_000, 0.1)
                for message in messages:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    self.read.append(number_of(message.value()))
                if messages:
                    consumer.commit(asynchronous=False)
                elif leaving and _at_end(consumer):
                    return
        finally:
            consumer.close()

    def _remember(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        committed = consumer.committed(assigned, TIMEOUT_S)
        self.started_at = {Partition(tp.topic, tp.partition): tp.offset for tp in committed if tp.offset >= 0}


def _at_end(consumer: Consumer) -> bool:
    assigned = consumer.assignment()
    for tp in consumer.position(assigned):
        _start, end = consumer.get_watermark_offsets(tp, TIMEOUT_S)
        position = tp.offset
        if position == OFFSET_INVALID:  # nothing read yet in this life
            position = consumer.committed([tp], TIMEOUT_S)[0].offset
        if max(position, 0) < end:
            return False
    return bool(assigned)


class LiveTraffic:
    """Both of them, with the operator's moves: start, step aside for the cutover, continue on the target, finish."""

    def __init__(self, topic: str, group: str, per_second: int = PER_SECOND) -> None:
        self.producer, self.group = LiveProducer(topic, per_second), LiveGroup(topic, group)
        self.silent_s, self.refused = 0.0, 0
        self._watcher: threading.Thread | None = None

    def start(self, source: Settings) -> None:
        """Begin on the source; the group leaves by itself once the producer is fenced and everything is read."""
        self.group.start(source, from_start=True)
        self.producer.start("source", source)
        self._watcher = threading.Thread(target=self._leave_when_fenced, name="live-operator", daemon=True)
        self._watcher.start()

    def _leave_when_fenced(self) -> None:
        self.producer.fenced.wait()
        self.group.leave_at_end()

    @property
    def has_left_source(self) -> bool:
        """Whether the producer was fenced and the group is gone."""
        return self._watcher is not None and not self._watcher.is_alive()

    def go_on(self, target: Settings) -> None:
        """Begin on the target."""
        last_ack = self.producer.last_ack
        self.refused = len(self.producer.refused)
        self.group.start(target)
        self.producer.start("target", target)
        deadline = time.monotonic() + TIMEOUT_S
        while not self.producer.first_ack and not self.producer.errors and time.monotonic() < deadline:
            time.sleep(0.02)
        self.silent_s = max(0.0, self.producer.first_ack - last_ack)

    def finish(self) -> TrafficResult:
        """Stop both, the group at the end of the log, and count."""
        self.producer.stop()
        self.producer.fenced.set()  # lets the watcher end if there never was a fence
        self.group.leave_at_end()
        acknowledged = self.producer.acknowledged
        return count_traffic(
            acknowledged.get("source", ()),
            acknowledged.get("target", ()),
            self.refused,
            self.group.read,
            self.silent_s,
            [*self.producer.errors, *self.group.errors],
        )

    def stop(self) -> None:
        """Stop both at once, wherever they are. Nothing is counted."""
        self.producer.stop()
        self.group.stop()

    def values_on_target(self) -> list[bytes]:
        """Return the values that the target has acknowledged: what must stand behind the migrated records."""
        return [value_of(number) for number in self.producer.acknowledged.get("target", ())]
