"""Verification through Spark tasks: the same verdicts, with settings by reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.session import spark_context
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.verify.result import PartitionPair, differences
from airflow_mirror.verify.spark import run_verify
from sandbox import Cluster
from tests.integration.test_verify_partitions import config, create, fill, irregular


@pytest.mark.spark
def test_tasks_return_every_verdict_and_the_damage(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = irregular(50)
    for cluster, third in ((source_cluster, rows), (target_cluster, [*rows[:9], *rows[10:]])):
        create(cluster, topic_name, partitions=4)
        for partition, content in ((0, rows), (2, third), (3, rows[:5])):  # 1 stays empty
            fill(cluster, topic_name, content, "snappy", partition=partition)
    # Not by a variable: the JVM of an earlier session in this process keeps the environment that it began with.
    source_file = tmp_path / "source.json"
    source_file.write_text(config(source_cluster, "source").dump())
    target_file = tmp_path / "target.properties"
    target_file.write_text("\n".join(f"{k}={v}" for k, v in target_cluster.admin_properties().items()))
    monkeypatch.setenv("JAVA_HOME", str(java_home_for_spark()))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[2] --driver-memory 512m pyspark-shell")
    pairs = [PartitionPair(source_topic=topic_name, target_topic=topic_name, partition=p) for p in range(4)]
    with spark_context("verify test") as context:
        references = str(source_file), str(target_file)
        with pytest.raises(InvalidField, match="level"):
            run_verify(context, [pairs], *references, level="thorough")
        verdicts = run_verify(context, [[pairs[3], pairs[0]], [], [pairs[1], pairs[2]]], *references, level="records")
    assert [(v.partition, v.equal, v.records) for v in verdicts] == [
        (0, True, 50), (1, True, 0), (2, False, 9), (3, True, 5),
    ]  # fmt: skip
    [line] = differences(verdicts)
    assert line.startswith(f"{topic_name}-2 [0, 49): missing at offset 9")
