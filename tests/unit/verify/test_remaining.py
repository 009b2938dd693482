"""What the comparison behind the fence is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.mirror import Mirror
from airflow_mirror.partition import TopicPartition as TP
from airflow_mirror.verify import remaining
from tests.unit.cutover.builders import a_plan

NOBODY = ClientConfig({"bootstrap.servers": "nobody:1"}, "source")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_rest_is_compared_in_the_isolation_of_the_copy(monkeypatch, isolation):
    asked = []
    compare = lambda pairs, *_, **options: asked.append((pairs, options)) or []  # noqa: E731
    monkeypatch.setattr(remaining, "compare_partitions", compare)
    plan = replace(a_plan("orders"), mirror=Mirror("flow", "src", "dst", isolation=isolation))
    assert remaining.verify_rest(plan, NOBODY, NOBODY, {TP("orders", 0): 5})({TP("orders", 0): 9}) == []
    [([pair], options)] = asked
    assert (pair.source, pair.start_offset, pair.end_offset) == (TP("orders", 0), 5, 9)
    assert options["isolation"] == isolation
