"""The tail: how long after its append on the source a record can be read on the target.

One thread produces at a steady pace, this one consumes on the target; both are confluent-kafka, in this process, so that
one clock is read. A record carries the time at which it was given to the producer. Warm-up is not counted. ``source``
measures the same way on the source alone: what is left when nobody has to copy. A load beside the probes goes into a
topic of its own, which the same mirror follows; nobody reads it here, since that would cost more than copying it.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.cluster import WireCluster
from benchmarks import systems
from benchmarks.cases import Tail
from benchmarks.load import Load
from benchmarks.systems import OURS, ROOT, Running, Task
from sandbox.process import Child

SOURCE_ALONE = "source"
PER_S = 200
_STAMP = struct.Struct(">qq")  # number, time given to the producer in ns
_PADDING = b"." * (200 - _STAMP.size)
_START_S = 300.0  # on a machine that others use too
_LATE_S = 10.0  # the last records have so long to arrive
_LOAD_LATE_S = 60.0  # and the load: nobody times it
_ENOUGH = 0.9  # of the load that was asked for


@dataclass(frozen=True)
class Latency:
    """Milliseconds from append to readable, over ``records`` records; ``failed`` says what was wrong instead."""

    tail: str
    system: str
    round: int
    records: int = 0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0
    failed: str | None = None


class _Pace(threading.Thread):
    """Produces numbered records, one after another over so many partitions, until told to stop."""

    def __init__(self, config: ClientConfig, topic: str, partitions: int) -> None:
        super().__init__(name="pace", daemon=True)
        self._producer = Producer(dict(config.properties) | {"linger.ms": 0, "acks": "all"})
        self._topic, self._partitions = topic, partitions
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            value = _STAMP.pack(self.sent, time.time_ns()) + _PADDING
            self._producer.produce(self._topic, value, partition=self.sent % self._partitions)
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

    def __init__(self, config: ClientConfig, topic: str, partitions: int) -> None:
        more = {"group.id": "benchmark", "enable.auto.commit": False, "fetch.wait.max.ms": 500, "fetch.min.bytes": 1}
        self._consumer = Consumer(dict(config.properties) | more)
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
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


@dataclass(frozen=True)
class Times:
    """Seconds: ``warm_s`` are left out, then ``length_s`` are measured."""

    warm_s: float
    length_s: float


def measure_latency(
    system: str, task: Task, round_number: int, times: Times, note: Callable[[str], None],
    on_failure: Callable[[str], None],
) -> Latency:  # fmt: skip
    """Let a system follow a fresh topic and time the records that come through.

    :param task: one with a tail.
    """
    tail, source, target = _tail(task), task.world.source, task.world.target
    alone = system == SOURCE_ALONE
    for case in (tail.probes, tail.load) if tail.load_mb_s else (tail.probes,):
        source.create(case.topic, case.partitions, case.settings)
        if not alone:
            target.create(f"{task.alias}.{case.topic}", case.partitions, case.settings)
    with nullcontext() if alone else systems.start(system, task) as running:
        watched = (source.plain, tail.probes.topic) if alone else (target.plain, task.target_topic)
        arrivals = _Arrivals(*watched, tail.hot)
        try:
            found = _observe(arrivals, system, task, times, running, note)
        finally:
            arrivals.close()
        if running is not None and isinstance(found, list) and system == OURS:
            found = systems.stop_tail(running) or found
        if isinstance(found, list):
            return summary(tail.name, system, round_number, found)
        if running is not None:
            on_failure(running.tail_of_log())
        return Latency(tail.name, system, round_number, failed=found)


def _tail(task: Task) -> Tail:
    assert task.tail is not None
    return task.tail


def _observe(
    arrivals: _Arrivals, system: str, task: Task, times: Times, running: Running | None,
    note: Callable[[str], None],
) -> list[float] | str:  # fmt: skip
    """Return the milliseconds of each record that was measured, or what was wrong."""
    tail = _tail(task)
    pace = _Pace(task.world.source.plain, tail.probes.topic, tail.hot)
    pace.start()
    try:
        if (wrong := _await_first(arrivals, running, note)) is not None:
            return wrong
        with _load(task) as load:
            if (wrong := _await_load(arrivals, task, load)) is not None:
                return wrong
            _take(arrivals, times.warm_s, "warming up", note)
            first, loaded = pace.sent, _written(task)
            _take(arrivals, times.length_s, "measuring", note)
            last, loaded = pace.sent, _written(task) - loaded
            if load is not None and load.status() is not None:
                return f"the load ended with status {load.status()}"
        sent = pace.finish()
        deadline = time.monotonic() + _LATE_S
        while len(arrivals.seen) < sent and time.monotonic() < deadline:
            arrivals.take(0.1)
    finally:
        pace.finish()
    if len(arrivals.seen) != sent or arrivals.twice:
        return f"{len(arrivals.seen)} of {sent} records arrived, {arrivals.twice} of them twice"
    wanted = tail.load_mb_s * 1e6 * times.length_s / tail.load.record_bytes
    if loaded < _ENOUGH * wanted:
        return f"the load had {loaded:,} records instead of {wanted:,.0f}"
    if system != SOURCE_ALONE and not _load_arrives(task):
        return f"the load did not arrive within {_LOAD_LATE_S:.0f} s"
    return [arrivals.seen[number] for number in range(first, last)]


@contextmanager
def _load(task: Task) -> Iterator[Child | None]:
    """Let the load flow, if the tail has one."""
    tail = _tail(task)
    if not tail.load_mb_s:
        yield None
        return
    task.work.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    command = Load(tail.name, dict(task.world.source.plain.properties)).command()
    child = Child(command, task.work / "load.log", task.work, environment)
    try:
        yield child
    finally:
        child.terminate(5)


def _await_load(arrivals: _Arrivals, task: Task, load: Child | None) -> str | None:
    """Wait until the load flows; return what is wrong if it does not."""
    deadline = time.monotonic() + _START_S
    while load is not None and not _written(task):
        arrivals.take(0.25)
        if load.status() is not None or time.monotonic() > deadline:
            return f"the load did not begin, status {load.status()}"
    return None


def _written(task: Task) -> int:
    """Return the records of the load on the source."""
    tail = _tail(task)
    if not tail.load_mb_s:
        return 0
    with WireCluster(task.world.source.plain) as wire:
        return sum(task.world.source.ends(wire, tail.load.topic, tail.load.partitions))


def _load_arrives(task: Task) -> bool:
    """Wait until all records of the load are on the target."""
    deadline = time.monotonic() + _LOAD_LATE_S
    tail, sent = _tail(task), _written(task)
    if not sent:
        return True
    with WireCluster(task.world.target.plain) as wire:
        while True:
            there = sum(task.world.target.ends(wire, f"{task.alias}.{tail.load.topic}", tail.load.partitions))
            if there == sent or time.monotonic() > deadline:
                return there == sent
            time.sleep(0.1)


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


def summary(tail: str, system: str, round_number: int, milliseconds: list[float]) -> Latency:
    """Return the quantiles of what was measured."""
    ordered = sorted(milliseconds)

    def quantile(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)

    p50, p90, p99, p999 = (quantile(share) for share in (0.5, 0.9, 0.99, 0.999))
    return Latency(tail, system, round_number, len(ordered), p50, p90, p99, p999, round(ordered[-1], 2))
