"""A real tail whose writer lease somebody takes, on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.copy.writer import lease
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import assert_equal, config, create, ends, flow_of, wait_until, write
from tests.integration.test_spark_jobs import end_job, submit

pytestmark = pytest.mark.spark


def test_deposed_tail_copies_again_and_a_cutover_ends_it(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """A late starter takes the lease and ends, because it is not the one; no record is lost or there twice."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 100, 1)
    log = tmp_path / "tail.log"
    arguments = flow_of(tmp_path, source_cluster, target_cluster, topic_name)

    def copied() -> int:
        try:
            return ends(target_cluster, topic_name)[0][2]
        except Exception:  # the job creates the topic
            return 0

    tail = submit("streaming_tail.py", *arguments, log=log)
    try:
        with WireCluster(config(target_cluster)) as wire:
            wait_until(lambda: copied() == 100, "the tail copies", 300, 0.2)
            late = lease.take(wire, topic_name)
            wait_until(lambda: "this tail takes it back in 5 s" in log.read_text(), "it notices", 60, 0.2)
            write(source_cluster, topic_name, 100, 2)
            wait_until(lambda: copied() == 200, "it copies again", 120, 0.2)
            assert tail.poll() is None and "the writer lease is back" in log.read_text()
            lease.release(wire, late)  # not its to give back any more
            write(source_cluster, topic_name, 100, 3)
            wait_until(lambda: copied() == 300, "it copies on", 120, 0.2)
            ended = lease.take(wire, topic_name, to_end=True)
            assert tail.wait(120) == 1 and "all writing was ended" in log.read_text()
            lease.confirm(wire, ended)
    finally:
        end_job(tail)
    assert_equal(source_cluster, target_cluster, topic_name)
