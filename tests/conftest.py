"""Fixtures for all tests: real clusters of one node each, started once a session and only when a test asks."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from sandbox import Cluster, clusters


@pytest.fixture(scope="session")
def _clusters(request: pytest.FixtureRequest) -> Iterator[dict[str, Cluster]]:
    """Start, at the same time, those clusters that some test of this session needs."""
    wanted = {f.removesuffix("_cluster") for item in request.session.items for f in getattr(item, "fixturenames", ())}
    names = [name for name in ("source", "target") if name in wanted]
    # Nobody kills these. With the sandbox's 4 s, one stall of a busy machine fences the only broker, and the epoch of its
    # transaction coordinator is never 0 again.
    with clusters(*names, overrides={"broker.session.timeout.ms": "60000"}) as several:
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
