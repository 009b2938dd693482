"""I13: from latest. What was there before stays away, what comes is there, also after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import Cluster
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import PARTITIONS, TRANSFER_S, Flow, within
from tests.integration.parity.scenarios import TEN

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("policy", ["prefix", "identity"])
def test_i13_from_latest(clusters: tuple[Cluster, Cluster], tmp_path: Path, policy: str) -> None:
    """No sentinel topic has to show that it polls: it says so itself. A restart knows where latest was."""
    with Flow(clusters, tmp_path, policy=policy, start="latest") as flow:
        topic = flow.create("i13")
        flow.append(topic, TEN)
        flow.start()
        flow.append(topic, TEN)
        within(TRANSFER_S, lambda: arrived(flow, topic) >= 100, "the new ones arrive")
        flow.stop()
        flow.append(topic, TEN)
        flow.start()
        within(TRANSFER_S, lambda: arrived(flow, topic) >= 200, "so do those that came while nothing ran")
        here, there = apps.log_of(flow.source, topic), apps.log_of(flow.target, flow.there(topic))
        assert there == {p: here[p][10:] for p in range(PARTITIONS)}, "at the same offsets"


def arrived(flow: Flow, topic: str) -> int:
    return sum(map(len, apps.log_of(flow.target, flow.there(topic)).values()))
