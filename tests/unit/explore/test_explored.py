"""A fixed share of what `make explore` tries: of each scenario some schedules with one deviation, and some by chance."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.explore import search
from tests.explore.cutovers import SCENARIOS
from tests.explore.scenario import Scenario

_SINGLE, _AT_RANDOM = 24, 8  # of each scenario; all of them take some twenty seconds


@pytest.fixture
def silent() -> Iterator[None]:
    """Not by an attribute of the manager: loggers would remember that they were disabled."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_share_of_a_scenario_breaks_nothing(scenario: Scenario) -> None:
    base = search.base(scenario)
    assert base.broken == {}, base.text
    stories = list(search.children(base))
    assert len(stories) > 4 * _SINGLE
    tried = [search.try_story(scenario, stories[i * len(stories) // _SINGLE]) for i in range(_SINGLE)]
    tried += [search.at_random(scenario, seed) for seed in range(_AT_RANDOM)]
    found = search.shortest([one for outcome in tried for one in search.findings(outcome)])
    assert found == [], "\n\n".join(map(str, found))
