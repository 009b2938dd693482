"""A fixed share of what `make explore` tries: of each scenario some schedules with one deviation, and some by chance."""

from __future__ import annotations

import pytest

from tests.explore import copies, cutovers, search
from tests.explore.scenario import Scenario

_SINGLE, _AT_RANDOM = 6, 2  # of each scenario of cutovers; all of them take some twenty seconds
_SINGLE_COPY, _COPY_AT_RANDOM = 4, 2  # of copies, which take longer
_SHARES = [(one, _SINGLE, _AT_RANDOM) for one in cutovers.SCENARIOS]
_SHARES += [(one, _SINGLE_COPY, _COPY_AT_RANDOM) for one in copies.SCENARIOS]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("scenario", "single", "at_random"), _SHARES, ids=lambda one: getattr(one, "name", ""))
def test_share_of_a_scenario_breaks_nothing(scenario: Scenario, single: int, at_random: int) -> None:
    base = search.base(scenario)
    assert base.broken == {}, base.text
    stories = list(search.children(base))
    assert len(stories) > 4 * single
    tried = [search.try_story(scenario, stories[i * len(stories) // single]) for i in range(single)]
    tried += [search.at_random(scenario, seed) for seed in range(at_random)]
    found = search.tried(tried)
    left = scenario.reaches.keys() - base.reached - found.reached
    # Who comes last has nothing left to do, mostly: others are killed, or overtaken, until that one has.
    for story in sorted(stories, key=lambda one: one[-1][-1].kind not in ("kill", "switch")):
        if not left:
            break
        left -= search.try_story(scenario, story).reached
    told = [*search.shortest(found.findings), *search.unreached(scenario, scenario.reaches.keys() - left)]
    assert told == [], "\n\n".join(map(str, told))
