"""Live traffic: producers that go on while copiers die. They die too, now and then, in the middle of a transaction."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config
from tests.soak.topics import CODECS, MAPPED, TOPICS, Topic

_IDEMPOTENT = ("lz4", "zstd")  # codecs of producers that number their batches
_MORTAL = 2  # the producer that leaves transactions open
_TIMEOUT_MS = 60_000  # of the others' transactions
_ABANDONED_MS = 6000  # after this the coordinator aborts what it left
_SILENT = logging.getLogger("soak.producers")  # their connections break on purpose
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Traffic:
    """Appends to every topic in a thread of its own until closed.

    :param topics: at least one with transactions, and one without.
    :ivar topics: replaced as a whole, by anybody.
    :ivar written: records handed to producers, aborted ones included.
    :ivar aborted: transactions.
    :ivar pace_s: pause between two bursts.
    """

    def __init__(self, source: Cluster, seed: int, topics: Sequence[Topic] = (*TOPICS, *MAPPED)) -> None:
        self._source, self._rng, self.topics = source, random.Random(seed), tuple(topics)
        self.written, self.aborted, self.pace_s, self.failures = 0, 0, 0.12, 0
        self._run, self._idle, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._plain: dict[str, Producer] = {}
        self._transactional: dict[int, Producer] = {}
        self._thread = threading.Thread(target=self._loop, name="traffic", daemon=True)
        self._thread.start()
        self._run.set()

    def pause(self) -> None:
        """Stop appending; return when every transaction has ended and its markers are in the log."""
        self._run.clear()
        assert self._idle.wait(150), "the producers did not come to rest"
        with WireCluster(config(self._source)) as wire:
            partitions = [tp for t in self.topics for tp in t.all_partitions()]
            # One whose producer was given up ends by its timeout, at which the coordinator looks every ten seconds.
            deadline = time.monotonic() + 2 * _TIMEOUT_MS / 1000 + 30
            while wire.last_stable(partitions) != wire.log_ends(partitions):
                assert time.monotonic() < deadline, "a transaction on the source did not end"
                time.sleep(0.1)

    def ends(self) -> dict[TopicPartition, int]:
        """Return where the source's logs end."""
        with WireCluster(config(self._source)) as wire:
            return wire.log_ends([tp for t in self.topics for tp in t.all_partitions()])

    def resume(self) -> None:
        """Go on."""
        self._idle.clear()
        self._run.set()

    def backlog(self, bursts: int = 60) -> None:
        """Append much at once, from the caller's thread; only while paused."""
        assert self._idle.is_set()
        for _ in range(bursts):
            self._burst()
        self._flush()

    def close(self) -> None:
        """End."""
        self._closed.set()
        self._run.set()
        self._thread.join(30)

    def _loop(self) -> None:
        while not self._closed.is_set():
            if not self._run.is_set():
                self._flush()
                self._idle.set()
                self._run.wait()
                continue
            self._burst()
            time.sleep(self.pace_s * self._rng.random() * 2)

    def _burst(self) -> None:
        try:
            if self._rng.random() < 0.5:
                self._append()
            else:
                self._transact()
        except (KafkaException, BufferError):
            # Brokers of the source die too. Which of these records arrived does not matter: the log is the truth.
            self.failures += 1
            self._plain.clear()
            self._transactional.clear()

    def _append(self) -> None:
        topic, codec = self._some(transactional=False), self._rng.choice(CODECS)
        if codec not in self._plain:
            conf: dict[str, str | int] = {"compression.type": codec, "linger.ms": 5}
            self._plain[codec] = self._producer(conf | {"enable.idempotence": str(codec in _IDEMPOTENT).lower()})
        producer = self._plain[codec]
        self._produce(producer, topic, self._rng.randint(1, 150))
        producer.poll(0)

    def _transact(self) -> None:
        """Interleave transactions of up to three producers; some leave theirs open and are never heard of again."""
        numbers = self._rng.sample(range(3), self._rng.randint(1, 3))
        producers = [self._open(number) for number in numbers]
        for producer in producers:
            producer.begin_transaction()
        for _ in range(self._rng.randint(1, 3)):
            for producer in producers:
                self._produce(producer, self._some(transactional=True), self._rng.choice([1, 2, 5, 40]))
            if self._rng.random() < 0.5:
                producers[0].flush(10)
        for number, producer in zip(numbers, producers, strict=True):
            chance = self._rng.random()
            if number == _MORTAL and chance < 0.03:
                producer.flush(10)
                self._transactional.pop(number)  # its successor has another id, so that nothing fences this one
            elif chance < 0.34:
                producer.abort_transaction(20)
                self.aborted += 1
            else:
                producer.commit_transaction(20)

    def _some(self, *, transactional: bool) -> Topic:
        return self._rng.choice([t for t in self.topics if t.transactional == transactional])

    def _open(self, number: int) -> Producer:
        if number not in self._transactional:
            conf: dict[str, str | int] = {
                "transactional.id": f"soak-{number}-{self._rng.getrandbits(40)}",
                "linger.ms": 1,
            }
            timeout_ms = _ABANDONED_MS if number == _MORTAL else _TIMEOUT_MS
            producer = self._producer(conf | {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms})
            producer.init_transactions(30)
            self._transactional[number] = producer
        return self._transactional[number]

    def _producer(self, conf: dict[str, str | int]) -> Producer:
        base = {"bootstrap.servers": self._source.bootstrap, "log_level": 0, "message.timeout.ms": 60_000}
        return Producer(base | conf, logger=_SILENT)

    def _produce(self, producer: Producer, topic: Topic, count: int) -> None:
        rng = self._rng
        old = topic.keeps_old_times and rng.random() < 0.5
        for _ in range(count):
            at = 1_500_000_000_000 + rng.randint(-(10**10), 10**10) if old else 0  # 0: now
            value = rng.choice([None, b"", rng.randbytes(rng.randint(1, 400))])
            partition = rng.randrange(topic.partitions)
            producer.produce(topic.name, value, rng.randbytes(5), partition, timestamp=at, headers=[("h", b"\xff")])
            self.written += 1

    def _flush(self) -> None:
        for producer in [*self._plain.values(), *self._transactional.values()]:
            producer.flush(20)
