"""Which topics are the store of a schema registry, by what stands in them."""

from __future__ import annotations

import json
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.registry_topics import RegistryTopics, registry_topics
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import TIME_MS
from tests.driven.records import Row
from tests.driven.script import Fault
from tests.unit.plan.builders import a_cluster, a_topic
from tests.unit.plan.test_checks import levels, plan

NOOP = json.dumps({"keytype": "NOOP", "magic": 0}).encode()
SCHEMA = json.dumps({"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}).encode()


def lay(cluster: DrivenCluster, name: str, *keys: bytes | None, partitions: int = 1) -> None:
    log = cluster.create(name, partitions).logs[0]
    for key in keys:
        log.lay(records.encode([Row(log.end, TIME_MS, key, b"{}", ())], leader_epoch=log.epoch))


def found(cluster: DrivenCluster, *names: str, policy: str = "compact") -> RegistryTopics:
    topics = {
        name: a_topic(name, spans=[(0, log.end) for log in cluster.topics[name].logs], cleanup_policy=policy)
        for name in names
    }
    with ClusterAdmin(cluster.config) as source:
        return registry_topics(source, topics)


def test_store_of_a_registry_is_known_by_its_keys(source: DrivenCluster) -> None:
    lay(source, "_schemas", NOOP, SCHEMA)
    lay(source, "ours", SCHEMA)  # kafkastore.topic says so
    lay(source, "changelog", b"text", NOOP)
    lay(source, "json", b'{"id": 7}')
    lay(source, "list", b'["keytype"]')
    lay(source, "no-key", None)
    lay(source, "binary", b"\xff\x00")
    lay(source, "deep", b"[" * 20_000)  # by whoever may write there: no plan ends by it
    lay(source, "empty")
    lay(source, "wide", SCHEMA, partitions=2)
    assert found(source, *source.topics) == (("_schemas", "ours"), {})
    assert found(source, "_schemas", policy="compact,delete").stores == ("_schemas",)
    assert found(source, "_schemas", policy="delete") == ((), {})


def test_topic_that_can_not_be_read_is_not_known_to_be_none_and_hides_no_other(source: DrivenCluster) -> None:
    """It passed: a registry that is started on it ends the copy."""
    for name in ("_schemas", "a", "ours"):
        lay(source, name, SCHEMA)
    denied = {TopicPartition("_schemas", 0)}
    source.script.on("Fetch", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, denied), times=None)
    assert found(source, "_schemas", "a", "ours") == (("a", "ours"), {"_schemas": "TOPIC_AUTHORIZATION_FAILED"})


def test_topic_whose_broker_refused_it_once_is_asked_for_alone(source: DrivenCluster) -> None:
    lay(source, "_schemas", SCHEMA)
    moving = {TopicPartition("_schemas", 0)}
    source.script.on("Fetch", Fault.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, moving), times=1)
    assert found(source, "_schemas") == (("_schemas",), {})


def test_plan_says_when_a_registry_may_be_started() -> None:
    here = a_cluster(a_topic("_schemas", spans=((0, 9),), cleanup_policy="compact"), a_topic("orders"))
    assert levels(plan(here), "registry_topics") == ["pass"]
    (one,) = (f for f in plan(replace(here, unread_stores={"_schemas": "away"})).findings if f.check == "registry_topics")
    assert (one.level, one.object) == ("warn", "1 of 2 topics") and one.evidence.endswith("there: _schemas (away)")
    (one,) = (f for f in plan(replace(here, registries=("_schemas",))).findings if f.check == "registry_topics")
    assert (one.level, one.object) == ("warn", "target topic '_schemas'") and "their ids stay" in one.evidence
    assert "start one on the target only once a cutover has opened the topic" in one.remedy
