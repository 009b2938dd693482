"""Transactions: brokers that can't list them are told first, and asked for nothing that they would create."""

from __future__ import annotations

import pytest

from airflow_mirror.wire.errors import ApiNotServed
from tests.unit.kafka.test_acls import described
from tests.unit.kafka.world import DESCRIBE_ACLS, METADATA, world


def test_brokers_before_3_are_told_before_any_right_and_create_nothing() -> None:
    with world({METADATA: (0, 9), 65: (0, -1)}) as w:
        w.answer(DESCRIBE_ACLS, described(code=31))
        assert w.admin.transactions_hidden().startswith("brokers before 3.0 do not list transactions")
        with pytest.raises(ApiNotServed, match="ListTransactions"):
            w.admin.open_transactions()
        assert not any(request.topics for request in w.asked(METADATA)) and not w.asked(DESCRIBE_ACLS)
