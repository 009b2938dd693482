"""A real broker answers as it did when its answers were written down, and as the driven one does."""

from __future__ import annotations

import os
import random
import time

import pytest

from sandbox import Cluster
from tests.conformance import chance
from tests.conformance.cases import CASES, SETTINGS
from tests.conformance.transcript import GOLDEN, assert_alike, transcript
from tests.driven.cluster import DrivenCluster
from tests.integration.copying import config, create

SEEDS = int(os.environ.get("CONFORMANCE_SEEDS", "20"))


def create_whole(cluster: Cluster, topic: str, settings: dict[str, str]) -> None:
    # Times of 2020 and of now in one log would begin a new segment at each change, and a fetch ends with its segment.
    whole = {"segment.ms": str(2**63 - 1)} | settings
    create(cluster, topic, 1, 1, **{key.replace(".", "_"): value for key, value in whole.items()})


@pytest.mark.parametrize("name", CASES)
def test_real_broker_answers_as_written_down(name: str, target_cluster: Cluster, topic_name: str) -> None:
    create_whole(target_cluster, topic_name, SETTINGS[name])
    answers = transcript(config(target_cluster), topic_name, CASES[name])
    file = GOLDEN / "4.3.1" / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(answers)
    assert_alike(answers, file.read_text())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_conversations_are_answered_alike(seed: int, target_cluster: Cluster, topic_name: str) -> None:
    create_whole(target_cluster, topic_name, {})
    expected = transcript(config(target_cluster), topic_name, chance.conversation(random.Random(seed)))
    with DrivenCluster("driven") as driven:
        driven.clock.now_ms = int(time.time() * 1000)
        driven.create(topic_name)
        answers = transcript(driven.config, topic_name, chance.conversation(random.Random(seed)))
    assert_alike(answers, expected)
