"""What code asks the machine for instead of the scheduler is found."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from airflow_mirror.ledger.fold import Fold
from airflow_mirror.wire.retry import Backoff
from tests.explore.__main__ import main
from tests.explore.handover import SCENARIO
from tests.explore.scenario import Scenario
from tests.explore.scheduler import Scheduler
from tests.explore.strays import strays
from tests.explore.turns import Actor

if TYPE_CHECKING:
    import pytest


def build(s: Scheduler) -> None:
    """Somebody who pauses in real time, and somebody who does not."""

    def strayed() -> None:
        Backoff(0.001).pause()
        Fold().decision({"key": 1})
        random.random()  # the test's own

    s.add(Actor("A", strayed))
    s.add(Actor("B", lambda: s.clock.sleep(1000)))


def test_places_that_ask_for_time_names_and_chance_are_named() -> None:
    found = {place.split(":")[0] + " " + place.split()[1] for place in strays(Scenario("pause", build, ()))}
    assert found == {
        "wire/retry.py time.monotonic", "wire/retry.py time.sleep", "wire/retry.py random.uniform",
        "ledger/fold.py uuid.uuid4",
    }  # fmt: skip


def test_they_are_listed_for_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--strays"], {"handover": SCENARIO}) == 0
    assert "handover: wire/retry.py:" in capsys.readouterr().out
