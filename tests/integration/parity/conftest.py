"""For the scenarios of MirrorMaker 2: a variant has one running tail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import Cluster
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import Flow
from tests.integration.parity.scenarios import TEN


@pytest.fixture(scope="module")
def clusters(source_cluster: Cluster, target_cluster: Cluster) -> tuple[Cluster, Cluster]:
    """Return source and target."""
    return source_cluster, target_cluster


@pytest.fixture(scope="class")
def flow(
    request: pytest.FixtureRequest, clusters: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flow]:
    """The variant's running tail, with a topic whose 100 records were there before it, and a group that has read them."""
    variant, directory = request.cls, tmp_path_factory.mktemp("flow")
    jobs = request.getfixturevalue("warm_jobs") if variant.SPARK else None
    with Flow(clusters, directory, jobs, transactions=variant.TRANSACTIONS, **variant.FIELDS) as flow:
        topic = flow.create("test-topic-1")
        flow.append(topic, TEN)
        apps.consume(flow.source, flow.group("group-1"), [topic], 100)
        flow.before = set(flow.admins[0].topic_names())
        flow.start()
        yield flow
