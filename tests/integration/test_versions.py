"""A migration between releases: everything that real topics hold, groups, and a cutover behind a fence by ACL."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokersUnsupported
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import PartitionPair
from sandbox import Cluster, clusters
from sandbox.versions import DEFAULT_VERSION, RELEASES
from tests.cutting_over import cut_over
from tests.integration.copying import assert_equal, copy, ranges_of, read, write, write_transactions
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import EngineTail, HeardFence, World, Writer
from tests.waiting import wait_until

pytestmark = pytest.mark.versions

NEWEST = DEFAULT_VERSION
PAIRS = [*((version, NEWEST) for version in RELEASES), (NEWEST, "3.4.1"), (NEWEST, "3.9.1"), (NEWEST, "4.3.1")]
ZSTD_SINCE = (2, 1)
# The cleaner looks every second, or the test would wait for its fifteen.
CLEANER = {"log.cleaner.backoff.ms": "500", "log.cleaner.enable": "true"}


class Pair(NamedTuple):
    """Two running clusters."""

    source: Cluster
    target: Cluster
    source_version: str
    target_version: str

    @property
    def codecs(self) -> list[str]:
        number = RELEASES[self.source_version].number
        return ["none", "gzip", "snappy", "lz4", *(["zstd"] if number >= ZSTD_SINCE else [])]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair[0]}-to-{pair[1]}")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    source_version, target_version = request.param
    number = source_version.replace(".", "-")
    with (
        Cluster(f"from-{number}", version=source_version, authorizer=True, overrides=CLEANER) as source,
        Cluster(f"to-{target_version.replace('.', '-')}", version=target_version) as target,
    ):
        yield Pair(source, target, source_version, target_version)


def admin(cluster: Cluster, role: str) -> ClusterAdmin:
    return ClusterAdmin(ClientConfig(cluster.admin_properties(), role), timeout_s=120)


def fill(pair: Pair, source: ClusterAdmin, prefix: str) -> dict[str, int]:
    """Make topics of all kinds; return the partitions of each."""
    kinds: dict[str, dict[str, str]] = {f"{prefix}.{codec}": {} for codec in pair.codecs} | {
        f"{prefix}.transactional": {},
        f"{prefix}.trimmed": {},
        f"{prefix}.append-time": {"message.timestamp.type": "LogAppendTime"},
        f"{prefix}.compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "200"},
        f"{prefix}.empty": {},
    }
    everything = {name: {"retention.ms": "-1", **configs} for name, configs in kinds.items()}
    source.create_topics([NewTopicSpec(name, 1, 1, configs) for name, configs in everything.items()], unfenced)
    wait_until(lambda: source.topics(everything).keys() == everything.keys())
    for seed, codec in enumerate(pair.codecs):
        write(pair.source, f"{prefix}.{codec}", 300, seed, codec)
    write(pair.source, f"{prefix}.append-time", 200, 20, "lz4")
    write_transactions(pair.source, f"{prefix}.transactional", 21)
    write(pair.source, f"{prefix}.trimmed", 400, 22, "gzip")
    source.delete_records({TopicPartition(f"{prefix}.trimmed", 0): 123}, unfenced)
    compact(pair.source, f"{prefix}.compacted")
    return dict.fromkeys(everything, 1)


def compact(cluster: Cluster, topic: str) -> None:
    """Write a topic until the real cleaner has removed records of it."""
    rng, producer = random.Random(3), Producer({"bootstrap.servers": cluster.bootstrap})
    for i in range(600):
        value = None if rng.random() < 0.1 else rng.randbytes(30)
        producer.produce(topic, value, b"key %d" % rng.randint(0, 60), timestamp=1_600_000_000_000 + i)
    producer.flush(240)

    def is_compacted() -> bool:
        producer.produce(topic, b"tick", b"tick")  # rolls the segment: the cleaner takes no active one
        producer.flush(240)
        time.sleep(0.5)
        return len(read(cluster, topic)) < 500

    wait_until(is_compacted, "the cleaner removed records")


def planned(pair: Pair, prefix: str, source: ClusterAdmin, target: ClusterAdmin) -> Plan:
    mirror = Mirror(name=f"flow-{prefix}", source="src", target="dst", topics=[f"{prefix}[.].*"], groups=[f"{prefix}-.*"])
    return build(mirror, source, target)


def test_everything_that_topics_hold_arrives_at_the_same_offsets(pair: Pair) -> None:
    """Five codecs, transactions, a trimmed log, a compacted one, LogAppendTime."""
    prefix = f"v{time.time_ns() % 10**9}"
    with closing(admin(pair.source, "source")) as source, closing(admin(pair.target, "target")) as target:
        topics = fill(pair, source, prefix)
        plan = planned(pair, prefix, source, target)
        assert [str(f) for f in plan.blocks] == []
        create_target_topics(plan, target, unfenced)
        whole = [one for topic in topics for one in ranges_of(pair.source, topic)]
        results = copy(pair.source, pair.target, whole, mirror=plan.mirror.name)
        assert [r.error for r in results if not r.done] == []
        for topic in topics:
            if not topic.endswith((".compacted", ".append-time")):  # the cleaner goes on; librdkafka shows other types
                assert_equal(pair.source, pair.target, topic)
        pairs = [
            PartitionPair(
                source_topic=one.source_topic,
                target_topic=one.target_topic,
                partition=0,
                start_offset=one.start_offset,
                end_offset=one.end_offset,
            )
            for one in whole
        ]
        found = compare_partitions(pairs, source.config, target.config, "records")
        assert [str(c.first_difference) for c in found if not c.equal] == []
        assert {c.source_topic for c in found if not c.records} == {f"{prefix}.empty"}


def test_plan_says_what_an_old_source_does_not_tell(pair: Pair) -> None:
    prefix = f"p{time.time_ns() % 10**9}"
    with closing(admin(pair.source, "source")) as source, closing(admin(pair.target, "target")) as target:
        source.create_topics([NewTopicSpec(f"{prefix}.one", 1, 1, {})], unfenced)
        wait_until(lambda: source.topics([f"{prefix}.one"]))
        findings = planned(pair, prefix, source, target).findings
    said = [f.evidence for f in findings if f.check == "brokers"]
    number = RELEASES[pair.source_version].number
    assert any("leader epochs" in one for one in said) is (number < (2, 1))
    assert any("topic ids" in one for one in said) is (number < (2, 8))
    (clients,) = (f.level for f in findings if f.check == "client_versions")
    assert (clients == "warn") is (number < (4, 0) <= RELEASES[pair.target_version].number)


def test_live_source_is_fenced_drained_and_cut_over(pair: Pair, topic_name: str, tmp_path: Path) -> None:
    with (
        closing(World(pair.source, pair.target, topic_name, tmp_path)) as world,
        Writer(pair.source.properties("alice"), world.topic) as writer,
        EngineTail(world),
    ):
        idle = world.group("idle", {0: 3})
        plan = world.plan()
        world.keep(plan)
        report = cut_over(
            world.on, plan, world.kept(), fence=HeardFence(world.source, writer),
            verify=verify_rest(plan, world.source.config, world.target.config), limits=replace(LIMITS, wait_groups_s=120),
            accept_ledger_writers=["User:*"],
        )  # fmt: skip
        ends = world.source.offsets(world.tps)
        assert ends == world.target.offsets(world.tps)
        assert sum(ends.values()) == writer.acknowledged > 0
        assert world.positions(idle) == {0: 3}
    assert report.summary()["outcome"] == "cut_over"


def test_too_old_target_is_named_before_anything_is_touched() -> None:
    with (
        clusters("from-old", "to-old", version="2.8.2") as (old_source, old_target),
        closing(admin(old_source, "source")) as source,
        closing(admin(old_target, "target")) as target,
    ):
        source.create_topics([NewTopicSpec("orders", 1, 1, {})], unfenced)
        wait_until(lambda: source.topics(["orders"]))
        with pytest.raises(BrokersUnsupported, match=r"DescribeTransactions.*3\.0 or later"):
            build(Mirror(name="m", source="a", target="b", topics=["orders"]), source, target)
        assert target.topic_names() == []
