"""A driver that listens, and tasks that don't wait long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.copy import reporter as report
from airflow_mirror.jobs.progress.listener import Listener
from airflow_mirror.jobs.progress.table import Table
from tests.unit.jobs.reports.driver import RANGES, listening


@pytest.fixture
def table() -> Table:
    return Table(RANGES)


@pytest.fixture
def driver(table: Table) -> Iterator[Listener | None]:
    with listening(table) as listener:
        yield listener


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "EVERY_S", 0.02)
    monkeypatch.setattr(report, "_RETRY_S", 0.02)
    monkeypatch.setattr(report, "_TIMEOUT_S", 60.0)
