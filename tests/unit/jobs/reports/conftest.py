"""A driver that listens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
