"""A target with rules of its own, in Java: all that they refuse is in the plan, by topic, in the target's words."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import HoldTooShort
from airflow_mirror.jobs.planning import plan_to_read
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.finite_hold import FiniteHold
from sandbox import Cluster
from sandbox.cloud import compiled
from sandbox.versions import DEFAULT_VERSION
from tests.integration import plain
from tests.integration.copying import wait_until

pytestmark = pytest.mark.versions

_LIMITS = Path(__file__).parents[1] / "java" / "Limits.java"
DAY_MS, MONTH_MS = "86400000", "2592000000"


@pytest.fixture(scope="module", params=[DEFAULT_VERSION, "3.4.1"])
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterAdmin]:
    """A target whose brokers have the policies of ``Limits.java``: KRaft, and brokers with a ZooKeeper."""
    version, directory = request.param, tmp_path_factory.mktemp("classes")
    release = "11" if version == DEFAULT_VERSION else "8"
    classes = compiled(directory, [_LIMITS], version, "-Xlint:-options", "--release", release)
    # Of the older one they stand in the way of the ledger, too.
    policies = {"limits.exempt": "airflow-mirror."} if version == DEFAULT_VERSION else {}
    policies |= {"create.topic.policy.class.name": "Limits$OnCreate", "alter.config.policy.class.name": "Limits$OnAlter"}
    with (
        Cluster(
            "strict",
            overrides=policies,
            version=version,
            zookeeper=version != DEFAULT_VERSION,
            classes=classes,
            ready_timeout_s=240,
        ) as cluster,  # fmt: skip
        ClusterAdmin(ClientConfig({"bootstrap.servers": cluster.bootstrap}, "target"), timeout_s=120) as admin,
    ):
        yield admin


@pytest.fixture
def source(source_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(ClientConfig({"bootstrap.servers": source_cluster.bootstrap}, "source"), timeout_s=120) as admin:
        yield admin


def make(admin: ClusterAdmin, name: str, partitions: int = 1, **configs: str) -> None:
    admin.create_topics(
        [NewTopicSpec(name, partitions, 1, {k.replace("_", "."): v for k, v in configs.items()})], unfenced
    )
    wait_until(lambda: name in admin.topics([name]), "the topic is there")


def blocks(plan: Plan) -> dict[str, tuple[str, str]]:
    return {f.object: (f.evidence, f.remedy) for f in plan.blocks if f.check == "refused_configs"}


def test_each_topic_that_the_target_refuses_has_its_own_reason(
    source: ClusterAdmin, strict: ClusterAdmin, topic_name: str
) -> None:
    """Also one that exists: only the copy found out, when it put the first one on hold, after it had created others."""
    wide, scratch, new, there, old = (f"{p}{topic_name}" for p in ("wide-", "tmp-", "new-", "there-", "old-"))
    make(source, wide, 8, retention_ms=DAY_MS)
    make(source, scratch, retention_ms=DAY_MS)
    make(source, new, retention_ms=DAY_MS)
    make(source, there, retention_ms=DAY_MS)
    make(source, old, retention_ms=MONTH_MS)
    make(strict, there, retention_ms=DAY_MS)
    make(strict, old, retention_ms=DAY_MS)
    before = strict.topic_configs([there, old])
    try:
        mirror = Mirror(name="m", source="a", target="b", topics=[f".*{topic_name}"])
        found = blocks(build(mirror, source, strict, probe_target=False))
        assert found.keys() == {f"target topic {name!r}" for name in (wide, scratch, new, there, old)}
        evidence = {name: found[f"target topic {name!r}"][0] for name in (wide, scratch, new, there, old)}
        remedy = {name: found[f"target topic {name!r}"][1] for name in (wide, scratch, new, there, old)}
        # KRaft asks the policy for settings about a new topic, too, and first: on hold it says something else.
        assert "would not create it (POLICY_VIOLATION: at most 6 partitions, not 8" in evidence[wide]
        assert f"POLICY_VIOLATION: no topic {scratch}" in evidence[scratch]
        for name in (new, there):
            assert "refuses the hold" in evidence[name] and f"retention.ms of {name} is -1" in evidence[name]
            assert "retention.ms=-1" in remedy[name] and "source topic" not in remedy[name]
        assert (
            f"source's settings after the cutover (POLICY_VIOLATION: retention.ms of {old} is {MONTH_MS}" in evidence[old]
        )
        assert f"; on hold POLICY_VIOLATION: retention.ms of {old} is -1" in evidence[old]
        assert "keep_configs=['retention.ms']" in remedy[old]
        # Who compares after the cutover puts nothing on hold.
        assert blocks(plan_to_read(mirror, source, strict)) == {}
        assert strict.topic_configs([there, old]) == before and not {wide, scratch, new} & {*strict.topic_names()}
    finally:
        source.delete_topics([wide, scratch, new, there, old], unfenced)
        strict.delete_topics([there, old], unfenced)


def test_a_hold_that_ends_passes_the_rule_and_keeps_every_record(
    request: pytest.FixtureRequest, source_cluster: Cluster, source: ClusterAdmin, strict: ClusterAdmin,
    topic_name: str, tmp_path: Path,
) -> None:  # fmt: skip
    """A rule that refuses retention.ms=-1: nothing that the source has may be older than the hold."""
    now_ms, hold_ms, shorter = int(time.time() * 1000), 6 * int(DAY_MS), f"{topic_name}-shorter"
    mirror = Mirror(name="m", source="a", target="b", topics=[topic_name], hold_retention_ms=hold_ms)
    arguments = ["--mirror", str(tmp_path / "mirror.json")]
    (tmp_path / "mirror.json").write_text(json.dumps(mirror.to_dict()))
    for role, admin in (("source", source), ("target", strict)):
        file = tmp_path / f"{role}.properties"
        file.write_text(f"bootstrap.servers={admin.config.bootstrap}\n")
        arguments += [f"--{role}", str(file)]
    make(source, topic_name, retention_ms="604800000")
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
    for at_ms in (now_ms - 5 * int(DAY_MS), now_ms):
        producer.produce(topic_name, b"v", partition=0, timestamp=at_ms)
        assert producer.flush(60) == 0
    try:
        planned = build(mirror, source, strict, probe_target=False)
        if DEFAULT_VERSION not in request.node.name:
            (lacks,) = planned.blocks
            assert lacks.check == "ledger_topics" and "retention.ms of airflow-mirror.decisions is -1" in lacks.evidence
            return
        assert plain.copy(*arguments, log=tmp_path / "log") == 0, (tmp_path / "log").read_text()
        assert strict.topic_configs([topic_name])[topic_name]["retention.ms"].value == str(hold_ms)
        assert subprocess.run(plain.command("verify", "--mirror", "m", *arguments[2:])).returncode == 0
        # What is older than a topic's retention the target's brokers delete meanwhile, and nothing of ours.
        make(strict, shorter, retention_ms=str(4 * int(DAY_MS)))
        producer = Producer({"bootstrap.servers": strict.config.bootstrap})
        producer.produce(shorter, b"v", partition=0, timestamp=now_ms - 5 * int(DAY_MS))
        assert producer.flush(60) == 0
        ours, theirs = (TopicPartition(name, 0) for name in (topic_name, shorter))
        wait_until(lambda: strict.wire.log_starts([theirs])[theirs] == 1, "retention takes a record of that age")
        assert strict.wire.log_starts([ours])[ours] == 0
        FiniteHold(planned, source).look_in_turn()
        with pytest.raises(HoldTooShort, match=f"{topic_name}-0"):
            FiniteHold(planned, source, now_s=lambda: time.time() + 0.8 * 86_400).look_in_turn()
        short = replace(mirror, hold_retention_ms=5 * int(DAY_MS))
        (found,) = build(short, source, strict, probe_target=False, known_topics={topic_name: ""}).blocks
        assert found.check == "finite_hold" and f"{topic_name}-0" in found.evidence
    finally:
        source.delete_topics([topic_name], unfenced)
        strict.delete_topics(strict.topics([topic_name, shorter]), unfenced)
