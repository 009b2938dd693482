"""What an independent client finds of records sampled at random: nothing where both sides are equal, and each damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.verify.referee import Place, SpotCheck, Stretch, second_look, spot_check
from demo.clients import admin, create_topics, delete_topic
from demo.faults import inflict
from demo.filling import Writer, write_in_batches
from demo.records import hostile
from sandbox import Cluster

RECORDS = 60


@pytest.fixture
def topic(source_cluster: Cluster, target_cluster: Cluster, topic_name: str) -> Iterator[str]:
    """A topic with the same hostile records on both clusters, and an empty partition."""
    for cluster in (source_cluster, target_cluster):
        create_topics(admin(cluster.admin_properties()), [(topic_name, 3, {"retention.ms": "-1"})])
        for partition in (0, 1):
            records = list(hostile(random.Random(f"{partition}"), RECORDS, 1_500_000_000_000, 86_400_000))
            writer = Writer(cluster.admin_properties(), "zstd")
            write_in_batches(writer, topic_name, partition, records, (1, 40, 7))
    yield topic_name
    for cluster in (source_cluster, target_cluster):
        delete_topic(admin(cluster.admin_properties()), topic_name)


def stretches(topic: str, start: int = 0, end: int = RECORDS) -> list[Stretch]:
    tps = [TopicPartition(topic, p) for p in range(3)]
    return [Stretch(source=tp, target=tp, start=start, end=end if tp.partition < 2 else start) for tp in tps]


def check(source: Cluster, target: Cluster, some: list[Stretch], places: int = 80, seed: int = 7) -> SpotCheck:
    clusters = (ClientConfig(c.admin_properties(), c.name) for c in (source, target))
    return spot_check(some, *clusters, places=places, seed=seed, isolation="read_committed")


def test_equal_topics_have_no_difference_wherever_one_looks(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    found = check(source_cluster, target_cluster, stretches(topic))
    assert found == SpotCheck(seed=7, records=found.records) and 40 < found.records <= 80
    assert check(source_cluster, target_cluster, stretches(topic)) == found, "a seed draws the same places"


def test_one_damaged_or_missing_record_is_named_by_its_offset(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    place = inflict("corrupt", target_cluster.admin_properties(), topic, [])
    (line,) = check(source_cluster, target_cluster, stretches(topic, 25, 35)).differences
    assert line.startswith(f"{place}: an independent client reads value ") and "on the target" in line


@pytest.mark.parametrize("may_lack", [False, True])
def test_a_record_that_only_the_source_has_counts_unless_brokers_take_some(
    source_cluster: Cluster, target_cluster: Cluster, topic: str, may_lack: bool
) -> None:
    place = inflict("drop", target_cluster.admin_properties(), topic, [])
    found = check(source_cluster, target_cluster, [replace(one, may_lack=may_lack) for one in stretches(topic, 25, 35)])
    assert found.differences == ([] if may_lack else [f"{place}: an independent client finds no record on the target"])
    assert (found.gone > 0) == may_lack and not found.left_out


def look_again(source: Cluster, target: Cluster, *places: Place) -> list[str]:
    clusters = (ClientConfig(c.admin_properties(), c.name) for c in (source, target))
    return second_look(places, *clusters, isolation="read_committed")


def place(topic: str, source: tuple[int, int], target: tuple[int, int]) -> Place:
    """A place by partition and offset on either side."""
    here, there = (TopicPartition(topic, partition) for partition, _ in (source, target))
    return Place(source=here, source_offset=source[1], target=there, target_offset=target[1])


def test_each_difference_is_looked_at_by_another_client(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    where, _, offset = inflict("corrupt", target_cluster.admin_properties(), topic, []).partition(" offset ")
    damaged, at = int(where.rpartition("-")[2]), int(offset)
    other = 1 - damaged
    found = look_again(
        source_cluster, target_cluster, place(topic, (damaged, at), (damaged, at)), place(topic, (other, 5), (other, 5)),
        place(topic, (2, 7), (2, 7)),
    )  # fmt: skip
    assert found[0].startswith("an independent client reads value ") and " on the target" in found[0]
    assert found[1:] == [
        "an independent client reads the same record on both sides",
        "an independent client finds no record there on either side",
    ]


def test_difference_behind_the_end_of_one_log_is_not_taken_for_its_beginning(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    """A client that is sent behind the end of a log begins anew at its start."""
    behind = RECORDS + 1000
    found = look_again(
        source_cluster, target_cluster, place(topic, (0, 5), (0, behind)), place(topic, (1, behind), (1, 5))
    )
    assert found == [f"an independent client finds no record on the {side}" for side in ("target", "source")]


def test_client_that_can_not_be_made_is_said_and_fails_nothing(
    source_cluster: Cluster, target_cluster: Cluster, topic: str
) -> None:
    """librdkafka's wheels have no Kerberos."""
    settings = {**target_cluster.admin_properties(), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    clusters = ClientConfig(source_cluster.admin_properties(), "source"), ClientConfig(settings, "target")
    found = spot_check(stretches(topic), *clusters, places=10, seed=1, isolation="read_committed")
    assert found.records == 0 and found.left_out[0].startswith("an independent client (librdkafka) could not read: ")
    (line,) = second_look([place(topic, (0, 5), (0, 5))], *clusters, isolation="read_committed")
    assert line.startswith("an independent client (librdkafka) could not read: ")
