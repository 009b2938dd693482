"""A cluster is upgraded node by node, while a tail copies from it or to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
from sandbox import Cluster
from sandbox.cluster import start_all, stop_all
from tests.integration import plain
from tests.integration.copying import assert_equal, create, ends, flow_of, wait_until, write, write_transactions

PARTITIONS, NODES = 6, 3
OLD, NEW = "4.3.1", "4.4.0"


def in_sync(cluster: Cluster, topic: str) -> bool:
    with ClusterAdmin(ClientConfig(cluster.admin_properties(), "upgraded"), timeout_s=60) as admin:
        there = admin.replicas([topic])
    return len(there) == PARTITIONS and all(one.in_sync == NODES for one in there.values())


@pytest.mark.versions
@pytest.mark.parametrize("upgraded", [0, 1], ids=["source", "target"])
def test_a_tail_goes_on_while_a_side_is_upgraded(topic_name: str, tmp_path: Path, upgraded: int) -> None:
    """Nothing is lost, doubled or reordered, and no partition stops."""
    sides = [
        Cluster(name, nodes=NODES if side == upgraded else 1, version=OLD, ready_timeout_s=400)
        for side, name in enumerate(("rolling-source", "rolling-target"))
    ]
    source, target = sides

    def total(cluster: Cluster) -> int:
        return sum(end for _, _, end in ends(cluster, topic_name, PARTITIONS).values())

    def write_more(seed: int) -> None:
        for partition in range(PARTITIONS):
            write(source, topic_name, 50, seed + partition, "lz4", partition=partition)
        write_transactions(source, topic_name, seed=seed, transactions=2, partitions=PARTITIONS)

    start_all(sides)
    try:
        for side, cluster in enumerate(sides):
            create(cluster, topic_name, PARTITIONS, replicas=NODES if side == upgraded else 1)
        write_more(0)
        flow = [*flow_of(tmp_path, source, target, topic_name), "--no-probe"]
        with plain.Follow(*flow, log=tmp_path / "follow.log") as follow:
            wait_until(lambda: total(target) == total(source) > 0, "it has caught up", 240)
            for node in range(1, NODES + 1):
                sides[upgraded].restart(node, NEW)
                wait_until(lambda: in_sync(sides[upgraded], topic_name), "all replicas are in sync", 240)
                write_more(10 * node)
                wait_until(lambda: total(target) == total(source), f"it goes on after node {node}", 240)
            summary = follow.stop()
        assert (summary["partitions"], summary["errors"], summary["gone"]) == (PARTITIONS, [], [])
        assert_equal(source, target, topic_name, PARTITIONS)
    finally:
        stop_all(sides)
