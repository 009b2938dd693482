"""Kill ``airflow-mirror adopt`` before and after each of its effects; the same command completes what was begun."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.ledger_store import last_hash
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionPair
from sandbox import Cluster
from tests.integration.adopt_once import EFFECTS
from tests.integration.copying import config, copy, ranges_of, read
from tests.integration.test_adopt import adopted, alias_of, mirror_of, replace_target, told

pytestmark = pytest.mark.parity

__all__ = ["adopted"]  # the fixture
_DECIDED = {
    "decision after",
    "plan before",
    "plan after",
    "release before",
    "release after",
    "groups before",
    "groups after",
}
_MOVED = {"groups after", "release before", "release after"}


@pytest.mark.parametrize("effect", EFFECTS)
def test_killed_at_an_effect_the_same_command_completes_it(
    effect: str, adopted: list[str], source_cluster: Cluster, target_cluster: Cluster, topic_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    name, there = mirror_of(topic_name), f"{alias_of(topic_name)}.{topic_name}"
    every, copies = read(source_cluster, topic_name), read(target_cluster, there)
    group, on_target = f"{topic_name}-behind", TopicPartition(there, 0)
    with ClusterAdmin(config(source_cluster)) as source, ClusterAdmin(config(target_cluster)) as target:
        source.commit_group_offsets(group, {TopicPartition(topic_name, 0): GroupPosition(every[170][0])}, unfenced)
        target.commit_group_offsets(group, {on_target: GroupPosition(120)}, unfenced)
        decided = False
        for moment in ("before", "after"):
            if decided and effect in ("decision", "plan", "release"):
                break  # it is not done twice
            command = [sys.executable, "-m", "tests.integration.adopt_once", effect, moment, *adopted, "--yes"]
            done = subprocess.run(command, timeout=500, capture_output=True, text=True, check=False)
            assert done.returncode == -signal.SIGKILL, done.stderr
            decided = there in owned_topics(Ledger(target))
            assert decided == (f"{effect} {moment}" in _DECIDED)
            at = target.group_offsets(group)[on_target].offset
            assert at == (220 if f"{effect} {moment}" in _MOVED else 120), "behind the plan, and at once"
            assert read(target_cluster, there) == copies

        again = told([*adopted, "--yes"], capsys)
        assert again["done"] and not again["refusals"]
        assert again["adopted_before"] == ([there] if decided else [])
        assert owned_topics(Ledger(target))[there].mirror == name
        assert last_hash(Ledger(target).values(), name)
        assert target.group_offsets(group)[on_target].offset == 220

    copy(
        source_cluster,
        target_cluster,
        [replace_target(one, there) for one in ranges_of(source_cluster, topic_name)],
        mirror=name,
    )
    contents = [one[1:] for one in every]
    assert [one[1:] for one in read(target_cluster, there)] == contents[:200] + contents[150:]
    pair = PartitionPair(source_topic=topic_name, target_topic=there, partition=0, mapped=True)
    (verdict,) = compare_partitions(
        [pair], config(source_cluster), config(target_cluster), maps=MapSource(name, True)
    )  # fmt: skip
    assert verdict.equal and verdict.records == len(every), verdict.first_difference
