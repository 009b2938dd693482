"""Consumer groups of one cluster: list, describe, read and set positions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as WireTopicPartition

from airflow_mirror.errors import BrokerError, GroupActive
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.kafka.session import SOON, AdminSession, chunks
from airflow_mirror.partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# librdkafka's names -> Kafka's own, as its tools print them.
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}


def list_groups(session: AdminSession) -> list[GroupInfo]:
    """Return all consumer groups that the principal may see, sorted by id.

    A principal without any DESCRIBE right on groups gets an empty list and no error from Kafka.

    :raises MirrorError: when any broker failed to answer: a partial list would lose groups without a word.
    """
    result = session.call("list consumer groups", lambda c, t: c.list_consumer_groups(request_timeout=t))
    for error in result.errors or []:
        raise session.typed(error.args[0], "list consumer groups")
    return sorted((_group(g) for g in result.valid or []), key=lambda g: g.group_id)


def group_states(session: AdminSession, ids: Collection[str]) -> dict[str, str]:
    """Return the state of each group; ``Dead`` for one that does not exist."""
    states = {group: "Dead" for group in sorted(set(ids))}
    for chunk in chunks(states, 500):
        described = _describe(session, chunk)
        states |= {group: _state(d.state) for group, d in described.items()}
    return states


def group_offsets(session: AdminSession, group: str) -> dict[TopicPartition, GroupPosition]:
    """Return the committed positions of a group; partitions without one are absent.

    Waits for open transactions that hold offset commits of the group: an unstable position is none.

    Asked through a consumer that never joins the group, because the admin call ends the whole process (segmentation
    fault, librdkafka 2.16.1, rd_kafka_handle_OffsetFetch) when the group's coordinator is loading or has moved.
    """
    topics = session.blocking("list topics", lambda c, t: c.list_topics(timeout=t)).topics
    asked = [WireTopicPartition(t.topic, p) for t in topics.values() for p in t.partitions]
    positions = {}
    for p in _committed(session, group, asked):
        if p.error:
            raise session.typed(p.error, f"read offset of consumer group {group!r} at {p.topic}-{p.partition}")
        if p.offset >= 0:
            positions[TopicPartition(p.topic, p.partition)] = GroupPosition(p.offset, p.metadata or "")
    return positions


def _committed(session: AdminSession, group: str, asked: list[WireTopicPartition]) -> list[WireTopicPartition]:
    if not asked:
        return []
    settings = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**session.config.common(), **settings}, logger=session.log)
    try:
        return list(
            session.blocking(
                f"read offsets of consumer group {group!r}", lambda _, t: consumer.committed(asked, timeout=t)
            )
        )
    finally:
        consumer.close()


def commit_group_offsets(session: AdminSession, group: str, positions: Mapping[TopicPartition, GroupPosition]) -> None:
    """Set a group's positions, without a leader epoch. Kafka checks no range: the caller must.

    :raises GroupActive: when the group has members; nothing was set.
    :raises MirrorError: of the first partition that failed.
    """
    if not positions:
        return
    request = ConsumerGroupTopicPartitions(
        group, [WireTopicPartition(tp.topic, tp.partition, p.offset, p.metadata) for tp, p in sorted(positions.items())]
    )
    give_up = time.monotonic() + session.timeout_s
    while True:
        try:
            result = session.call(
                f"set offsets of consumer group {group!r}",
                lambda c, t: c.alter_consumer_group_offsets([request], request_timeout=t)[group],
            )
        except BrokerError as e:
            raise _active(session, group, e) from None
        failed = [p for p in result.topic_partitions or [] if p.error]
        # A coordinator on its way answers per partition; setting the same positions again does no harm.
        if not failed or time.monotonic() > give_up or any(p.error.code() not in SOON for p in failed):
            break
        time.sleep(0.2)
    for p in failed:
        error = session.typed(p.error, f"set offset of consumer group {group!r} at {p.topic}-{p.partition}")
        raise _active(session, group, error) if isinstance(error, BrokerError) else error


def _describe(session: AdminSession, ids: list[str]) -> dict[str, Any]:
    return session.call_each(
        lambda group: f"describe consumer group {group!r}",
        lambda c, t: c.describe_consumer_groups(ids, request_timeout=t),
        absent=KafkaError.GROUP_ID_NOT_FOUND,  # what brokers from 4.0 say where older ones said Dead
    )


def _active(session: AdminSession, group: str, error: BrokerError) -> Exception:
    if error.code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
        return GroupActive(group, session.config.role, "not empty")
    return error


def _group(listing: Any) -> GroupInfo:
    return GroupInfo(listing.group_id, _state(listing.state), "" if listing.is_simple_consumer_group else "consumer")


def _state(state: Any) -> str:
    return _STATES.get(state.name, str(state.name).capitalize())
