"""A fixed share of what `make explore` tries: of each scenario some schedules with one deviation, and some by chance."""

from __future__ import annotations

import pytest

from tests.explore import copies, cutovers, search
from tests.explore.scenario import Scenario

_SINGLE, _AT_RANDOM = 15, 6  # of each scenario of cutovers; all of them take some twenty seconds
_SINGLE_COPY, _COPY_AT_RANDOM = 12, 4  # of copies, which take longer
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
    found = search.shortest([one for outcome in tried for one in search.findings(outcome)])
    assert found == [], "\n\n".join(map(str, found))
