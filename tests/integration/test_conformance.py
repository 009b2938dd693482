"""A real broker answers as it did when its answers were written down, and as the driven one does."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from sandbox import Cluster
from sandbox.versions import DEFAULT_VERSION
from tests.conformance import chance
from tests.conformance.cases import CASES, SETTINGS, served
from tests.conformance.transcript import assert_alike, transcript, written
from tests.driven.cluster import DrivenCluster
from tests.driven.release import RELEASES
from tests.integration.copying import config, create, wait_until

SEEDS = int(os.environ.get("CONFORMANCE_SEEDS", "20"))
OLDER = [version for version in RELEASES if version != DEFAULT_VERSION]


@pytest.fixture(scope="module")
def older() -> Iterator[Callable[[str], Cluster]]:
    """Returns the running cluster of a release."""
    with ExitStack() as stack:
        yield cache(lambda version: stack.enter_context(Cluster("conformance", version=version)))


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
@pytest.mark.parametrize("version", OLDER)
def test_driven_older_broker_serves_nothing_beyond_the_real_one(version: str, older: Callable[[str], Cluster]) -> None:
    assert_served(older(version))


def assert_served(cluster: Cluster) -> None:
    with DrivenCluster(version=cluster.release.version) as driven, WireCluster(config(cluster)) as wire:
        real = wire.any_connection().api_versions
        for key, (lowest, highest) in driven.brokers[1].served.items():
            assert real[key][0] <= lowest <= highest <= real[key][1], f"request {key}: {real[key]}"


@pytest.mark.versions
@pytest.mark.parametrize(("version", "name"), [(v, name) for v in OLDER for name in CASES if served(v, name)])
def test_older_broker_answers_as_written_down(
    version: str, name: str, older: Callable[[str], Cluster], topic_name: str
) -> None:
    create_on_older(older(version), topic_name, SETTINGS[name])
    hold(older(version), topic_name, name)


def create_on_older(cluster: Cluster, topic: str, settings: dict[str, str]) -> None:
    whole = {"retention.ms": "-1", "segment.ms": str(2**63 - 1)} | settings
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=whole)])[topic].result(240)
    wait_until(lambda: has_heard(cluster, topic), f"the broker has heard of {topic}")


def hold(cluster: Cluster, topic: str, name: str) -> None:
    """Hold a conversation with a broker and compare, or write down, what it answers."""
    answers = transcript(config(cluster), topic, CASES[name])
    file = written(cluster.release.version, name)
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
    hold_at_random(target_cluster, topic_name, seed)


@pytest.mark.versions
@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_random_conversations_are_answered_alike_by_an_older_broker(
    version: str, seed: int, older: Callable[[str], Cluster], topic_name: str
) -> None:
    create_on_older(older(version), topic_name, {})
    hold_at_random(older(version), topic_name, seed)


def hold_at_random(cluster: Cluster, topic: str, seed: int) -> None:
    """Compare what a broker and its driven double answer to the conversation that a seed decides."""
    expected = transcript(config(cluster), topic, chance.conversation(random.Random(seed)))
    with DrivenCluster("driven", version=cluster.release.version) as driven:
        driven.clock.now_ms = int(time.time() * 1000)
        driven.create(topic)
        answers = transcript(driven.config, topic, chance.conversation(random.Random(seed)))
    assert_alike(answers, expected)
