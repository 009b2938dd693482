"""What a connection's principal may do with topics, groups and a cluster, as brokers tell it (KIP-430: since Kafka 2.3).

The authorizer answers, so super users, patterns and ``allow.everyone.if.no.acl.found`` count, and no right to see ACLs is
needed. A cluster without an authorizer allows everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from airflow_mirror.kafka.acls import OPERATIONS
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed

CLUSTER = "kafka-cluster"  # ACLs call every cluster that
_UNTOLD = 31  # the only bit of an answer that leaves it out, as a broker does that was not asked
_NOTHING = frozenset[str]()


def on_topics(session: AdminSession, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the operations (``READ``, ...) that this principal may do with each topic that exists.

    :raises ApiNotServed: by brokers before 2.3.
    """
    from kafka.protocol.metadata import MetadataRequest as Request

    asked = Request.MetadataRequestTopic

    def ask(some: list[str]) -> Iterator[Reply[str, frozenset[str]]]:
        connection = session.anywhere()
        version = connection.newest(Request.API_KEY, 8, 12)
        message = Request(
            topics=[asked(name=name, version=version) for name in some], allow_auto_topic_creation=False,
            include_topic_authorized_operations=True, version=version,
        )  # fmt: skip
        for topic in session.request(connection, message, version).topics:
            if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                yield Reply(topic.name, 0, None, _NOTHING)
            else:
                code = 0 if topic.partitions else topic.error_code  # an error of a leader is none of the topic
                yield Reply(topic.name, code, None, _named(connection, topic.authorized_operations, code))

    return session.each(
        lambda name: f"ask what is allowed on topic {name!r}", sorted(set(names)), ask, "Describe",
        absent=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )  # fmt: skip


def on_groups(session: AdminSession, ids: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the operations that this principal may do with each group, whether it exists or not.

    :raises ApiNotServed: by brokers before 2.3.
    """
    from kafka.protocol.admin import DescribeGroupsRequest as Request

    def ask(connection: Connection, some: list[str]) -> Iterator[Reply[str, frozenset[str]]]:
        # From 6 on, a group that does not exist is an error.
        answer = session.newest(connection, Request, (3, 5), groups=some, include_authorized_operations=True)
        for group in answer.groups:
            allowed = _named(connection, group.authorized_operations, group.error_code)
            yield Reply(group.group_id, group.error_code, None, allowed)

    def ask_all(groups: list[str]) -> Iterator[Reply[str, frozenset[str]]]:
        for reply in session.at_coordinators(groups, ask):
            # Who may not describe a group is not told its coordinator either. As an error that would take other answers.
            hidden = reply.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            yield Reply(reply.key, 0, None, _NOTHING) if hidden else reply

    return session.each(
        lambda group: f"ask what is allowed on consumer group {group!r}", sorted(set(ids)), ask_all, "Describe"
    )


def on_cluster(session: AdminSession) -> dict[str, frozenset[str]]:
    """Return the operations that this principal may do with the cluster, by the one name that it has in ACLs.

    :raises ApiNotServed: by brokers before 2.3.
    """
    from kafka.protocol.metadata import MetadataRequest as Request

    def ask() -> Reply[str, frozenset[str]]:
        connection = session.anywhere()
        answer = session.newest(  # newer versions have a request of their own for that (KIP-700)
            connection, Request, (8, 10), topics=[], allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
        )  # fmt: skip
        return Reply("", 0, None, _named(connection, answer.authorized_operations, 0))

    return {CLUSTER: session.one("ask what is allowed on the cluster", ask, "Describe")}


def _named(connection: Connection, bits: Collection[int] | None, code: int) -> frozenset[str]:
    if code:
        return _NOTHING
    if bits is None or _UNTOLD in bits:
        raise ApiNotServed(connection.address, "authorized operations (KIP-430)", 0, None)
    return frozenset(OPERATIONS[bit] for bit in bits if bit < len(OPERATIONS))
