"""The example: complete for each single deviation, and what a permit is worth that was looked at too early."""

from __future__ import annotations

from tests.explore.__main__ import explore
from tests.explore.deviations import freeze
from tests.explore.handover import UNSAFE
from tests.explore.scenario import run
from tests.explore.scenarios import SCENARIOS
from tests.explore.story import story


def test_permit_that_is_looked_at_with_the_bytes_holds_whatever_happens() -> None:
    (found,) = explore(["handover"], SCENARIOS)
    assert found.findings == []
    assert found.single[0] == found.single[1] > 80


def test_permit_that_was_looked_at_before_lets_a_thawed_attempt_set_positions_behind_an_opening() -> None:
    (found,) = explore(["unsafe"], {"unsafe": UNSAFE})
    thawed = (("A", "target: set app at orders-0 to 5", 1, freeze()),)
    assert thawed in {one.events for one in found.findings}
    outcome = run(UNSAFE, thawed)
    assert outcome.broken == {
        "a committed offset on an open target is nobody's but its readers'": "A: A: target: set app at orders-0 to 5"
    }


def test_story_is_kept_as_a_test() -> None:
    outcome = story("handover", ("A", "target: set app at orders-0 to 5", 1, freeze()))
    assert outcome.broken == {} and outcome.world.opened_by == "B"
    assert "LeaseLost" in outcome.text or "MirrorCutOver" in outcome.text
