"""S2: the same scenarios with transactional delivery; and a tail that is killed, and forgets all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sandbox import Cluster
from tests.integration.copying import wait_until
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import PARTITIONS, Flow
from tests.integration.parity.scenarios import Scenarios

pytestmark = pytest.mark.parity


class TestS2ExactlyOnce(Scenarios):
    FIELDS = {"delivery": "transactional", "use_defaults_from": "target"}


@pytest.mark.parametrize("fields", [{}, {"delivery": "transactional"}], ids=["identical", "transactional"])
def test_s2_killed_and_forgotten(clusters: tuple[Cluster, Cluster], tmp_path: Path, fields: dict[str, Any]) -> None:
    """SIGKILL in the middle of a copy, and the next tail without a file of the first: no record twice, none missing.

    MirrorMaker 2 can be told to copy again what is there, by setting back the offsets that it stores. Here the target's
    log says what is there, so that there is nothing to set back: whoever starts anew adds nothing.
    """
    with Flow(clusters, tmp_path / "first", max_bytes_per_second=100_000, **fields) as flow:
        topic = flow.create("test-topic-1")
        flow.append(topic, [3000] * PARTITIONS)
        flow.start(until="copying")
        wait_until(lambda: 0 < arrived(flow, topic) < 30_000, "it is in the middle", poll_s=0.05)
        flow.kill()
        assert arrived(flow, topic) < 30_000, "killed too late to prove anything"
        shutil.rmtree(tmp_path / "first")
        flow.fields["max_bytes_per_second"] = None
        flow.start()
        here, there = flow.arrives(topic, 30_000)
        flow.stop()
        flow.start()
        second = flow.create("test-topic-2")
        flow.append(second, [10])
        flow.arrives(second, 10)
        assert flow.arrives(topic, 30_000) == (here, there)


def arrived(flow: Flow, topic: str) -> int:
    if flow.there(topic) not in flow.admins[1].topic_names():
        return 0
    return sum(map(len, apps.log_of(flow.target, flow.there(topic)).values()))
