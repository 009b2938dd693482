"""Open transactions of one cluster, asked of all brokers: each coordinator knows its own (KIP-664, Kafka 3.0 and later).

A coordinator silently leaves out transactional ids that the asking principal may not describe, and a partition of its
topic without a leader answers nothing. :func:`hidden_from` finds both, so that "none is open" can be believed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MissingRight
from airflow_mirror.kafka import coordinators
from airflow_mirror.kafka.acls import describe_acls, unless_none_is_enforced
from airflow_mirror.kafka.model import COORDINATORS, Acl
from airflow_mirror.kafka.session import AdminSession, Reply, chunks
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed

# States in which markers are still to come. An epoch fence is an abort that begins.
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_IDS_A_REQUEST = 500


@dataclass(frozen=True, kw_only=True)
class OpenTransaction:
    """A transaction whose markers are not all written.

    :ivar state: as Kafka names it. :ivar started_ms: when its first partition was registered.
    :ivar partitions: that are registered, with data or without; of topics that we may describe.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    started_ms: int
    partitions: frozenset[TopicPartition]


def open_transactions(session: AdminSession) -> list[OpenTransaction]:
    """Return the transactions whose markers are not all written, sorted by id; all of them if :func:`hidden_from` is "".

    :raises BrokerError: a coordinator is missing or still loading: a partial list would hide transactions.
    :raises ApiNotServed: brokers before 3.0.
    """

    def ask(connection: Connection) -> Reply[str, list[OpenTransaction]]:
        found: list[OpenTransaction] = []
        code, listed = _listed(session, connection, _OPEN)
        ids = [one.transactional_id for one in listed]
        for some in [] if code else chunks(ids, _IDS_A_REQUEST):
            for state in _described(session, connection, some):
                if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it has expired meanwhile
                    continue
                code = code or state.error_code
                if state.transaction_state in _OPEN:
                    found.append(_transaction(state))
        return Reply("", code, f"broker {connection.address}", found)

    _check_listed(session)
    # All of it again in each attempt: a coordinator that is gone by then is no broker whose answer would be missed.
    by_broker = session.one("list transactions", lambda: coordinators.at_each(session, COORDINATORS, ask), "Describe")
    return sorted((one for found in by_broker.values() for one in found), key=lambda one: one.transactional_id)


def transactional_ids(session: AdminSession) -> dict[int, str]:
    """Return the transactional id of each producer id that has one: all of them if :func:`hidden_from` returns "".

    :raises ApiNotServed: brokers before 3.0.
    """

    def ask(connection: Connection) -> Reply[str, list[Any]]:
        code, listed = _listed(session, connection, ())
        return Reply("", code, f"broker {connection.address}", listed)

    def ask_all() -> Reply[str, dict[int, list[Any]]]:
        found = coordinators.at_each(session, COORDINATORS, ask)
        # Who may not see where they are can't know that one is missing; the ids that it may see are listed all the same.
        return session.at_each_broker(ask) if found.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else found

    _check_listed(session)
    by_broker = session.one("list transactions", ask_all, "Describe")
    return {one.producer_id: one.transactional_id for listed in by_broker.values() for one in listed}


def hidden_from(session: AdminSession) -> str:
    """Return why :func:`open_transactions` may lack some; "" if it lacks none.

    Needs DESCRIBE on all transactional ids and on the topic ``__transaction_state``.

    An authorizer decides about an id by the ACLs that match it. So one id is tried for each ACL there is, and one that no
    ACL names: what may be described of these may be described of all.
    """
    try:
        # First: what may be described is of no use where nothing is listed, and no right would change that.
        _check_listed(session)
    except ApiNotServed as e:
        return f"brokers before 3.0 do not list transactions ({e.address})"
    asked = {uuid.uuid4().hex}
    try:
        rules = unless_none_is_enforced(lambda: describe_acls(session, resource_type="TRANSACTIONAL_ID"))
        asked |= set(telling_ids(rules or (), uuid.uuid4().hex))
    except (MissingRight, ApiNotServed) as e:  # some managed clusters serve no requests for ACLs
        return f"ACLs can't be read: {e}"

    def ask() -> Reply[str, str]:
        if coordinators.missing(session, COORDINATORS) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return Reply("", 0, None, f"{_us(session)} lacks Describe on topic {COORDINATORS}")
        for _node_id, connection in session.router.brokers():
            for some in chunks(sorted(asked), _IDS_A_REQUEST):
                # Any broker checks the right before it says that it does not coordinate an id.
                for state in _described(session, connection, some):
                    if state.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                        return Reply("", 0, None, f"{_us(session)} lacks Describe on transactional id *")
        return Reply("", 0, None, "")

    return session.one("describe transactions", ask, "Describe")


def telling_ids(rules: Iterable[Acl], unused: str) -> Iterator[str]:
    """Yield an id for each ACL on transactional ids that the ACL, and all that are wider, decide about.

    :param unused: text that no id holds.
    """
    for rule in rules:
        if rule.pattern_type == "PREFIXED":
            yield rule.name + unused
        elif rule.name != "*":
            yield rule.name


def _us(session: AdminSession) -> str:
    return session.known_principal or "our principal"


def _check_listed(session: AdminSession) -> None:
    """:raises ApiNotServed: a broker from before 3.0."""
    from kafka.protocol.admin import ListTransactionsRequest as Request

    def ask(connection: Connection) -> Reply[str, int]:
        return Reply("", 0, None, connection.newest(Request.API_KEY, 0, 0))

    session.one("list transactions", lambda: session.at_each_broker(ask), "Describe")


def _listed(session: AdminSession, connection: Connection, states: Sequence[str]) -> tuple[int, list[Any]]:
    """Return a broker's error code, and the ids that it coordinates in one of these states; none: in whatever state."""
    from kafka.protocol.admin import ListTransactionsRequest as Request

    answer = session.newest(connection, Request, (0, 0), state_filters=list(states), producer_id_filters=[])
    return answer.error_code, answer.transaction_states


def _described(session: AdminSession, connection: Connection, ids: list[str]) -> list[Any]:
    from kafka.protocol.admin import DescribeTransactionsRequest as Request

    states: list[Any] = session.newest(connection, Request, (0, 0), transactional_ids=ids).transaction_states
    return states


def _transaction(state: Any) -> OpenTransaction:
    partitions = frozenset(TopicPartition(topic.topic, p) for topic in state.topics for p in topic.partitions)
    return OpenTransaction(
        transactional_id=state.transactional_id, producer_id=state.producer_id, epoch=state.producer_epoch,
        state=state.transaction_state, started_ms=state.transaction_start_time_ms, partitions=partitions,
    )  # fmt: skip
