"""S1: the same scenarios with topics that keep their names, by the Spark job."""

from __future__ import annotations

import pytest

from tests.integration.parity.scenarios import Scenarios

pytestmark = pytest.mark.parity


class TestS1ByName(Scenarios):
    FIELDS = {"use_defaults_from": "target"}
    SPARK = True
