"""A target that creates topics by itself, with another number of partitions: a mirror's topics have the source's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import assert_equal, create, flow_of, properties_of, read, wait_until, write

pytestmark = pytest.mark.parity
PARTITIONS, BY_ITSELF = 3, 5


@pytest.fixture(scope="module")
def creating() -> Iterator[Cluster]:
    overrides = {"auto.create.topics.enable": "true", "num.partitions": str(BY_ITSELF)}
    with Cluster("creating", overrides=overrides) as cluster:
        yield cluster


def count(cluster: Cluster, topic: str) -> int:
    """Return a topic's partitions; 0: there is none. Asking for all topics creates none."""
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).topics
    return len(found[topic].partitions) if topic in found else 0


def records(cluster: Cluster, topic: str, partition: int) -> int:
    """Return how many records a partition holds; a broker may hear of it later than the controller."""
    try:
        return len(read(cluster, topic, partition))
    except KafkaException:
        return 0


def touch(cluster: Cluster, topic: str) -> None:
    """Write a record as an application does that was pointed at the target too early: the topic comes by itself."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"too early", partition=0)
    assert producer.flush(60) == 0
    wait_until(lambda: count(cluster, topic) == BY_ITSELF, "the broker has created it by itself")


def test_topics_of_a_mirror_have_the_sources_count(
    source_cluster: Cluster, creating: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Also one that appears while a tail runs."""
    flow = properties_of(tmp_path, source_cluster, creating)
    flow += ["--include", f"{topic_name}.*", "--name", topic_name, "--no-probe", "--processes", "1"]
    create(source_cluster, topic_name, PARTITIONS)
    write(source_cluster, topic_name, 50, 1, partition=2)
    touch(creating, f"other.{topic_name}")
    later = f"{topic_name}.later"
    with plain.Follow(*flow, log=tmp_path / "follow.log") as follow:
        wait_until(lambda: count(creating, topic_name) != 0, "the topic is there")
        create(source_cluster, later, PARTITIONS)
        write(source_cluster, later, 50, 2, partition=2)
        wait_until(lambda: count(creating, later) != 0, "the new topic is there", 240)
        assert (count(creating, topic_name), count(creating, later)) == (PARTITIONS, PARTITIONS)
        for topic in (topic_name, later):
            wait_until(lambda t=topic: records(creating, t, 2) == 50, "its records have arrived", 240)  # type: ignore[misc]
        follow.stop()
    for topic in (topic_name, later):
        assert_equal(source_cluster, creating, topic, PARTITIONS)


def test_topic_that_somebody_filled_before_the_mirror_is_refused(
    source_cluster: Cluster, creating: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """MirrorMaker 2 fills it, beside the record that is there already."""
    create(source_cluster, topic_name, PARTITIONS)
    write(source_cluster, topic_name, 50, 1, partition=2)
    touch(creating, topic_name)
    flow = [*flow_of(tmp_path, source_cluster, creating, topic_name), "--no-probe"]
    log = tmp_path / "copy.log"
    assert plain.copy(*flow, log=log) != 0
    said = log.read_text()
    assert f"target topic {topic_name!r}" in said and "nothing was written" in said, said[-3000:]
    assert [records(creating, topic_name, p) for p in range(BY_ITSELF)] == [1, 0, 0, 0, 0]
