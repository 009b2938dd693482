"""Committed offsets of consumer groups of one cluster: read, set and remove them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, GroupActive, MirrorError, TryAgain
from airflow_mirror.kafka.groups import GROUPS_A_REQUEST
from airflow_mirror.kafka.model import GroupCommit, GroupPosition
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.session import AdminSession, Reply, chunks
from airflow_mirror.wire.connection import Check, Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.routing import pipelined
from airflow_mirror.wire.topology import by_topic, grouped

Positions = dict[TopicPartition, GroupPosition]
_BATCHED = 8  # OffsetFetch takes many groups from 3.0 on
_PARTITIONS_A_COMMIT = 2000  # the positions of one request must fit into one batch of the offsets topic
# A coordinator's errors for a non-member if a group has members; the last one means a rebalance.
_ACTIVE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP, ErrorCode.REBALANCE_IN_PROGRESS})
# Other answers after which a position was not set, and won't be.
_WITHOUT_EFFECT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


def groups_offsets(
    session: AdminSession, ids: Collection[str], only: Mapping[str, Collection[TopicPartition]] | None = None
) -> dict[str, Positions]:
    """Return the committed positions of each group, sorted by group id; partitions without one are omitted.

    One request asks for a hundred groups, where brokers allow it.

    :param only: the partitions that are asked for, by group; None: all in which a group has a position.

    Waits for open transactions that hold offset commits of a group, because an unstable position does not count.
    Brokers before 2.5 can't report that a position is unstable, and return the last committed one.

    Kafka omits positions in topics that the principal may not see.
    """
    found = session.each(
        lambda group: f"read offsets of consumer group {group!r}",
        set(ids),
        lambda groups: session.at_coordinators(groups, lambda connection, its: _fetch(session, connection, its, only)),
        "Describe",
    )
    return {group: found[group] for group in sorted(found)}


def groups_offsets_apart(
    session: AdminSession, ids: Collection[str], patience_s: float = 2.0, *, stable: bool = True
) -> tuple[dict[str, Positions], dict[str, MirrorError]]:
    """Return what :func:`groups_offsets` returns of those groups that can be read, and the error of each other one.

    :param patience_s: for temporary errors of a group.
    :param stable: a group of which an open transaction holds an offset commit is an error once that patience is over.
        False: its last committed positions count.
    """
    return session.each_apart(
        lambda group: f"read offsets of consumer group {group!r}",
        sorted(set(ids)),
        lambda groups: session.at_coordinators(
            groups, lambda connection, its: _fetch(session, connection, its, stable=stable)
        ),
        "Describe",
        patience_s,
    )


def commit_groups(
    session: AdminSession, wanted: Mapping[str, Mapping[TopicPartition, GroupPosition]], permit: Permit
) -> dict[str, GroupCommit]:
    """Set positions of many groups. Each request is sent once; the failure of one group does not concern the others.

    Requests don't wait for each other's answers, and all coordinators work at the same time. When this returns, each
    request was answered, or its connection was reset.

    :param permit: called right before each request is sent; once it raises a :class:`TryAgain`, nothing more is.
    """
    commits = {group: GroupCommit() for group in wanted}
    _ = session.wire  # the first contact has its own time limit and errors
    by_broker, lost = session.router.coordinators(sorted(group for group, its in wanted.items() if its))
    for one in lost:
        commits[one.key].error = session.error(one.code, one.text, _setting(one.key), "Read", one.key)
        commits[one.key].keep_unsent(wanted[one.key])
    at_each = [
        _commit_at(session, node_id, {group: wanted[group] for group in its}, permit, commits)
        for node_id, its in by_broker.items()
    ]
    for _ in zip_longest(*at_each):  # in turn: while one coordinator is waited for, the others have requests to serve
        pass
    if any(commit.error for commit in commits.values()):
        session.router.forget()
    return commits


def commit_group_offsets(
    session: AdminSession, group: str, positions: Mapping[TopicPartition, GroupPosition], permit: Permit
) -> None:  # fmt: skip
    """Set a group's positions, without a leader epoch. Kafka does not check the range; the caller must.

    Setting the same positions again does no harm, so the request is repeated if the coordinator moves.

    :raises GroupActive: the group has members; nothing was set.
    :raises MirrorError: the error of the first partition that failed.
    """

    def send(connection: Connection, some: list[TopicPartition]) -> dict[TopicPartition, int]:
        message = _to_commit(connection, group, {tp: positions[tp] for tp in some})
        return _codes(session.request(connection, message, message.version, permit))

    try:
        session.each(
            lambda tp: f"{_setting(group)} at {tp}", sorted(positions), _at_partitions(session, group, send), "Read",
            name=partial(_resource, group), chunk=_PARTITIONS_A_COMMIT,
        )  # fmt: skip
    except BrokerError as e:
        if e.code in _ACTIVE:
            raise GroupActive(group, session.config.role, "not empty") from None
        raise


def forget_group_offsets(
    session: AdminSession, group: str, partitions: Collection[TopicPartition], permit: Permit
) -> None:  # fmt: skip
    """Remove a group's positions in these partitions; missing ones are no error.

    A position can't be set to none, and deleting the group would also delete positions in other topics (KIP-496).

    :raises BrokerError: for a refusal such as GROUP_SUBSCRIBED_TO_TOPIC, of a group that consumes the topic now.
    """

    from kafka.protocol.consumer import OffsetDeleteRequest as Request

    topic = Request.OffsetDeleteRequestTopic

    def send(connection: Connection, some: list[TopicPartition]) -> dict[TopicPartition, int]:
        its = grouped(some, lambda tp: topic.OffsetDeleteRequestPartition(partition_index=tp.partition))
        topics = [topic(name=name, partitions=partitions) for name, partitions in its.items()]
        answer = session.newest(connection, Request, (0, 0), permit, group_id=group, topics=topics)
        return dict.fromkeys(some, answer.error_code) if answer.error_code else _codes(answer)

    session.each(
        lambda tp: f"delete offset of consumer group {group!r} at {tp}", sorted(partitions),
        _at_partitions(session, group, send),
        lambda code: "Read" if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else "Delete",
        name=partial(_resource, group), absent=ErrorCode.GROUP_ID_NOT_FOUND,
    )  # fmt: skip


def _at_partitions(
    session: AdminSession, group: str, send: Callable[[Connection, list[TopicPartition]], dict[TopicPartition, int]]
) -> Callable[[list[TopicPartition]], Iterator[Reply[TopicPartition, bool]]]:
    """Return what changes some positions of a group at its coordinator.

    :param send: sends one request; returns the error code of each partition.
    """

    def ask(some: list[TopicPartition]) -> Iterator[Reply[TopicPartition, bool]]:
        replies = session.at_coordinators([group], lambda connection, _: [Reply(group, 0, None, send(connection, some))])
        for reply in replies:
            codes = dict.fromkeys(some, reply.code) if reply.code else reply.value
            yield from (Reply(tp, code, reply.text, True) for tp, code in codes.items())

    return ask


def _resource(group: str, tp: TopicPartition, code: int) -> str:
    """Return what a missing ACL would be on."""
    return group if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else tp.topic


def _fetch(
    session: AdminSession, connection: Connection, groups: list[str],
    only: Mapping[str, Collection[TopicPartition]] | None = None, *, stable: bool = True,
) -> Iterator[Reply[str, Positions]]:  # fmt: skip
    from kafka.protocol.consumer.group import OffsetFetchRequest as Request

    version = connection.newest(Request.API_KEY, 2, 9)  # 2: all topics of a group; 7: stable; 10 asks by topic id
    batch = Request.OffsetFetchRequestGroup
    topic = batch.OffsetFetchRequestTopics if version >= _BATCHED else Request.OffsetFetchRequestTopic

    def topics(group: str) -> Any:
        if only is None:
            return None
        return [topic(name=name, partition_indexes=numbers) for name, numbers in by_topic(only[group]).items()]

    if version >= _BATCHED:
        for some in chunks(groups, GROUPS_A_REQUEST):
            asked = [batch(group_id=group, topics=topics(group), version=version) for group in some]
            message = Request(groups=asked, require_stable=stable, version=version)
            for answer in session.request(connection, message, version).groups:
                yield _positions(answer.group_id, answer)
        return
    messages = [Request(group_id=group, topics=topics(group), require_stable=stable, version=version) for group in groups]
    for group, answer in zip(groups, pipelined(connection, messages, version), strict=True):
        yield _positions(group, answer)


def _positions(group: str, answer: Any) -> Reply[str, Positions]:
    """Decode one group's part of a response; an error of one partition counts for the whole group."""
    if answer.error_code:
        return Reply(group, answer.error_code, None, {})
    found: Positions = {}
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                return Reply(group, p.error_code, f"at {tp}", {})
            if p.committed_offset >= 0:
                found[tp] = GroupPosition(p.committed_offset, p.metadata or "")
    return Reply(group, 0, None, found)


def _commit_at(
    session: AdminSession,
    node_id: int,
    wanted: Mapping[str, Mapping[TopicPartition, GroupPosition]],
    check: Check,
    commits: Mapping[str, GroupCommit],
) -> Iterator[None]:
    """Set positions at one coordinator, and note in ``commits`` what became of them; yield after each answer."""
    parts = [
        (group, {tp: its[tp] for tp in some})
        for group, its in wanted.items()
        for some in chunks(sorted(its), _PARTITIONS_A_COMMIT)
    ]
    answered = 0
    try:
        connection = session.wire.connection(node_id)
        messages = [_to_commit(connection, group, some) for group, some in parts]
        for (group, _), answer in zip(parts, pipelined(connection, messages, messages[0].version, check), strict=False):
            answered += 1
            for tp, code in _codes(answer).items():
                _note(session, commits[group], group, tp, code)
            yield
    except TryAgain as e:
        for group, some in parts[answered:]:
            commits[group].error = commits[group].error or e
            if not isinstance(e, ConnectionLost):  # `check` raised it: not a byte was sent
                commits[group].keep_unsent(some)


def _note(session: AdminSession, commit: GroupCommit, group: str, tp: TopicPartition, code: int) -> None:
    if not code:
        commit.done.add(tp)
        return
    resource = _resource(group, tp, code)
    commit.error = commit.error or session.error(code, None, f"{_setting(group)} at {tp}", "Read", resource)
    commit.active |= code in _ACTIVE
    if code in _ACTIVE or code in _WITHOUT_EFFECT:
        commit.refused.add(tp)


def _setting(group: str) -> str:
    return f"set offset of consumer group {group!r}"


def _to_commit(connection: Connection, group: str, positions: Mapping[TopicPartition, GroupPosition]) -> Any:
    """Return the request of a non-member, without a generation."""
    from kafka.protocol.consumer.group import OffsetCommitRequest as Request

    topic = Request.OffsetCommitRequestTopic
    version = connection.newest(Request.API_KEY, 2, 9)  # 10 uses topic ids

    def one(tp: TopicPartition) -> Any:
        return topic.OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=positions[tp].offset, committed_leader_epoch=-1,
            committed_metadata=positions[tp].metadata,
        )  # fmt: skip

    topics = [topic(name=name, partitions=its) for name, its in grouped(positions, one).items()]
    return Request(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, retention_time_ms=-1,
        topics=topics, version=version,
    )  # fmt: skip


def _codes(answer: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
