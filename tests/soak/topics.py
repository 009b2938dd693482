"""The hostile topics of the soak: what real clusters hold, made quickly.

Every topic keeps its log open for ever on both sides; otherwise the source would lose records that the target still has,
and nothing could be compared.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.priming import prime
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config, create, ends, write, write_transactions

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Topic:
    """A topic of the soak.

    :param stamped: LogAppendTime on the source; the copy has the same times, but as times of creation.
    :param transactional: live traffic to it is transactional, a third of it aborted.
    :param delivery: how the copy writes; None for identical offsets, else offsets are mapped.
    """

    name: str
    partitions: int
    stamped: bool = False
    transactional: bool = False
    configs: dict[str, str] = field(default_factory=dict)
    delivery: str | None = None

    @property
    def keeps_old_times(self) -> bool:
        """Whether a record with an old time stays."""
        return "retention_ms" not in self.configs

    def all_partitions(self) -> list[TopicPartition]:
        """Every partition of it."""
        return [TopicPartition(self.name, p) for p in range(self.partitions)]


TOPICS = (
    Topic("codecs", 2),
    Topic("transactions", 2, transactional=True),
    Topic("stamped", 1, stamped=True, transactional=True, configs={"message_timestamp_type": "LogAppendTime"}),
    Topic("compacted", 1),
    Topic("primed", 1),
)
# Each of these has copiers of its own: delivery is a matter of the whole task.
MAPPED = (
    Topic("mapped", 2, transactional=True, delivery="idempotent"),
    Topic("delivered", 2, transactional=True, delivery="transactional"),
)
_PRIMED_UP_TO = 1_234_567


def make(source: Cluster, target: Cluster, replicas: int, rng: random.Random) -> None:
    """Create all topics on both sides and fill them on the source."""
    for topic in (*TOPICS, *MAPPED):
        cleaned = topic.name == "compacted"
        cleaning = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "100"}
        settings = topic.configs | (cleaning | {"max_compaction_lag_ms": "100"} if cleaned else {})
        create(source, topic.name, topic.partitions, replicas, **settings)
        create(target, topic.name, topic.partitions, replicas)
    _compact(source, "compacted", rng)
    _start_above_zero(source, "primed")
    for number, codec in enumerate(CODECS):
        write(source, "codecs", 1200, rng.getrandbits(30), codec, number % 2, **{"batch.size": "20000"})
        write(source, "stamped", 200, rng.getrandbits(30), codec)
        write(source, "primed", 400, rng.getrandbits(30), codec)
        for topic in MAPPED:
            write(source, topic.name, 150, rng.getrandbits(30), codec, number % 2)
    for topic in (*TOPICS, *MAPPED):
        if topic.transactional:
            write_transactions(source, topic.name, rng.getrandbits(30), 25, topic.partitions)
    with WireCluster(config(source)) as wire:  # inside a batch
        wire.delete_records({TopicPartition("primed", 0): _PRIMED_UP_TO + 537}, unfenced)


def _start_above_zero(source: Cluster, topic: str) -> None:
    """Let the log begin far above 0, as one does that lost its first million records to retention."""
    with WireCluster(config(source)) as wire:
        wire.refresh([topic])
        prime(wire, "soak-source", TopicPartition(topic, 0), 0, _PRIMED_UP_TO, lambda: None)


def _compact(source: Cluster, topic: str, rng: random.Random) -> None:
    """Let the broker's cleaner make holes inside batches of every codec, then keep it from making more.

    A cleaner that went on would take records from the source that the target still has.
    """
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": source.bootstrap, "compression.type": codec, "linger.ms": 50})
        for i in range(1500):
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randint(0, 60))
            producer.produce(topic, value, b"key %d" % rng.randint(0, 900), timestamp=1_600_000_000_000 + i)
        producer.flush(240)
        time.sleep(0.15)  # longer than segment.ms: the next batch rolls the segment
    ticker = Producer({"bootstrap.servers": source.bootstrap})
    deadline = time.monotonic() + 90
    while not _has_holes(source, topic):
        assert time.monotonic() < deadline, "the cleaner did not come"
        ticker.produce(topic, b"tick", b"tick")  # the active segment is never cleaned; this one rolls it
        ticker.flush(240)
        time.sleep(0.5)
    # segment.ms at its default again, or every burst would begin a file of its own.
    entries = {"cleanup.policy": "delete", "segment.ms": "604800000"}
    changes = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in entries.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(240)
    time.sleep(3)  # a cleaning that is under way ends by itself


def _has_holes(source: Cluster, topic: str) -> bool:
    from tests.integration.copying import read

    start, _, end = ends(source, topic)[0]
    return len(read(source, topic)) < (end - start) * 0.7
