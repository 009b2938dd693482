"""The tail: how long after its append on the source a record can be read on the target.

One thread produces at a steady pace, this one consumes on the target; both are confluent-kafka, in this process, so that
one clock is read. A record carries the time at which it was given to the producer. Warm-up is not counted. ``source``
measures the same way on the source alone: what is left when nobody has to copy.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from airflow_mirror.config import ClientConfig
from benchmarks import systems
from benchmarks.cases import Case
from benchmarks.systems import OURS, Running, Task

SOURCE_ALONE = "source"
PER_S = 200
_STAMP = struct.Struct(">qq")  # number, time given to the producer in ns
_PADDING = b"." * (200 - _STAMP.size)
_START_S = 300.0  # on a machine that others use too
_LATE_S = 10.0  # the last records have so long to arrive
CASE = Case("latency", "", 0, 200, 1, "none")


@dataclass(frozen=True)
class Latency:
    """Milliseconds from append to readable, over ``records`` records; ``failed`` says what was wrong instead."""

    system: str
    round: int
    records: int = 0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    failed: str | None = None


class _Pace(threading.Thread):
    """Produces numbered records, one after another over all partitions, until told to stop."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        super().__init__(name="pace", daemon=True)
        self._producer = Producer(dict(config.properties) | {"linger.ms": 0, "acks": "all"})
        self._topic = topic
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            value = _STAMP.pack(self.sent, time.time_ns()) + _PADDING
            self._producer.produce(self._topic, value, partition=self.sent % CASE.partitions)
            self._producer.poll(0)
            self.sent += 1
            due += 1 / PER_S
            time.sleep(max(0.0, due - time.monotonic()))

    def finish(self) -> int:
        """Stop, wait for the broker's answers, return how many were sent."""
        self._over.set()
        self.join(5)
        self._producer.flush(10)
        return self.sent


class _Arrivals:
    """What comes out at the other end; ``seen`` has number -> milliseconds, ``twice`` counts repetitions."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        more = {"group.id": "benchmark", "enable.auto.commit": False, "fetch.wait.max.ms": 500, "fetch.min.bytes": 1}
        self._consumer = Consumer(dict(config.properties) | more)
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(CASE.partitions)])
        self.seen: dict[int, float] = {}
        self.twice = 0

    def take(self, timeout_s: float) -> None:
        """Take what arrives until the time is over."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            now = time.time_ns()
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            number, sent_at = _STAMP.unpack_from(message.value())
            self.twice += number in self.seen
            self.seen[number] = (now - sent_at) / 1e6

    def close(self) -> None:
        self._consumer.close()


def measure_latency(
    system: str, task: Task, round_number: int, warm_up_s: float, length_s: float, note: Callable[[str], None],
    on_failure: Callable[[str], None],
) -> Latency:  # fmt: skip
    """Let a system follow a fresh topic and time the records that come through."""
    source, target = task.world.source, task.world.target
    source.create(CASE.topic, CASE.partitions)
    if system == SOURCE_ALONE:
        return _observe(source.plain, source.plain, CASE.topic, system, round_number, warm_up_s, length_s, None, note)
    target.create(task.target_topic, CASE.partitions)
    with systems.start(system, task, latency=True) as running:
        found = _observe(
            source.plain, target.plain, task.target_topic, system, round_number, warm_up_s, length_s, running, note
        )
        if found.failed is None and system == OURS and (wrong := systems.stop_tail(running)) is not None:
            found = Latency(system, round_number, failed=wrong)
        if found.failed is not None:
            on_failure(running.tail_of_log())
        return found


def _observe(
    source: ClientConfig, target: ClientConfig, topic: str, system: str, round_number: int, warm_up_s: float,
    length_s: float, running: Running | None, note: Callable[[str], None],
) -> Latency:  # fmt: skip
    arrivals, pace = _Arrivals(target, topic), _Pace(source, CASE.topic)
    pace.start()
    try:
        if (wrong := _await_first(arrivals, running, note)) is not None:
            return Latency(system, round_number, failed=wrong)
        _take(arrivals, warm_up_s, "warming up", note)
        first = pace.sent
        _take(arrivals, length_s, "measuring", note)
        last = pace.sent
        sent = pace.finish()
        deadline = time.monotonic() + _LATE_S
        while len(arrivals.seen) < sent and time.monotonic() < deadline:
            arrivals.take(0.1)
    finally:
        pace.finish()
        arrivals.close()
    if len(arrivals.seen) != sent or arrivals.twice:
        return Latency(
            system, round_number, failed=f"{len(arrivals.seen)} of {sent} records arrived, {arrivals.twice} of them twice"
        )
    return summary(system, round_number, [arrivals.seen[number] for number in range(first, last)])


def _await_first(arrivals: _Arrivals, running: Running | None, note: Callable[[str], None]) -> str | None:
    deadline = time.monotonic() + _START_S
    while not arrivals.seen:
        note("starting")
        arrivals.take(0.25)
        if running is not None and running.ended() is not None:
            return f"ended with status {running.ended()}"
        if time.monotonic() > deadline:
            return f"no record after {_START_S:.0f} s"
    return None


def _take(arrivals: _Arrivals, seconds: float, what: str, note: Callable[[str], None]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        note(f"{what}, {left:.0f} s left")
        arrivals.take(min(1.0, left))


def summary(system: str, round_number: int, milliseconds: list[float]) -> Latency:
    """Return the quantiles of what was measured."""
    ordered = sorted(milliseconds)

    def quantile(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)

    return Latency(
        system, round_number, len(ordered), quantile(0.5), quantile(0.9), quantile(0.99), round(ordered[-1], 2)
    )
