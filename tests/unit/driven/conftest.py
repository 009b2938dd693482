"""A pair of driven clusters, and an engine that does not wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.driven.cluster import DrivenCluster
from tests.driven.speed import hurry


@pytest.fixture
def source() -> Iterator[DrivenCluster]:
    with DrivenCluster("source") as cluster:
        yield cluster


@pytest.fixture
def target() -> Iterator[DrivenCluster]:
    with DrivenCluster("target") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
