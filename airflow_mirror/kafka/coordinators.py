"""Whether all coordinators can answer: a partition of their topic without a leader has none, and nobody speaks for it."""

from __future__ import annotations

from airflow_mirror.kafka.session import AdminSession
from airflow_mirror.wire import requests
from airflow_mirror.wire.error_codes import ErrorCode


def missing(session: AdminSession, topic: str) -> int:
    """Return the error of the coordinators' topic: a right that is missing, or a partition without a leader; 0: none."""
    _ = session.wire
    topics = [requests.known_metadata(broker, [topic]).topics[0] for _node_id, broker in session.router.brokers()]
    codes = {int(one.error_code) for one in topics}
    if ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:  # nobody ever asked for one
        return ErrorCode.NONE
    led = all(p.leader_id >= 0 for one in topics for p in one.partitions)
    # One that does not know the topic has just started, and knows as little of what it coordinates.
    return ErrorCode.NONE if led and codes == {ErrorCode.NONE} else ErrorCode.COORDINATOR_NOT_AVAILABLE
