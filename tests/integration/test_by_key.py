"""To another partition count: each key where the real Java producer sends it, by an old tool's command line too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry
from sandbox import Cluster
from tests.integration import java_clients, plain
from tests.integration.copying import create, properties_of, read, wait_until

pytestmark = pytest.mark.parity
PARTITIONS, ON_TARGET, KEYS, EACH = 2, 7, 300, 3


def keys() -> list[bytes]:
    """Return keys of every length that the hash treats differently, the empty one too, and of text and any bytes."""
    rng = random.Random(11)
    texts = [f"Kunde-{i}-é".encode() for i in range(KEYS // 3)]
    return list(
        dict.fromkeys([b"", b"\x00", b"\xff" * 8, *texts, *(rng.randbytes(rng.randint(1, 40)) for _ in range(KEYS))])
    )


def write_keyed(cluster: Cluster, topic: str) -> list[bytes]:
    """Write some records of each key into one partition, between records without a key; return the keys."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4"})
    found = keys()
    for number in range(EACH):
        for i, key in enumerate(found):
            producer.produce(topic, key=key, value=b"%d" % number, partition=i % PARTITIONS)
            if i % 5 == 0:
                producer.produce(topic, key=None, value=b"no key", partition=i % PARTITIONS)
    assert producer.flush(240) == 0
    return found


def chosen_by_java(cluster: Cluster, topic: str, found: list[bytes], directory: Path) -> dict[bytes, int]:
    create(cluster, topic, ON_TARGET)
    classpath = java_clients.compiled(directory)
    lines = java_clients.run(classpath, "Partitions", cluster.bootstrap, topic, *(key.hex() for key in found))
    return {bytes.fromhex(key.removeprefix("key ")): int(partition) for key, partition in lines}


def configs_of(cluster: Cluster, topic: str) -> dict[str, ConfigEntry]:
    with ClusterAdmin(ClientConfig({"bootstrap.servers": cluster.bootstrap}, "target")) as admin:
        return admin.topic_configs([topic])[topic]


def arrived(cluster: Cluster, topic: str) -> dict[bytes | None, list[tuple[int, bytes | None]]]:
    """Return partition and value of each key's records, in the order of their partition."""
    there: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
    for partition in range(ON_TARGET):
        for _, _, key, value, _ in read(cluster, topic, partition):
            there.setdefault(key, []).append((partition, value))
    return there


@pytest.mark.parametrize("options", ["ours", "the first MirrorMaker's"])
def test_each_key_goes_where_the_java_producer_sends_it(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, options: str
) -> None:
    create(source_cluster, topic_name, PARTITIONS, retention_ms="604800000")
    create(target_cluster, topic_name, ON_TARGET)
    found = write_keyed(source_cluster, topic_name)
    properties = properties_of(tmp_path, source_cluster, target_cluster)
    if options == "ours":
        flow = [*properties, "--include", topic_name, "--name", topic_name, "--no-probe", "--partitioning", "by_key"]
        assert plain.copy(*flow, log=tmp_path / "copy.log") == 0, (tmp_path / "copy.log").read_text()[-3000:]
    else:
        source, target = tmp_path / "consumer.properties", tmp_path / "producer.properties"
        group = f"group.id={topic_name}\nauto.offset.reset=earliest\n"
        source.write_text(f"bootstrap.servers={source_cluster.bootstrap}\n{group}")
        target.write_text(f"bootstrap.servers={target_cluster.bootstrap}\n")
        old = ["--consumer.config", str(source), "--producer.config", str(target), "--whitelist", topic_name]
        with plain.Follow(*old, "--preserve.partitions=false", "--no-probe", log=tmp_path / "follow.log") as follow:
            total = sum(len(read(source_cluster, topic_name, p)) for p in range(PARTITIONS))
            there = lambda: sum(len(read(target_cluster, topic_name, p)) for p in range(ON_TARGET))  # noqa: E731
            wait_until(lambda: there() == total or follow.process.poll() is not None, "all has arrived")
            follow.stop()
        held = configs_of(target_cluster, topic_name)["retention.ms"]
        assert int(held.value or "") == 2 * 604_800_000 * 6 // 5, "retention.ms and segment.ms of the source, and a fifth"
    seen = arrived(target_cluster, topic_name)
    without = seen.pop(None)
    assert len(without) == EACH * len(found[::5])
    java = chosen_by_java(target_cluster, f"{topic_name}.java", found, tmp_path)
    assert len(set(java.values())) == ON_TARGET
    assert seen == {key: [(java[key], b"%d" % number) for number in range(EACH)] for key in found}
