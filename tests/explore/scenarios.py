"""All scenarios, by name."""

from __future__ import annotations

from tests.explore import copies, cutovers, handover, shortening
from tests.explore.scenario import Scenario

_ALL: tuple[Scenario, ...] = (handover.SCENARIO, shortening.SCENARIO, *cutovers.SCENARIOS, *copies.SCENARIOS)
SCENARIOS = {one.name: one for one in _ALL}
