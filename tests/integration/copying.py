"""What the tests of the copy engine share: fill a topic, run a copier (here or as a process of its own), read both sides.

The referee is a plain confluent-kafka consumer with CRC checks on; nothing of our wire code judges a copy.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Assigned

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.config import ClientConfig
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from sandbox import Cluster
from sandbox.certificates import Authority
from tests.waiting import wait_until as wait_until
from tests.watermarks import watermarks

# While leaders move and brokers come back, the consumer reports what it then gets over by itself.
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
HELD_OPEN = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
# A linger.ms with which only flush() or a full batch ends a batch, and no pause of a busy machine does.
TILL_FLUSH = 60_000
Seen = tuple[int, tuple[int, int], bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


class WithLogin(Cluster):
    """A cluster to which our clients log in; the referee goes by the open listener."""

    @property
    def settings(self) -> dict[str, str]:
        """A client's settings."""
        raise NotImplementedError


class EncryptedCluster(WithLogin):
    """One node to which our clients speak TLS and SASL; the referee goes by the open listener.

    :param directory: for the node's key.
    """

    def __init__(self, name: str, directory: Path, overrides: Mapping[str, str] | None = None, **kw: Any) -> None:
        self._authority = Authority("test authority")
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_SSL"
        tls = self._authority.broker_settings(directory) | {"listener.security.protocol.map": protocols}
        super().__init__(name, overrides=tls | dict(overrides or {}), authorizer=True, **kw)

    @property
    def settings(self) -> dict[str, str]:
        """A client's settings."""
        return {
            "bootstrap.servers": self.bootstrap_sasl,
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": self._authority.certificate,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "mirror",
            "sasl.password": "mirror-secret",
        }


def config(cluster: Cluster) -> ClientConfig:
    if isinstance(cluster, WithLogin):
        return ClientConfig(cluster.settings, cluster.name)
    return ClientConfig({"bootstrap.servers": cluster.bootstrap}, cluster.name)


def properties_of(directory: Path, source: Cluster, target: Cluster) -> list[str]:
    """Write a file of client properties for each cluster; return the arguments of a job that name them.

    What is there already stays: a process that runs may be reading it.
    """
    arguments = []
    for role, cluster in (("source", source), ("target", target)):
        lines = (f"{key}={value}".replace("\n", "\\n") for key, value in config(cluster).properties.items())
        file, text = directory / f"{role}.properties", "\n".join((f"# {role}", *lines, ""))
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        arguments += [f"--{role}", str(file)]
    return arguments


def flow_of(directory: Path, source: Cluster, target: Cluster, topic: str) -> list[str]:
    """Return the arguments of a job that copies one topic, for a mirror of its name."""
    return [*properties_of(directory, source, target), "--include", topic, "--name", topic]


def create(cluster: Cluster, topic: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    settings = HELD_OPEN | {k.replace("_", "."): v for k, v in configs.items()}
    if cluster.release.number < (3, 6):
        del settings["message.timestamp.after.max.ms"]
    with ClusterAdmin(config(cluster)) as admin:
        admin.create_topics([NewTopicSpec(topic, partitions, replicas, settings)], unfenced)
    # The controller has the topic; brokers hear of it later, on a busy machine by more than our clients wait for.
    deadline = time.monotonic() + 240
    with WireCluster(config(cluster)) as wire:
        while True:
            try:
                wire.log_ends([TopicPartition(topic, p) for p in range(partitions)])
                return
            except UnknownTopic:
                assert time.monotonic() < deadline, f"not within 240 s: the broker has heard of {topic}"


def write(
    cluster: Cluster, topic: str, count: int, seed: int, codec: str = "none", partition: int = 0, **conf: str
) -> None:
    """Append records as real topics hold them: null and empty parts, binary, repeated headers, old and falling times."""
    rng = random.Random(seed)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": TILL_FLUSH, **conf}
    )
    for i in range(count):
        producer.produce(
            topic,
            value=rng.choice([None, b"", b"value %d" % i, rng.randbytes(rng.randint(1, 900))]),
            key=rng.choice([None, b"", b"k%d" % rng.randint(0, 9), rng.randbytes(7)]),
            partition=partition,
            timestamp=1_500_000_000_000 + rng.randint(-(10**10), 10**10),
            headers=rng.choice([[], [("h", None)], [("h", b"1"), ("h", b"\xff\x00"), ("é", b"")]]),
        )
        if rng.random() < 0.01:
            producer.flush(240)
    assert producer.flush(240) == 0


def write_transactions(cluster: Cluster, topic: str, seed: int, transactions: int = 12, partitions: int = 1) -> None:
    """Append interleaved transactions of three producers, a third of them aborted."""
    rng = random.Random(seed)
    producers = []
    for number in range(3):
        conf = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 1}
        producers.append(Producer(conf))
        producers[-1].init_transactions()
    for _ in range(transactions):
        for producer in producers:
            producer.begin_transaction()
            for i in range(rng.randint(1, 60)):
                producer.produce(topic, b"v%d" % i, b"k%d" % rng.randint(0, 20), partition=rng.randrange(partitions))
            producer.flush()
        for producer in producers:
            producer.abort_transaction() if rng.random() < 0.34 else producer.commit_transaction()
    await_stable(cluster, topic, partitions)


def abort_transaction(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    """Append to each partition records of a transaction that is aborted, as when its producer is fenced in the middle."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-cut", "linger.ms": 1})
    producer.init_transactions()
    producer.begin_transaction()
    for partition in range(partitions):
        for _ in range(3):
            producer.produce(topic, b"never seen", b"k", partition=partition)
    producer.flush()
    producer.abort_transaction()
    await_stable(cluster, topic, partitions)


def read(
    cluster: Cluster, topic: str, partition: int = 0, timeout_s: float = 240.0, first: int | None = None
) -> list[Seen]:
    """Return what a read_committed consumer sees of a partition, from its start (or offset ``first``) to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "referee",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )
    # A broker that came back a moment ago may not know yet who leads it.
    start, end = watermarks(consumer, Assigned(topic, partition), timeout_s, KafkaError.NOT_LEADER_FOR_PARTITION)
    start = start if first is None else first
    consumer.assign([Assigned(topic, partition, start)])
    seen: list[Seen] = []
    deadline = time.monotonic() + timeout_s
    while start < end:
        messages = consumer.consume(1000, 0.2)  # waits for as many, or as long as that
        assert messages or time.monotonic() < deadline, f"{topic}-{partition}: stalled after {len(seen)} records"
        deadline = time.monotonic() + timeout_s if messages else deadline
        messages = [m for m in messages if not m.error() or m.error().code() not in _PASSING]
        failed = [m for m in messages if m.error() and m.error().code() != KafkaError._PARTITION_EOF]
        assert not failed, failed[0].error()
        seen += [(m.offset(), m.timestamp(), m.key(), m.value(), m.headers()) for m in messages if not m.error()]
        if any(m.error() for m in messages):
            break
    consumer.close()
    return seen


def ends(cluster: Cluster, topic: str, partitions: int = 1) -> dict[int, tuple[int, int, int]]:
    """Return (log start, last stable offset, true log end) of each partition."""
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    with WireCluster(config(cluster)) as wire:
        starts, stable, log_ends = wire.log_starts(tps), wire.last_stable(tps), wire.log_ends(tps)
    return {tp.partition: (starts[tp], stable[tp], log_ends[tp]) for tp in tps}


def await_stable(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    """Wait until readers get to the end of each log: until then records or markers at its end would be missed.

    A commit returns before its markers are in the log, and a new leader has to learn how far its log is replicated.
    """
    wait_until(
        lambda: all(stable == end for _, stable, end in ends(cluster, topic, partitions).values()),
        f"readers of {topic} get to its end",
    )


def ranges_of(source: Cluster, topic: str, partitions: int = 1, committed: bool = True) -> list[CopyRange]:
    """Return the whole of a topic as it stands now."""
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    with WireCluster(config(source)) as wire:
        wire.refresh([topic])
        starts = wire.log_starts(tps)
        stop = wire.last_stable(tps) if committed else wire.high_watermarks(tps)
        identity = wire.topic_id(topic)
    return [
        CopyRange(
            source_topic=topic,
            target_topic=topic,
            partition=tp.partition,
            start_offset=starts[tp],
            end_offset=stop[tp],
            source_topic_id=identity,
        )
        for tp in tps
    ]


def copy(
    source: Cluster, target: Cluster, ranges: Iterable[CopyRange], mirror: str = "m", duration_s: float | None = None,
    **options: object,
) -> list[PartitionResult]:  # fmt: skip
    """Copy in this process, under a lease of its own."""
    ranges = _ready(target, ranges)
    os.environ["TEST_SOURCE"], os.environ["TEST_TARGET"] = config(source).dump(), config(target).dump()
    with WireCluster(config(target)) as wire:
        token = lease.take(wire, mirror)
        work = CopyWork(
            source="env:TEST_SOURCE",
            target="env:TEST_TARGET",
            options=replace(CopyOptions(mirror=mirror), **options),
            lease=token,
        )  # type: ignore[arg-type]
        try:
            return copy_ranges(work, list(ranges), duration_s)
        finally:
            lease.release(wire, token)


def copier_process(
    source: Cluster, target: Cluster, ranges: Iterable[CopyRange], mirror: str = "m", wait: bool = True, **options: object
) -> subprocess.Popen[str]:
    """Start a copier as a process of its own session, to be killed or frozen; prints results as JSON lines."""
    spec = {"mirror": mirror, "ranges": [r.to_dict() for r in named(target, ranges)], "wait": wait, "options": options}
    env = os.environ | {
        "TEST_SOURCE": config(source).dump(),
        "TEST_TARGET": config(target).dump(),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("copier_main.py")), json.dumps(spec)],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def _ready(target: Cluster, ranges: Iterable[CopyRange]) -> list[CopyRange]:
    """Create the topic of offset maps if one of the ranges needs it, and name the target's topics, as a driver does."""
    found = named(target, ranges)
    if any(one.is_mapped for one in found):
        with ClusterAdmin(config(target)) as admin:
            make_ready(admin)
    return found


def named(target: Cluster, ranges: Iterable[CopyRange]) -> list[CopyRange]:
    """Return ranges with the present ids of their target topics, where these are there and have one."""
    found = list(ranges)
    with ClusterAdmin(config(target)) as admin:
        topics = admin.topics({r.target_topic for r in found})
    return [
        replace(r, target_topic_id=topics[r.target_topic].topic_id if r.target_topic in topics else None) for r in found
    ]


def map_keys(target: Cluster, topic: str) -> dict[str, int]:
    """Return the keys of what is stored of a topic's offset maps, each with its partition of the maps topic."""
    found: dict[str, int] = {}
    with WireCluster(config(target)) as wire:
        for partition in range(MAP_PARTITIONS):
            log = TopicLog(wire, MAPS, partition)
            for record in log.read(log.start()):
                key = (record.key or b"").decode()
                if f"/{topic}/" in key and record.value is not None:
                    found[key] = partition
                elif record.value is None:
                    found.pop(key, None)
    return found


def lose(target: Cluster, keys: Mapping[str, int]) -> None:
    """Lose something of what is stored of offset maps; see :func:`map_keys`."""
    with WireCluster(config(target)) as wire:
        for key, partition in keys.items():
            TopicLog(wire, MAPS, partition).put({key: None}, 240)


def results_of(process: subprocess.Popen[str], timeout_s: float = 300.0) -> list[PartitionResult]:
    """Wait for a copier process and return what it reported."""
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, err
    return [PartitionResult(**json.loads(line)) for line in out.splitlines() if line.startswith("{")]


def assert_equal(source: Cluster, target: Cluster, topic: str, partitions: int = 1) -> None:
    """Same records, offsets, timestamps, headers; same log start, last stable offset and log end."""
    for p in range(partitions):
        here, there = read(source, topic, p), read(target, topic, p)
        first = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
        assert first is None, f"{topic}-{p} differs at record {first}: {here[first]} != {there[first]}"
        assert len(here) == len(there), f"{topic}-{p}: {len(here)} records on the source, {len(there)} on the target"
    assert ends(source, topic, partitions) == ends(target, topic, partitions)
