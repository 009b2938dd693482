"""Traces on real brokers, read by MirrorMaker 2's own client library: the quick way."""

from __future__ import annotations

from pathlib import Path

from airflow_mirror.partition import TopicPartition
from sandbox import Cluster
from tests.integration.copying import write, write_transactions
from tests.integration.java_clients import compiled, java_client
from tests.integration.traces_world import PARTITIONS, world


def test_java_finds_the_cluster_and_the_groups_that_the_mirror_names(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    with world(source_cluster, target_cluster, topic_name, policy="prefix") as w:
        for topic in (w.kept, w.mapped):
            for p in range(PARTITIONS):
                write(source_cluster, topic, 300, seed=p, partition=p)
            write_transactions(source_cluster, topic, seed=5, transactions=3, partitions=PARTITIONS)
        w.copy()
        group = w.put("g", kept=[17, 250], mapped=[101, 333])
        beat, report = w.beat(), w.follow()
        assert (beat.topics, beat.failed, report.checkpoints, report.failed) == (2, [], 4, [])
        kept, mapped = (t.target_topic for t in w.plan.topics)
        with w.follower() as follower:
            expected = {
                (kept, 0): (17, ""), (kept, 1): (250, "kept 1"), (mapped, 0): (101, ""),
                (mapped, 1): (follower._maps.to_target(TopicPartition(w.mapped, 1), 333).offset, "mapped 1"),
            }  # fmt: skip
        classpath = compiled(tmp_path)
        with java_client(classpath, target_cluster.bootstrap, w.policy()) as client:
            assert client.offsets(w.alias, group) == expected
            found = client.clusters(w.alias)
        assert found["hops"] == ["1"] and w.alias in found["upstream"]
        assert {"heartbeats", f"{w.alias}.heartbeats"} <= {*found["heartbeats"]}
        assert f"{w.alias}.checkpoints.internal" in found["checkpoints"]
        assert {*found["remote of it"]} == {kept, mapped, f"{w.alias}.heartbeats"}
