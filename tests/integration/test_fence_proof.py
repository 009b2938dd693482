"""What proves a fence: an invalid batch that no release writes, and what every broker says by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.proof import prove
from airflow_mirror.cutover.steps import lift_fence, raise_fence
from airflow_mirror.errors import FenceUnproven
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.served import REFUSING, fingerprint, unproven
from airflow_mirror.wire.single import read_batches
from sandbox import Cluster
from sandbox.versions import RELEASES
from tests.builders import plan_of, topic_plan
from tests.integration.copying import wait_until
from tests.integration.cutover_world import Writer
from tests.unit.cutover.builders import a_run

PARTITIONS = 3
# What a topic may be set to that decides about batches: whose times, which codec, which format, how long.
KINDS = {
    "plain": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "gzip"},
}


@pytest.fixture(params=RELEASES)
def walled(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    name = f"refusing-{request.param.replace('.', '-')}"
    with Cluster(name, version=request.param, authorizer=True, ready_timeout_s=400) as cluster:
        yield cluster


def config(cluster: Cluster, user: str = "admin") -> ClientConfig:
    return ClientConfig(cluster.properties(user), "source")


def content(wire: WireCluster, tps: list[TopicPartition]) -> dict[TopicPartition, list[bytes]]:
    return {
        tp: [bytes(one.view) for one, _ in read_batches(wire, tp, 0, 2**62, isolation=READ_UNCOMMITTED)] for tp in tps
    }


@pytest.mark.versions
def test_invalid_batch_is_refused_and_never_written(walled: Cluster) -> None:
    """To whoever may write, and to whoever may not; in logs with records and in empty ones."""
    tps = [TopicPartition(topic, p) for topic in KINDS for p in range(PARTITIONS)]
    with closing(ClusterAdmin(config(walled), timeout_s=120)) as root:
        root.create_topics([NewTopicSpec(name, PARTITIONS, 1, set_) for name, set_ in KINDS.items()])
        wait_until(lambda: root.topics(KINDS).keys() == KINDS.keys(), "the topics are there")
        producer = Producer(walled.admin_properties())
        for topic in KINDS:
            for i in range(20):  # into its first partition; the others stay empty
                producer.produce(topic, b"value %d" % i, b"key %d" % i, 0)
        assert producer.flush(240) == 0
        with WireCluster(config(walled)) as wire, WireCluster(config(walled, "alice")) as alice:
            ends, before = wire.log_ends(tps), content(wire, tps)
            assert sum(ends.values()) == 20 * len(KINDS)
            assert fingerprint(wire.any_connection()) in REFUSING and not unproven(wire)
            for _ in range(3):
                assert set(wire.write_answers(tps).values()) == {ErrorCode.CORRUPT_MESSAGE}
            assert set(alice.write_answers(tps).values()) == {ErrorCode.CORRUPT_MESSAGE}
            fence = AclFence(root, open_by_default=True)
            intent = fence.intent(list(KINDS))
            fence.raise_(intent)
            denied = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            wait_until(lambda: set(alice.write_answers(tps).values()) == denied, "the fence is in force")
            assert not fence.brokers_without(intent)
            assert set(wire.write_answers(tps).values()) == {ErrorCode.CORRUPT_MESSAGE}, "a super user"
            assert wire.log_ends(tps) == wire.high_watermarks(tps) == ends and content(wire, tps) == before


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster("proving", nodes=3, authorizer=True, ready_timeout_s=400) as cluster:
        yield cluster


@pytest.mark.parametrize(("user", "by"), [("mirror", "answers"), ("admin", "acls")])
def test_every_leader_proves_the_fence_to_a_user_whom_acls_bind(
    three: Cluster, topic_name: str, tmp_path: Path, user: str, by: str
) -> None:
    """A producer hammers the topic meanwhile. What it is told to have written is there, and nothing after the proof."""
    with closing(ClusterAdmin(config(three, user), timeout_s=120)) as source, WireCluster(config(three, user)) as wire:
        source.create_topics([NewTopicSpec(topic_name, 12, 3)])
        tps = [TopicPartition(topic_name, p) for p in range(12)]
        wait_until(lambda: topic_name in source.topics([topic_name]), "the topic is there")
        with Writer(three.properties("alice"), topic_name) as hammer:
            run = a_run(tmp_path, AclFence(source, open_by_default=True), source)
            topic = topic_plan(topic_name, dict.fromkeys(range(12), 0), source_topic_id="")
            run.plan, run.source_log = plan_of(run.mirror, topic), wire
            raise_fence(run)
            assert run.report.fence is not None and run.report.fence.proof == {"by": "answers", "why": ""}
            found = prove(run)
            refused = hammer.refused
            wait_until(lambda: hammer.refused > refused, "the producer was refused after the proof")
            ends = wire.log_ends(tps)
            assert found["by"] == by and ("super user" in found["why"]) == (by == "acls")
            refused = hammer.refused
            wait_until(lambda: hammer.refused > refused + 3, "it was refused again")
        assert wire.log_ends(tps) == ends and sum(ends.values()) == hammer.acknowledged > 0
        assert prove(run)["by"] == by
        lift_fence(run)
        if by == "answers":
            run.limits = replace(run.limits, proof_timeout_s=0.5)
            with pytest.raises(FenceUnproven, match="does not list its ACLs"):
                prove(run)
