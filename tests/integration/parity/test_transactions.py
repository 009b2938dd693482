"""S3: the same scenarios where applications write in transactions, of which a third is aborted."""

from __future__ import annotations

import pytest

from tests.integration.parity.scenarios import Scenarios

pytestmark = pytest.mark.parity


class TestS3Transactions(Scenarios):
    FIELDS = {"policy": "prefix", "use_defaults_from": "target"}
    TRANSACTIONS = True
