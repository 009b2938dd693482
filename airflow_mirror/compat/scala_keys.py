"""Keys of the clients before Java's: the Scala consumer and producer of Kafka 0.8 to 1.1, whose names the Go client took.

Their files come along with the first MirrorMaker and the Go mirror maker. Where a key is also one of a Java client, that
table has it; :func:`modern` gives the others their newer names.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_mirror.compat.client_keys import CONSUMER as JAVA_CONSUMER
from airflow_mirror.compat.client_keys import PRODUCER as JAVA_PRODUCER
from airflow_mirror.compat.client_keys import RECOMPRESSED
from airflow_mirror.compat.rows import Table, mapped, no_effect, refused

_ZOOKEEPER = "brokers are asked, not ZooKeeper. Remove it, and name the source's brokers in bootstrap.servers"
_NO_GROUP = "the copy reads without a consumer group; its progress is on the target"
_OWN_PACE = "the engine sizes its requests and buffers by what it copies"

CONSUMER = JAVA_CONSUMER.but(
    mapped("group.id", "--start-group", "where the copy begins, and the mirror's name; the copy itself reads without a "
           "group"),
) + Table(
    refused("zookeeper.connect", _ZOOKEEPER),
    *no_effect("ZooKeeper is not asked", "zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms",
               "zookeeper.sync.time.ms"),
    *no_effect(_NO_GROUP, "consumer.id", "auto.commit.enable", "rebalance.max.retries", "rebalance.backoff.ms",
               "offsets.storage", "offsets.channel.backoff.ms", "offsets.channel.socket.timeout.ms",
               "offsets.commit.max.retries", "dual.commit.enabled", "consumer.timeout.ms"),
    *no_effect(_OWN_PACE, "socket.timeout.ms", "socket.receive.buffer.bytes", "fetch.message.max.bytes",
               "num.consumer.fetchers", "queued.max.message.chunks", "fetch.wait.max.ms"),
    *no_effect("brokers are asked again whenever a leader is lost", "refresh.leader.backoff.ms"),
)  # fmt: skip

# Both tools waited for a target without end, unless the file said how long. MirrorMaker 2 starts its tasks again.
PRODUCER = JAVA_PRODUCER.but(
    mapped("delivery.timeout.ms", "--give-up-after-s", "absent: a target that is away is waited for without end"),
) + Table(
    mapped("metadata.broker.list", "bootstrap.servers"),
    *no_effect(RECOMPRESSED, "compression.codec"),
    *no_effect("all codecs pass", "compressed.topics"),
    *no_effect("always all: a record that one broker alone has is not mirrored", "request.required.acks"),
    *no_effect("always: nothing is acknowledged before the target has it", "producer.type"),
    *no_effect("batches pass as bytes", "serializer.class", "key.serializer.class"),
    *no_effect("the engine retries without end, and holds the order meanwhile", "message.send.max.retries"),
    *no_effect(_OWN_PACE, "queue.buffering.max.ms", "queue.buffering.max.messages", "queue.enqueue.timeout.ms",
               "batch.num.messages"),
    *no_effect("brokers are asked again whenever a leader is lost", "topic.metadata.refresh.interval.ms"),
)  # fmt: skip

_VALUES = {"auto.offset.reset": {"smallest": "earliest", "largest": "latest"}}
_NAMES = {"metadata.broker.list": "bootstrap.servers"}


def modern(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by the newer names and values, where a key has those."""
    return {_NAMES.get(key, key): _VALUES.get(key, {}).get(value.strip(), value) for key, value in given.items()}
