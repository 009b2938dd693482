"""Properties take as long as they take: hypothesis fails an example that is slow, as any may be on a busy machine.

And coverage is noted where it says something. To note each line and branch takes as long as the tests themselves, also
in all that is not ours. So nothing is noted while tests are collected, which imports Airflow; nor of tests of anything
else than the packages that are measured; nor of properties, and tests with the mark ``repeats``: what these go through
hundreds of times counts only where others do, too.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import airflow_mirror
from airflow_mirror.jobs.driver import together
from airflow_mirror.ledger import kinds
from airflow_mirror.wire import heart
from tests.coverage import PACKAGES
from tests.driven.ledger import LedgerCluster
from tests.parts import EXAMPLES
from tests.rumours import soon_believed  # noqa: F401 - a fixture of every test
from tests.unit.coordinator import Coordinator

if TYPE_CHECKING:
    from coverage import Coverage

    from airflow_mirror.wire.cluster import WireCluster

HERE = Path(__file__).parent
NOTED = (*PACKAGES, "driven", "jobs", "kafka", "schemas")  # folders of tests: what runs those packages, and what they run

# A quarter of hypothesis's own number in the run that is for all day; the part `properties` tries very many.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get(EXAMPLES, 25)),
)
settings.load_profile("patient")


@pytest.fixture(params=["pure", "compiled"])
def either_heart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the test run with pure Python, and with the compiled heart where it was built; return which one it is."""
    if request.param == "pure":
        monkeypatch.setattr(heart, "engine", None)
    elif heart.engine is None:
        pytest.skip("nothing could compile the heart on this machine")
    return str(request.param)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    """A transaction coordinator in process."""
    coordinator = Coordinator()
    yield coordinator
    coordinator.close()


@pytest.fixture
def target(coordinator: Coordinator) -> Iterator[WireCluster]:
    """Connections to a target that is that coordinator alone."""
    with coordinator.cluster() as cluster:
        yield cluster


@pytest.fixture
def again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a tail begin again at once where a cluster is away."""
    monkeypatch.setattr(together, "_AGAIN_S", 0.01)


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have what is kept in the ledger come in pieces of at most so many bytes, as only hundreds of topics would."""
    return lambda most_bytes: monkeypatch.setattr(kinds, "MOST_BYTES", most_bytes)


@pytest.fixture
def ledger_target(tmp_path: Path) -> Iterator[LedgerCluster]:
    """A target whose ledger has begun."""
    with LedgerCluster(tmp_path) as cluster:
        cluster.begin()
        yield cluster


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    if _noted() and not session.config.pluginmanager.hasplugin("dsession"):  # whose workers collect
        for package in PACKAGES:  # to import a module is to go through it
            path = f"{airflow_mirror.__path__[0]}/{package}"
            for module in pkgutil.walk_packages([path], f"airflow_mirror.{package}."):
                importlib.import_module(module.name)
    with unnoted():
        found = yield
    gc.freeze()  # what was imported stays: to look through it again and again took a tenth of the run
    gc.set_threshold(20_000, 20, 20)
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _says_something(item):
        return (yield)
    with unnoted():
        return (yield)


def _says_something(item: pytest.Item) -> bool:
    repeats = item.get_closest_marker("repeats") is not None or is_hypothesis_test(getattr(item, "obj", None))
    return not repeats and any(item.path.is_relative_to(HERE / folder) for folder in NOTED)  # or of another part


@contextmanager
def unnoted() -> Iterator[None]:
    """Note nothing for a while."""
    stopped: list[Coverage] = []
    while one := _noted():  # in a worker there are two: the first goes on when the second stops
        one.stop()
        stopped.append(one)
    try:
        yield
    finally:
        for one in reversed(stopped):
            one.start()


def _noted() -> Coverage | None:
    """Return what notes lines and branches in this process, if anything does: it need not even be installed."""
    if "coverage" not in sys.modules:
        return None
    from coverage import Coverage

    return Coverage.current()
