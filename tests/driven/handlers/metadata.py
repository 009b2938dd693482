"""Metadata 0 to 12: brokers that run, and who leads. Left out: creation of topics, replicas, rights, internal topics."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import MetadataResponse as Response

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.handlers.common import NOT_ASKED, ON_THE_CLUSTER, ON_TOPICS, Refusal

if TYPE_CHECKING:
    from tests.driven.broker import Broker

KEY, SERVED = 3, (0, 12)
_Topic = Response.MetadataResponseTopic


def answer(broker: Broker, message: Any, refusal: Refusal) -> Any:
    """A refusal without partitions is that of each topic."""
    cluster = broker.cluster
    of_topics = getattr(message, "include_topic_authorized_operations", False)
    of_cluster = getattr(message, "include_cluster_authorized_operations", False)
    names = sorted(cluster.topics) if message.topics is None else [topic.name for topic in message.topics]
    running = {i: b for i, b in cluster.brokers.items() if b.running}
    addresses = {i: b.address for i, b in running.items()}
    brokers = [
        Response.MetadataResponseBroker(node_id=i, host=host, port=port, rack=None)
        for i, (host, port) in addresses.items()
    ]
    return Response(
        throttle_time_ms=0, brokers=brokers, cluster_id=cluster.cluster_id, controller_id=min(running, default=-1),
        topics=[_topic(broker, name, refusal, ON_TOPICS if of_topics else NOT_ASKED) for name in names],
        authorized_operations=ON_THE_CLUSTER if of_cluster else NOT_ASKED,
    )  # fmt: skip


def _topic(broker: Broker, name: str, refusal: Refusal, allowed: set[int]) -> Any:
    topic = (broker.cluster.topics if broker.heard is None else broker.heard).get(name)
    code = refusal(None) or (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE)
    if topic is None or code:
        return _Topic(error_code=code, name=name, topic_id=uuid.UUID(int=0), is_internal=False, partitions=[])
    partitions = []
    for log in topic.logs:
        tp = TopicPartition(name, log.tp.partition)
        leader = topic.leaders[tp.partition]
        code = refusal(tp) or (ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else ErrorCode.NONE)
        partitions.append(
            _Topic.MetadataResponsePartition(
                error_code=code, partition_index=tp.partition, leader_id=leader, leader_epoch=log.epoch,
                replica_nodes=[max(leader, 1)], isr_nodes=[max(leader, 1)], offline_replicas=[],
            )
        )  # fmt: skip
    return _Topic(
        error_code=ErrorCode.NONE, name=name, topic_id=topic.topic_id, is_internal=False, partitions=partitions,
        authorized_operations=allowed,
    )  # fmt: skip
