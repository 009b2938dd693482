"""Sources that are away for longer than any time limit of a client: groups follow on, and nothing stays alarming."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from sandbox import Cluster
from sandbox.cluster import start_all, stop_all
from tests.integration import plain
from tests.integration.copying import assert_equal, config, create, properties_of, wait_until, write

pytestmark = pytest.mark.faults

# A tail gives its partitions up after 120 s. Brokers close what is idle for a minute here; their own limit is ten.
AWAY_S, IDLE = 135.0, {"connections.max.idle.ms": "60000"}
INTERVAL_S, BOUND_S = 5.0, 30.0  # a pass, and the longest pause between two attempts to connect


class Flow:
    """A source with a topic and a group, and a tail of it that runs."""

    def __init__(self, source: Cluster, target: Cluster, topic: str, directory: Path, close: ExitStack) -> None:
        directory.mkdir()
        self.source, self.topic, self.group = source, topic, f"{topic}-g"
        self.job_dir = directory / "job"
        create(source, topic)
        write(source, topic, 500, 1)
        self.commit(100)
        mirror = {
            "name": source.name, "source": "source", "target": "target", "topics": [topic], "groups": [f"{topic}.*"],
            "group_interval_s": INTERVAL_S,
        }  # fmt: skip
        (directory / "mirror.json").write_text(json.dumps(mirror))
        arguments = ["--mirror", str(directory / "mirror.json"), "--job-dir", str(self.job_dir)]
        arguments += properties_of(directory, source, target)
        self.tail = close.enter_context(plain.Follow(*arguments, log=directory / "tail.log"))

    def commit(self, offset: int) -> None:
        with ClusterAdmin(config(self.source), timeout_s=120) as admin:
            admin.commit_group_offsets(self.group, {TopicPartition(self.topic, 0): GroupPosition(offset)}, unfenced)

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads((self.job_dir / "status.json").read_text()))

    @property
    def error(self) -> str | None:
        """Why its groups don't follow."""
        return self.status["follows"].get("groups", {}).get("error")

    @property
    def alarming(self) -> list[Any]:
        """All in its status that a person would have to look at."""
        status = self.status
        told = [one for follows in status["follows"].values() for one in (follows["error"], *follows["said"])]
        return [one for one in (*told, *status["notes"], *status["summary"]["stopped"], status["error"]) if one]


@pytest.fixture
def sources() -> Iterator[list[Cluster]]:
    """One whose brokers will hang, and one whose brokers will be gone."""
    several = [Cluster(name, overrides=IDLE) for name in ("hangs", "gone")]
    try:
        start_all(several)
        yield several
    finally:
        stop_all(several)


def test_groups_follow_on_when_a_source_is_back_and_nothing_alarming_stays(
    sources: list[Cluster], target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    hangs, gone = sources
    with ExitStack() as close, ClusterAdmin(config(target_cluster), timeout_s=120) as target:
        flows = [
            Flow(source, target_cluster, f"{source.name}-{topic_name}"[:80], tmp_path / source.name, close)
            for source in sources
        ]

        def there(flow: Flow) -> int | None:
            found = target.group_offsets(flow.group).get(TopicPartition(flow.topic, 0))
            return None if found is None else found.offset

        for flow in flows:
            wait_until(lambda flow=flow: there(flow) == 100, "its group follows")
        hangs.pause(1)
        gone.kill(1)
        left = time.monotonic()
        while time.monotonic() - left < AWAY_S:  # what is tested is time itself
            assert all(flow.tail.process.poll() is None for flow in flows), [flow.tail.said[-3000:] for flow in flows]
            time.sleep(1.0)
        for flow in flows:
            assert flow.error is not None, "that it does not follow is in its status"
            assert there(flow) == 100
        hangs.resume(1)
        gone.restart(1)
        for number, flow in enumerate(flows):
            flow.commit(200 + number)
        back = time.monotonic()
        for number, flow in enumerate(flows):
            wait_until(lambda flow=flow, number=number: there(flow) == 200 + number, "it follows again", 300, 0.1)
            print(f"{flow.source.name}: follows {time.monotonic() - back:.1f} s after its return")
        assert time.monotonic() - back < BOUND_S
        for flow in flows:
            write(flow.source, flow.topic, 100, 2)
            flow.commit(600)
        for flow in flows:
            wait_until(lambda flow=flow: there(flow) == 600, "records and group follow")
            wait_until(lambda flow=flow: not flow.alarming, "nothing alarming stays in its status")
            summary = flow.tail.stop()
            assert (summary["errors"], summary["gone"]) == ([], [])
            assert_equal(flow.source, target_cluster, flow.topic)
