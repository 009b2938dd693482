"""Find the broker for requests that concern no partition: the controller, the coordinators of groups, all brokers.

:meth:`Router.forget` drops the cache after any "not me" error; the next call looks the broker up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from airflow_mirror.errors import TryAgain
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Check, Connection

GROUP, TRANSACTION = 0, 1  # FindCoordinator's key types
_BATCHED = 4  # first version of FindCoordinator that accepts many keys
_DEPTH = 64  # requests in flight on one connection


class Coordinator(NamedTuple):
    """The coordinator of a group or transactional id, or the error code and the broker's message if it has none now."""

    key: str
    node_id: int
    code: int
    text: str


class Router:
    """Finds the broker to ask. Belongs to one thread, like the cluster that it uses."""

    def __init__(self, cluster: WireCluster) -> None:
        self._cluster = cluster
        self._controller: int | None = None
        self._coordinators: dict[str, int] = {}

    def forget(self) -> None:
        """Clear the cache, after a broker said that it is not responsible, or did not answer."""
        self._controller = None
        self._coordinators.clear()

    def controller(self) -> Connection:
        """Return a connection to the controller; with KRaft to any broker, which forwards requests to it."""
        # With KRaft this is any broker, and each forwards to the controller (KIP-590).
        if self._controller is None:
            answer = requests.metadata(self._cluster.any_connection(), [])
            self._controller = int(answer.controller_id)
        # Without KRaft only the controller carries changes out: any other broker answers NOT_CONTROLLER and has done
        # nothing.
        if self._controller < 0:  # no controller now: any broker will report that itself
            return self._cluster.any_connection()
        return self._cluster.connection(self._controller)

    def broker_ids(self) -> list[int]:
        """Return the ids of the brokers that are alive now, sorted; never none.

        :raises ConnectionLost: the broker that was asked knows of none yet.
        """
        answer = requests.known_metadata(self._cluster.any_connection(), [])
        return sorted(broker.node_id for broker in answer.brokers)

    def brokers(self) -> Iterator[tuple[int, Connection]]:
        """Yield every broker that is alive now, with a connection."""
        for node_id in self.broker_ids():
            yield node_id, self._cluster.connection(node_id)

    def coordinators(self, groups: Sequence[str]) -> tuple[dict[int, list[str]], list[Coordinator]]:
        """Return the groups by coordinator, and those without a coordinator now."""
        unknown = [group for group in groups if group not in self._coordinators]
        looked_up = list(find_coordinators(self._cluster.any_connection(), unknown, GROUP)) if unknown else []
        # Kept until somebody is told NOT_COORDINATOR, which says that nothing was done there.
        self._coordinators.update((one.key, one.node_id) for one in looked_up if not one.code)
        by_broker: dict[int, list[str]] = {}
        for group in groups:
            if group in self._coordinators:
                by_broker.setdefault(self._coordinators[group], []).append(group)
        return by_broker, [one for one in looked_up if one.code]


def find_coordinators(connection: Connection, keys: Sequence[str], key_type: int) -> Iterator[Coordinator]:
    """Ask any broker for the coordinators of ``keys``, in one request if its version allows; yield them in order.

    The first lookup of a transactional id also creates the internal topic.

    :param key_type: :data:`GROUP` or :data:`TRANSACTION`.
    """
    from kafka.protocol.metadata import FindCoordinatorRequest as Request

    # Many keys in one: KIP-699.
    version = connection.newest(Request.API_KEY, 1, 5)
    if version >= _BATCHED:
        message = Request(key_type=key_type, coordinator_keys=list(keys), version=version)
        answers = [(answer.key, answer) for answer in connection.request(message, version).coordinators]
    else:
        asked = [Request(key=key, key_type=key_type, version=version) for key in keys]
        answers = list(zip(keys, pipelined(connection, asked, version), strict=True))
    for key, answer in answers:
        yield Coordinator(key, answer.node_id, answer.error_code, answer.error_message or "")


def pipelined(connection: Connection, messages: Iterable[Any], version: int, check: Check | None = None) -> Iterator[Any]:
    """Send requests without waiting for each response; yield the responses in order.

    For requests that take one group: a broker serves them one by one, but without network round trips.

    :param check: see :meth:`Connection.send`. Its :class:`TryAgain` is raised after the responses to what was sent.
    """
    # A connection that is lost leaves as many in doubt as were in flight: each answer is yielded as it comes, so that the
    # caller knows of the others (`group_offsets`).
    waiting: list[tuple[Any, int]] = []
    refused: TryAgain | None = None
    for message in messages:
        flexible = type(message).flexible_version_q(version)
        try:
            sent = connection.send(message.API_KEY, version, [message.encode(version=version)], flexible, check)
        # What was sent before is executed: its answers are still yielded, so that the caller knows what was changed.
        except TryAgain as e:
            refused = e
            break
        waiting.append((message, sent))
        # Otherwise both sides could fill their buffers and wait for each other to read.
        if len(waiting) >= _DEPTH:
            yield _receive(connection, *waiting.pop(0), version)
    for message, sent in waiting:
        yield _receive(connection, message, sent, version)
    if refused is not None:
        raise refused


def _receive(connection: Connection, message: Any, sent: int, version: int) -> Any:
    message.with_header()
    response = message.header.get_response_class().decode(connection.receive(sent), version=version)
    connection.throttle(getattr(response, "throttle_time_ms", 0) or 0)
    return response
