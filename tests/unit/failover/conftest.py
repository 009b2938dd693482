"""The world of a failover whose groups stand on both sides of the cut."""

from __future__ import annotations

import pytest

from airflow_mirror.kafka.model import GroupPosition
from tests.unit.failover.world import A0, A1, B0, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    one = World(monkeypatch)
    one.target.at = {"g": {A0: GroupPosition(55, "note"), B0: GroupPosition(30)}, "h": {A1: GroupPosition(3)}}
    return one
