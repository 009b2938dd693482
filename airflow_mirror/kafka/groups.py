"""Consumer groups of one cluster: list and describe them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from airflow_mirror.kafka import coordinators
from airflow_mirror.kafka.model import CONNECT, NO_MEMBERS, OF_GROUPS, STREAMS, GroupInfo
from airflow_mirror.kafka.session import AdminSession, Reply, chunks
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode

log = logging.getLogger(__name__)

UNSEEN_COORDINATORS = (
    "some groups may not be listed, and nothing would say so",
    f"the principal lacks Describe on topic {OF_GROUPS}: a partition of it without a leader hides its groups",
)  # what, and why: a list is as long then as if they were not there
_WITH_STATES = 4  # ListGroups returns states from 2.6 on; no other request knows those of KIP-848 groups
_WITH_TYPES = 5
GROUPS_A_REQUEST = 100  # a response holds all positions of these groups
# Protocol types; others, such as Connect's workers, have no positions. Streams has one of its own since KIP-1071.
_STREAMS_TYPE = "streams"
CONSUMERS = ("consumer", _STREAMS_TYPE, "")
# How Streams and Connect name a member's client (StreamThread, Worker.sinkTaskConsumerConfig), and Connect its groups
# (SinkUtils.consumerGroupId). Any of it may be overridden, so each is enough.
_STREAMS_CLIENT = re.compile(r".*-StreamThread-\d+-consumer")
_STREAMS_ASSIGNOR = "stream"
_CONNECT_CLIENT, _CONNECT_GROUP = "connector-consumer-", "connect-"
# State names of brokers before 1.0 -> Kafka's current names.
_STATES = {"AwaitingSync": "CompletingRebalance"}


def list_groups(session: AdminSession, *, every: bool = False) -> list[GroupInfo]:
    """Return all visible consumer groups, sorted by id.

    :param every: groups of Connect's workers, share groups and others as well.

    For a principal without any DESCRIBE right on groups Kafka returns an empty list and no error.

    :raises MirrorError: a broker failed to answer, or some groups have no coordinator, as far as the principal may see
        that (DESCRIBE on ``__consumer_offsets``; the log says once if it may not): a partial list would lose groups
        silently.
    """

    def ask(connection: Connection) -> Reply[str, dict[str, GroupInfo]]:
        code, listed = _list(session, connection, every=every)
        return Reply("", code, f"broker {connection.address}", listed)

    def ask_all() -> Reply[str, dict[int, dict[str, GroupInfo]]]:
        # Again in each attempt. No broker lists the groups of a partition that has no leader, and none says so.
        reply = coordinators.at_each(session, OF_GROUPS, ask)
        if reply.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return reply
        if session.says_once(OF_GROUPS):
            log.warning("%s cluster: %s: %s", session.role, *UNSEEN_COORDINATORS)
        return session.at_each_broker(ask)

    by_broker = session.one("list consumer groups", ask_all, "Describe")
    found = {group: info for listed in by_broker.values() for group, info in listed.items()}
    return [found[group] for group in sorted(found)]


def sees_coordinators(session: AdminSession) -> bool:
    """Return whether it can be seen that some groups have no coordinator: :data:`UNSEEN_COORDINATORS`."""

    def ask() -> Reply[str, bool]:
        code = coordinators.missing(session, OF_GROUPS)
        return Reply("", 0, None, code != ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    return session.one("see the coordinators of groups", ask, "Describe")


def describe_groups(session: AdminSession, ids: Collection[str]) -> dict[str, GroupInfo]:
    """Return each group; ``Dead`` is the state of one that does not exist.

    DescribeGroups is sent first, because only it distinguishes a group that is not visible from one that does not
    exist. It returns KIP-848 groups as dead; the list has their state.
    """

    def ask(connection: Connection, groups: list[str]) -> Iterator[Reply[str, GroupInfo]]:
        described = list(_describe(session, connection, groups))
        if any(not reply.code and reply.value.state == "Dead" for reply in described) and _lists_states(connection):
            code, listed = _list(session, connection)
            for reply in described:
                if not reply.code and reply.value.state == "Dead":
                    reply = Reply(reply.key, code, None, listed.get(reply.key, reply.value))
                yield reply
        else:
            yield from described

    return session.each(
        lambda group: f"describe consumer group {group!r}",
        sorted(set(ids)),
        lambda groups: session.at_coordinators(groups, ask),
        "Describe",
    )


def unseen_groups(session: AdminSession, ids: Collection[str]) -> list[str]:
    """Return the groups that the principal may not describe, whether they exist or not, sorted: no list has them.

    Any broker says so, since it looks at rights before it looks for the group. To ask for a group's coordinator instead
    would create the topic of groups on a cluster that never had one.
    """

    def ask(some: list[str]) -> Iterator[Reply[str, bool]]:
        for reply in _describe(session, session.anywhere(), some):
            hidden = reply.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            told = hidden or reply.code == ErrorCode.NOT_COORDINATOR
            yield Reply(reply.key, 0 if told else reply.code, reply.text, hidden)

    found = session.each(lambda group: f"see consumer group {group!r}", sorted(set(ids)), ask, "Describe")
    return [group for group in sorted(found) if found[group]]


def _list(session: AdminSession, connection: Connection, *, every: bool = False) -> tuple[int, dict[str, GroupInfo]]:
    """Return a broker's error code, and the groups that it coordinates."""
    from kafka.protocol.admin import ListGroupsRequest as Request

    version = connection.newest(Request.API_KEY, 0, 5)
    answer = session.request(connection, Request(states_filter=[], types_filter=[], version=version), version)
    if answer.error_code:
        return int(answer.error_code), {}
    found = {g.group_id: g for g in answer.groups if every or g.protocol_type in CONSUMERS}
    if _lists_states(connection):
        states = {g.group_id: g.group_state for g in answer.groups}
    else:
        states = {}
        for some in chunks(found, GROUPS_A_REQUEST):
            for reply in _describe(session, connection, some):
                if reply.code:
                    return reply.code, {}
                states[reply.key] = reply.value.state
    # KIP-848: ``Classic``, ``Consumer``, ...
    types = {group: (one.group_type or "").lower() if version >= _WITH_TYPES else "" for group, one in found.items()}
    return 0, {g: replace(_info(g, states[g], one.protocol_type), group_type=types[g]) for g, one in found.items()}


def _lists_states(connection: Connection) -> bool:
    from kafka.protocol.admin import ListGroupsRequest as Request

    return connection.serves(Request.API_KEY, _WITH_STATES)


def _describe(session: AdminSession, connection: Connection, groups: list[str]) -> Iterator[Reply[str, GroupInfo]]:
    from kafka.protocol.admin import DescribeGroupsRequest as Request

    # From 6 on, an unknown or a KIP-848 group is an error.
    answer = session.newest(connection, Request, (0, 5), groups=groups, include_authorized_operations=False)
    for group in answer.groups:
        clients = [member.client_id for member in group.members]
        state = _STATES.get(group.group_state, group.group_state)
        info = _info(group.group_id, state, group.protocol_type, group.protocol_data, clients)
        yield Reply(group.group_id, group.error_code, None, info)


def _info(group: str, state: str, protocol_type: str, assignor: str = "", clients: Collection[str] = ()) -> GroupInfo:
    """Return a group with the kind of application that its members are."""
    application = ""
    if state in NO_MEMBERS:
        pass
    elif protocol_type == _STREAMS_TYPE or assignor == _STREAMS_ASSIGNOR or any(map(_STREAMS_CLIENT.fullmatch, clients)):
        application = STREAMS
    elif group.startswith(_CONNECT_GROUP) or any(client.startswith(_CONNECT_CLIENT) for client in clients):
        application = CONNECT
    return GroupInfo(group, state, protocol_type, application=application)
