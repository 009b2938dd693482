"""I1 to I14 with names as MirrorMaker 2 gives them by default: the source's alias before each."""

from __future__ import annotations

import pytest

from tests.integration.parity.scenarios import Scenarios

pytestmark = pytest.mark.parity


class TestByPrefix(Scenarios):
    FIELDS = {"policy": "prefix", "use_defaults_from": "target"}
