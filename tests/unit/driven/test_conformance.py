"""The driven broker answers as a real one did."""

from __future__ import annotations

import random
import time

import pytest

from tests.conformance import chance, sides
from tests.conformance.cases import CASES, SETTINGS, served
from tests.conformance.transcript import assert_alike, transcript, written
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.ledger import LedgerCluster
from tests.driven.release import RELEASES
from tests.driven.side import DrivenSide
from tests.memory.rules import Rules


@pytest.mark.repeats
@pytest.mark.parametrize(("version", "name"), [(v, name) for v in RELEASES for name in CASES if served(v, name)])
def test_driven_broker_answers_as_written_down(version: str, name: str) -> None:
    with DrivenCluster("driven", version=version) as driven:
        driven.clock.now_ms = int(time.time() * 1000)  # what a batch's time may be is judged by it
        driven.create(name, config=topic_config(SETTINGS[name]))
        answers = transcript(driven.config, name, CASES[name])
    assert_alike(answers, written(version, name).read_text())


@pytest.mark.parametrize("name", ["topics", "configs", "logs", "groups", "acls", "leases"])
def test_driven_cluster_is_administered_as_written_down(ledger_target: LedgerCluster, name: str) -> None:
    ledger_target.rules = Rules(open_by_default=True)
    answers = sides.transcript(DrivenSide(ledger_target, "t0123456"), sides.CASES[name])
    assert_alike(answers, (sides.GOLDEN / f"{name}.txt").read_text())


def test_a_random_conversation_is_the_same_when_repeated(target: DrivenCluster) -> None:
    """Or its comparison with a real broker would compare nothing."""
    said = []
    for topic in ("one", "two"):
        target.create(topic)
        said.append(transcript(target.config, topic, chance.conversation(random.Random(5))))
    assert len(said[0].splitlines()) > chance.STEPS
    assert_alike(said[1], said[0])
