"""The driven broker answers as a real one did."""

from __future__ import annotations

import random
import time

import pytest

from tests.conformance import chance
from tests.conformance.cases import CASES, SETTINGS
from tests.conformance.transcript import GOLDEN, assert_alike, transcript
from tests.driven.cluster import DrivenCluster, topic_config


@pytest.mark.parametrize("name", CASES)
def test_driven_broker_answers_as_written_down(name: str, target: DrivenCluster) -> None:
    target.clock.now_ms = int(time.time() * 1000)  # what a batch's time may be is judged by it
    target.create(name, config=topic_config(SETTINGS[name]))
    answers = transcript(target.config, name, CASES[name])
    assert_alike(answers, (GOLDEN / "4.3.1" / f"{name}.txt").read_text())


def test_a_random_conversation_is_the_same_when_repeated(target: DrivenCluster) -> None:
    """Or its comparison with a real broker would compare nothing."""
    said = []
    for topic in ("one", "two"):
        target.create(topic)
        said.append(transcript(target.config, topic, chance.conversation(random.Random(5))))
    assert len(said[0].splitlines()) > chance.STEPS
    assert_alike(said[1], said[0])
