"""A story that is kept as a test: what happens to whom, and what comes of it."""

from __future__ import annotations

from tests.explore.deviations import Told
from tests.explore.scenario import Outcome, run
from tests.explore.scenarios import SCENARIOS


def story(scenario: str, *events: Told) -> Outcome:
    """Run one schedule of a scenario; ``broken`` of the outcome says what fails, ``text`` what happened.

    :raises StoryUntold: an event never came: the code does something else by now, so the test shows nothing any more.
    """
    return run(SCENARIOS[scenario], events)
