"""A real broker answers as it did when its answers were written down, and as the driven one does."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from sandbox import Cluster
from tests.conformance import chance
from tests.conformance.cases import CASES, SETTINGS, served
from tests.conformance.transcript import GOLDEN, assert_alike, transcript
from tests.driven.cluster import DrivenCluster
from tests.integration.copying import config, create, wait_until

SEEDS = int(os.environ.get("CONFORMANCE_SEEDS", "20"))


@pytest.fixture(scope="module")
def older() -> Iterator[Cluster]:
    with Cluster("conformance", version="2.8.2") as cluster:
        yield cluster


def create_whole(cluster: Cluster, topic: str, settings: dict[str, str]) -> None:
    # Times of 2020 and of now in one log would begin a new segment at each change, and a fetch ends with its segment.
    whole = {"segment.ms": str(2**63 - 1)} | settings
    create(cluster, topic, 1, 1, **{key.replace(".", "_"): value for key, value in whole.items()})


@pytest.mark.parametrize("name", CASES)
def test_real_broker_answers_as_written_down(name: str, target_cluster: Cluster, topic_name: str) -> None:
    create_whole(target_cluster, topic_name, SETTINGS[name])
    hold(target_cluster, topic_name, name)


def test_driven_broker_serves_nothing_that_the_real_one_does_not(target_cluster: Cluster) -> None:
    assert_served(target_cluster)


@pytest.mark.versions
def test_driven_older_broker_serves_nothing_that_the_real_one_does_not(older: Cluster) -> None:
    assert_served(older)


def assert_served(cluster: Cluster) -> None:
    with DrivenCluster(version=cluster.release.version) as driven, WireCluster(config(cluster)) as wire:
        real = wire.any_connection().api_versions
        for key, (lowest, highest) in driven.brokers[1].served.items():
            assert real[key][0] <= lowest <= highest <= real[key][1], f"request {key}: {real[key]}"


@pytest.mark.versions
@pytest.mark.parametrize("name", [name for name in CASES if served("2.8.2", name)])
def test_older_broker_answers_as_written_down(name: str, older: Cluster, topic_name: str) -> None:
    settings = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)} | SETTINGS[name]
    admin = AdminClient({"bootstrap.servers": older.bootstrap})
    admin.create_topics([NewTopic(topic_name, 1, 1, config=settings)])[topic_name].result(240)
    wait_until(lambda: has_heard(older, topic_name), f"the broker has heard of {topic_name}")
    hold(older, topic_name, name)


def hold(cluster: Cluster, topic: str, name: str) -> None:
    """Hold a conversation with a broker and compare, or write down, what it answers."""
    answers = transcript(config(cluster), topic, CASES[name])
    file = GOLDEN / cluster.release.version / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(answers)
    assert_alike(answers, file.read_text())


def has_heard(cluster: Cluster, topic: str) -> bool:
    with WireCluster(config(cluster)) as wire:
        try:
            return wire.log_ends([TopicPartition(topic, 0)]) is not None
        except UnknownTopic:
            return False


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_conversations_are_answered_alike(seed: int, target_cluster: Cluster, topic_name: str) -> None:
    create_whole(target_cluster, topic_name, {})
    expected = transcript(config(target_cluster), topic_name, chance.conversation(random.Random(seed)))
    with DrivenCluster("driven") as driven:
        driven.clock.now_ms = int(time.time() * 1000)
        driven.create(topic_name)
        answers = transcript(driven.config, topic_name, chance.conversation(random.Random(seed)))
    assert_alike(answers, expected)
