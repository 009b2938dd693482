"""A mirror's health on real clusters: a tail that replicates, and what is found once it doesn't."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.jobs.health.gathering import gather
from airflow_mirror.jobs.health.judging import Facts, Limits, judge
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.findings import BLOCK, Finding
from sandbox import Cluster
from sandbox.process import in_sessions
from tests.integration.copying import config, create, ends, properties_of, wait_until
from tests.integration.test_spark_jobs import end_job, submit

pytestmark = pytest.mark.spark

LIMITS = Limits(min_free_bytes=1)


def test_a_tail_is_well_until_it_is_killed(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Then its loss, its lag, the race against the source's retention and a changed setting are found together."""
    create(source_cluster, topic_name, 2, cleanup_policy="delete", retention_ms="7200000")
    clusters, log = properties_of(tmp_path, source_cluster, target_cluster), tmp_path / "tail.log"
    tail = submit("streaming_tail.py", *clusters, "--include", topic_name, "--name", topic_name, log=log)

    def append(age_s: float) -> None:
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
        producer.produce(topic_name, b"v", partition=1, timestamp=round((time.time() - age_s) * 1000))
        assert producer.flush(120) == 0

    def copied() -> int:
        try:
            return sum(end for _, _, end in ends(target_cluster, topic_name, 2).values())
        except Exception:  # the job creates the topic
            return 0

    try:
        append(4100)  # times grow along the log
        wait_until(lambda: copied() == 1 or tail.poll() is not None, "the tail copies", 300, 0.2)
        assert tail.poll() is None, log.read_text()[-3000:]
        with ClusterAdmin(config(source_cluster)) as source, ClusterAdmin(config(target_cluster)) as target:
            view = TailView(target, topic_name)
            active = view.tail()
            assert active is not None
            mirror = Mirror.from_dict(active.mirror)
            plan = build(mirror, source, target, [topic_name], probe_target=False)

            def look() -> tuple[Facts, list[Finding]]:
                facts = gather(plan, source, target, lambda: view.look(mirror), list[str], LIMITS)
                return facts, judge(facts, LIMITS)

            facts, found = look()
            assert [str(one) for one in found if one.level == BLOCK] == []
            assert (facts.tail.status, facts.tail.said.phase, facts.lease) == ("RUNNING", "copying", "a job")
            assert [lag.records for lag in facts.lags] == [0, 0]
            assert facts.free_bytes and all(facts.free_bytes.values()), "these brokers tell it"

            end_job(tail)
            wait_until(lambda: not in_sessions(tail.pid), "Spark's own workers have ended", 60)
            append(4000)
            target.alter_topic_configs(topic_name, unfenced, {"retention.ms": "86400000"})
            facts, found = look()
            late = TopicPartition(topic_name, 1)
            assert {one.check for one in found if one.level == BLOCK} == {"tail", "lag", "retention", "hold"}, found
            assert facts.tail.status == "LOST" and list(facts.late) == [late] and list(facts.racing) == [late]
            assert facts.not_held == [(topic_name, "retention.ms", "86400000")]
    finally:
        end_job(tail)
