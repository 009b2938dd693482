"""For all tests: real clusters of one node each, started once a session and only when a test asks, and ``--resume``."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import uuid
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest

from airflow_mirror.common import signals
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from sandbox import Cluster, clusters
from tests.parts import EXAMPLES

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Give each test the signals of a new process. A pool's forked worker that inherits a handler can't be ended."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    signals._asked_to_stop.clear()
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--resume", action="store_true", help="leave out what passed on this very tree before")


def pytest_configure(config: pytest.Config) -> None:
    if (passed := passed_file()) is not None:
        notes = not hasattr(config, "workerinput")  # with several workers, who collects them writes
        config.pluginmanager.register(_Passed(passed, resume=config.getoption("--resume"), notes=notes))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Tell stories as they are written: pytest-randomly can shuffle everything or nothing."""
    written = list(items)
    yield
    items[:] = stories_in_order(written, items)


def stories_in_order(written: Sequence[pytest.Item], shuffled: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return shuffled tests, those of each module with the mark ``in_order`` as they are written; no other moves."""
    there, stories = {item.nodeid for item in shuffled}, defaultdict[Path, list[pytest.Item]](list)
    for item in written:
        if item.nodeid in there and item.get_closest_marker("in_order"):
            stories[item.path].append(item)
    told = {path: iter(story) for path, story in stories.items()}
    return [next(told[item.path]) if item.get_closest_marker("in_order") else item for item in shuffled]


class _Passed:
    """Notes what passed, and leaves it out of a run that resumes."""

    def __init__(self, file: Path, *, resume: bool, notes: bool) -> None:
        self._file, self._resume, self._notes = file, resume, notes
        self._failed: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._resume and self._file.exists():
            known = set(self._file.read_text(encoding="utf-8").split("\n"))
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
            items[:] = [item for item in items if item.nodeid not in known]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        elif self._notes and report.when == "teardown" and report.nodeid not in self._failed:
            self._file.parent.mkdir(exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(report.nodeid + "\n")


def passed_file() -> Path | None:
    """Return where to note what passed on this tree: commit and changes; None without git.

    A property that held for a few examples is none that held for many.
    """
    try:
        state = b"".join(
            subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True).stdout
            for command in (["rev-parse", "HEAD"], ["diff", "HEAD"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    tries = f"-{examples}" if (examples := os.environ.get(EXAMPLES)) else ""
    return ROOT / ".tests" / f"passed-{hashlib.sha256(state).hexdigest()[:12]}{tries}.txt"


@pytest.fixture(scope="session")
def _clusters(request: pytest.FixtureRequest) -> Iterator[dict[str, Cluster]]:
    """Start, at the same time, those clusters that some test of this session needs."""
    wanted = {f.removesuffix("_cluster") for item in request.session.items for f in getattr(item, "fixturenames", ())}
    names = [name for name in ("source", "target") if name in wanted]
    # Nobody kills these. With the sandbox's 4 s, one stall of a busy machine fences the only broker, and the epoch of its
    # transaction coordinator is never 0 again.
    with clusters(*names, overrides={"broker.session.timeout.ms": "60000"}) as several:
        for one in several:
            if one.name == "target":  # what tests leave there without one would be the traces of a ledger that was lost
                with ClusterAdmin(ClientConfig({"bootstrap.servers": one.bootstrap}, "target")) as admin:
                    Ledger(admin).create()
        yield {cluster.name: cluster for cluster in several}


@pytest.fixture(scope="session")
def source_cluster(_clusters: dict[str, Cluster]) -> Cluster:
    """A running one-node cluster without authorizer, shared by all tests of the session: don't kill its node."""
    return _clusters["source"]


@pytest.fixture(scope="session")
def target_cluster(_clusters: dict[str, Cluster]) -> Cluster:
    """A second one, separate from :func:`source_cluster`."""
    return _clusters["target"]


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """Return a topic name that no other test uses; the test's own name is in it."""
    return f"{re.sub(r'[^a-zA-Z0-9_-]+', '-', request.node.name)[:60]}-{uuid.uuid4().hex[:8]}"
