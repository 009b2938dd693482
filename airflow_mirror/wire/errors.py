"""Errors between this process and a broker, as part of the hierarchy in :mod:`airflow_mirror.errors`.

Only :func:`refusal` turns the error code of a response into an exception.
"""

from __future__ import annotations

import shlex

from airflow_mirror.errors import (
    AuthenticationFailed,
    BrokerError,
    InputError,
    MirrorError,
    MissingRight,
    NeededAcl,
    RequestRefused,
    TryAgain,
)
from airflow_mirror.wire.error_codes import ErrorCode, error_name

# Transient codes: a leader moves, a replica or a coordinator is starting, our epoch is older or newer than the
# broker's. Metadata are fetched again before the next attempt.
RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        # Also for a batch that was appended just before the lead went over; its base offset is told then (measured),
        # and counts for nothing here, because the next leader may lack it.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        # Appended by the leader, and not by enough replicas in time: it may stay, or be truncated by the next leader.
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # This one is said before the append, the next one after it. Nothing here tells them apart: the log's end does.
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        # The coordinator still writes the markers of the transaction before.
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        # Ours is older than the leader's, or newer: one of both has not heard of an election yet (KIP-320). With
        # OFFSET_NOT_AVAILABLE the new leader does not know its high watermark (KIP-207).
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        # For changes of topics (KIP-599): nothing was done.
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
# For a question, and for what may be asked twice, these pass as well: a leader that has just started does not know its
# partition, or has heard of its deletion first; and whatever a broker failed at once, it mostly answers the next time.
ASKED_AGAIN = RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR}
# What a code means beyond its name, and what to do. Nothing stands here where only the broker's own words can tell.
_MEANS: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "a batch is larger than the topic takes: raise its max.message.bytes, or "
    "message.max.bytes of the brokers",
    ErrorCode.RECORD_LIST_TOO_LARGE: "a batch is larger than a segment may be: raise the topic's segment.bytes",
    ErrorCode.CORRUPT_MESSAGE: "the bytes that arrived are not those of their checksum. If that lasts, look at the "
    "network, and at the disks of the broker that has them",
    ErrorCode.INVALID_TIMESTAMP: "the topic refuses times so far from its clock: see its message.timestamp.before.max.ms "
    "and message.timestamp.after.max.ms",
    ErrorCode.UNSUPPORTED_VERSION: "these brokers, or a proxy in front of them, don't know it in this form",
    ErrorCode.INVALID_REPLICATION_FACTOR: "give a replication factor for which there are brokers",
    ErrorCode.INVALID_CONFIG: "where a setting of a topic is at fault, exclude_configs of the Mirror leaves it out",
    ErrorCode.POLICY_VIOLATION: "a policy of that cluster's owner refuses it (create.topic.policy.class.name, "
    "alter.config.policy.class.name). Ask for what it allows; exclude_configs of the Mirror leaves a setting out",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "raise transaction.max.timeout.ms of the brokers",
    ErrorCode.SECURITY_DISABLED: "its brokers have no authorizer (authorizer.class.name is not set)",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.TOPIC_DELETION_DISABLED: "its brokers have delete.topic.enable=false",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker's own log says why",
    ErrorCode.KAFKA_STORAGE_ERROR: "a disk of this broker is full or broken, and it has taken a log directory offline; "
    "its log says which. Make room or replace it, then restart the broker",
    **dict.fromkeys(
        (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        "nobody leads there now. If that lasts, the brokers that could are down, or a disk of theirs is full or broken, "
        "and they have left the lead: their logs say which. Make room or replace it, then restart the broker",
    ),
}
# An older epoch, as versions before PRODUCER_FENCED say it; a producer id that the coordinator does not have for this
# transactional id, because it forgot the id or gave it another; and an older epoch by its own name.
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED})
# Error code -> (resource type as kafka-acls names it, option of kafka-acls)
_AUTHORIZATION: dict[int, tuple[str, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("topic", "--topic"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("group", "--group"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ("cluster", "--cluster"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("transactional id", "--transactional-id"),
}


class ConnectionLost(TryAgain):
    """The connection to a broker failed or timed out. The request may or may not have been executed."""

    role: str
    address: str
    asked: str
    reason: str
    hint: str = ""
    what = "{role} cluster, broker {address}"
    cause = "{reason} (asked: {asked})"
    remedy = "{hint}"


class StoppedByQuota(MirrorError):
    """This process was asked to stop while a broker throttled it. The request was not sent."""

    role: str
    address: str
    left_s: float
    what = "stopped while {role} cluster's broker {address} throttled this client (quota) for {left_s:.1f} s more"


class TlsRefused(AuthenticationFailed):
    """One side refused the other's certificate, or they have no TLS in common. Fields as there."""

    # Wrong input where a job begins. Later it may be a certificate that is renewed at its broker a minute too late.
    what = "{role} cluster, broker {bootstrap}: TLS failed"


class ApiNotServed(InputError):
    """A broker does not serve a request in the version that the mirror uses."""

    address: str
    api: str
    version: int
    served: tuple[int, int] | None
    what = "broker {address}"
    cause = "the mirror needs {api} version {version}, but this broker {serves}"
    remedy = """A source may be Kafka 0.11 or later, a target 3.0 or later; a proxy in between must let this request
        through."""
    serves = property(lambda e: "serves versions {} to {}".format(*e.served) if e.served else "does not serve it at all")


class UnknownTopic(InputError):
    """The cluster has no such topic or partition (or hides it from this principal)."""

    what: str
    topic: str
    cause = "the cluster has no topic or partition {topic!r}"
    remedy = """Create it, correct the name, or check the principal's DESCRIBE right: topics that it may not see are not
        found."""


class Fenced(TryAgain):
    """Another writer took over the producer id or transactional id; this one must not write any more."""

    what: str
    code: int
    producer_id: int
    epoch: int
    cause = """broker answered {name} ({code}) to producer {producer_id} epoch {epoch}: another writer has taken over, and
        this one writes no more."""
    name = property(lambda e: error_name(e.code))


def acl_missing(what: str, code: int, principal: str, operation: str, resource: str, name: str) -> MissingRight:
    """Return the error that names the ACL which grants a right."""
    named = "" if resource == "cluster" else f" {shlex.quote(name)}"
    options = f"--operation {operation.split()[0]} {_AUTHORIZATION[code][1]}{named}"
    acl = NeededAcl(code=code, operation=operation, resource=resource, name=name, options=options)
    return MissingRight(what, error_name(code), principal, acl)


def meaning(code: int, said: str = "") -> str:
    """Return what a code means beyond its name, after what the broker said itself; empty if the name says it."""
    return ". ".join(filter(None, (said, _MEANS.get(code, ""))))


def is_denied(code: int) -> bool:
    """Return whether a broker's code says that a right is missing."""
    return code in _AUTHORIZATION


def refusal(what: str, code: int, operation: str, name: str, principal: str, detail: str = "") -> MirrorError:
    """Return the exception for ``code``.

    :param operation: the ACL operation that is needed, as in kafka-acls: ``Read``.
    :param name: the topic, group or transactional id of the request.
    """
    if code in _AUTHORIZATION:
        resource = _AUTHORIZATION[code][0]
        return acl_missing(what, code, principal, operation, resource, "kafka-cluster" if resource == "cluster" else name)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic(what, name)
    if code in RETRIABLE:
        return BrokerError(what, code, error_name(code), meaning(code, detail))
    return RequestRefused(what, code, error_name(code), detail, meaning(code))
