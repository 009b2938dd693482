"""For the integration tests: a warm Spark, a cluster with an authorizer, two in realms of Kerberos, and a mirror."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_mirror.cutover import preview
from airflow_mirror.ledger.decisions import Ledger
from sandbox import Cluster
from tests.faults import ProxiedCluster
from tests.integration import realms as kerberos
from tests.integration.cutover_once import SLOW_S
from tests.integration.cutover_world import World
from tests.integration.warm_jobs import WarmJobs

# Of a Spark that a test begins by itself, as of those of our jobs: python3 on PATH may lack every library.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Assertions that several modules share explain themselves as a test's own do.
pytest.register_assert_rewrite("tests.integration.parity.flow", "tests.integration.parity.scenarios")


# What takes more than a minute and a half. Begun last, one of them would keep a process busy after the others have ended.
_FIRST = {
    "test_cutover", "test_cutover_waits", "test_night_by_hand", "test_rollback", "test_ledger", "test_held_back",
    "test_by_hand", "test_rights", "test_acls",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest modules; the order is random otherwise (pytest-randomly has been here before)."""
    items.sort(key=lambda item: item.path.stem not in _FIRST)


@pytest.fixture(scope="session")
def warm_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmJobs]:
    """Runs jobs without the ten seconds that a Spark takes to start."""
    jobs = WarmJobs(tmp_path_factory.mktemp("spark"))
    yield jobs
    jobs.close()


@pytest.fixture(scope="session")
def walled_cluster() -> Iterator[Cluster]:
    """A source that has an authorizer. Who leaves ACLs there removes them."""
    with Cluster("walled", authorizer=True, ready_timeout_s=240) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """A cluster of a module's own, whose nodes may die; who kills one restarts it."""
    with Cluster("faults", nodes=3, heap_mb=384, ready_timeout_s=180) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxied() -> Iterator[ProxiedCluster]:
    """A cluster behind a proxy, which forgets a moved log start when it is killed."""
    # Brokers write down what DeleteRecords did half a minute after their start, then once a minute; this one only when it
    # is stopped, so never when killed.
    never = str(10**9)
    forgetful = {"log.initial.task.delay.ms": never, "log.flush.start.offset.checkpoint.interval.ms": never}
    with ProxiedCluster("proxied", forgetful, ready_timeout_s=180) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def realms() -> Iterator[kerberos.World]:
    """A source and a target, each in a realm of its own. Whoever kills or freezes a KDC brings it back."""
    with kerberos.two_realms() as both:
        yield both


@pytest.fixture
def world(walled_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> Iterator[World]:
    """A mirror of one topic that can be cut over."""
    with closing(World(walled_cluster, target_cluster, topic_name, tmp_path)) as made:
        yield made


@pytest.fixture
def ledger(world: World) -> None:
    """The target has its ledger before anybody decides anything."""
    Ledger(world.target).create()


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tail copies, and no cutover refuses for that."""
    monkeypatch.setattr(preview, "ENOUGH_S", SLOW_S)
