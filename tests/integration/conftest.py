"""For the integration tests: one warm Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.warm_jobs import WarmJobs


@pytest.fixture(scope="session")
def warm_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmJobs]:
    """Runs jobs without the ten seconds that a Spark takes to start."""
    jobs = WarmJobs(tmp_path_factory.mktemp("spark"))
    yield jobs
    jobs.close()
