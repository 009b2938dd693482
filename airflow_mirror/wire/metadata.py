"""What a cluster says of itself: its brokers, its topics and their leaders, and connections to them.

A broker that has not heard of a topic reports it as nonexistent: whether that is believed is decided here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from airflow_mirror.common.addresses import Address, parse_bootstrap
from airflow_mirror.common.closing import Closing
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, ClusterUnreachable, MirrorError, MissingRight, TryAgain
from airflow_mirror.wire import requests
from airflow_mirror.wire.connection import Connection, WireSettings
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import RETRIABLE, ConnectionLost, UnknownTopic, meaning, refusal
from airflow_mirror.wire.logins import Logins
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.topology import Leader, Rumour, Topic, topic_of

_BOOTSTRAP = -1  # no broker has this id
_HURRY_S = 1.0  # how long a cluster in a hurry retries requests that do not concern a single partition
# A broker that has not heard of a topic reports it as nonexistent: a new topic, and for seconds after the broker's
# start any topic. Such a report is a rumour. It is believed after half a minute and from more than one broker. For
# patient callers, who may have mistyped a name, it is believed once every broker has reported it and some seconds passed.
_BELIEVED_S, _UNANIMOUS_S = 30.0, 3.0


class Metadata(Closing):
    """Brokers and leaders as they were last heard of; see :class:`.cluster.WireCluster`, which asks them."""

    def __init__(self, config: ClientConfig, client_id: str = "airflow-mirror", timeout_s: float = 30.0) -> None:
        requests.import_protocol()
        self._logins = Logins(config, client_id)
        self.role, self.timeout_s = config.role, timeout_s
        self.patient = True  # whether calls wait for a leader; False after `hurry`
        # A third of it, so that a call outlives one frozen broker and still reaches the partition's next leader.
        self._request_timeout_s = min(self.settings.socket_timeout_s, max(timeout_s / 3, 1.0))
        self._bootstrap = parse_bootstrap(config.bootstrap)
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._rumours: dict[str, Rumour] = {}
        self._connections: dict[int, Connection] = {}
        self._asked_last: int | None = None  # broker that answered the last Metadata request

    @property
    def settings(self) -> WireSettings:
        """What a connection is opened with by now."""
        return self._logins.settings

    @property
    def write_timeout_ms(self) -> int:
        """Timeout of a change at the broker: it expires before our patience with the connection does."""
        # So the broker's own "timed out" comes while we still listen. Neither says whether the change was made.
        return int(self._request_timeout_s * 900)

    def close(self) -> None:
        """Close the cached connections. Dedicated connections belong to their callers."""
        # Reset, with what is in flight (`Stream._tune`): whether that is executed nobody learns here.
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def throttled_s(self) -> float:
        """For how long brokers have throttled these connections, in all."""
        return sum(connection.throttled_s for connection in self._connections.values())

    def hurry(self) -> None:
        """Leave waiting to the caller from now on, who has other work to do meanwhile and calls again.

        A partition's leader is asked once. Transient errors raise their :class:`TryAgain` at once, and an unknown topic
        raises :class:`TryAgain` until its absence is believed. Requests for metadata and coordinators, which do not
        concern a single partition, are retried for a second. Only waits are shortened; the time limit for a broker's
        response stays the same.
        """
        self.patient, self.timeout_s = False, min(self.timeout_s, _HURRY_S)

    def refresh(self, topics: Iterable[str] = ()) -> None:
        """Fetch the metadata of ``topics`` again; of all known topics if none are named.

        What is known about a topic is kept until its absence is believed, or brokers fail at it.

        :raises UnknownTopic: a topic does not exist; :raises MissingRight: the principal may not describe it.
        :raises TryAgain: brokers do not know a topic, and it is too early to believe them; or fail at it (BrokerError).
        :raises ClusterUnreachable: no broker answered.
        """
        wanted = sorted(set(topics)) or sorted(self._topics)
        backoff, witnesses = Backoff(self.timeout_s), 0
        # Each turn asks a broker that has not said so yet, if there is one (`said`): witnesses count only if they are
        # several.
        while missing := self._read_metadata(wanted, Backoff(self.timeout_s)):
            for name in missing:
                self._raise_if_believed(name)
            if not self.patient or backoff.expired:
                raise self._not_seen(missing[0])
            # The next witness is asked at once: with a pause for each of dozens the time limit would come first.
            before, witnesses = witnesses, sum(len(self._rumours[name].brokers) for name in missing)
            if witnesses <= before:
                backoff.pause()

    def refresh_present(self, topics: Iterable[str]) -> set[str]:
        """Fetch the metadata of those ``topics`` that exist; return the others. Other errors as :meth:`refresh`."""
        present, gone = set(topics), set[str]()
        while present:
            try:
                self.refresh(present)
                break
            except UnknownTopic as e:
                # All at once: after months of topics that come and go a request for each takes longer than a look may.
                believed = {e.topic, *filter(self._is_believed, present)}
                for name in believed:
                    self.forget(name)
                present -= believed
                gone |= believed
        return gone

    def sound_out(self, topics: Iterable[str]) -> None:
        """Ask a broker once for topics that may be absent: what it does not know is believed to be absent so much sooner.

        Whoever will ask for several of them, one after the other, would otherwise wait for each. A refusal tells nothing.

        :raises ClusterUnreachable: no broker answered.
        """
        with suppress(BrokerError, ConnectionLost, MissingRight):
            self._read_metadata(sorted(topics), Backoff(0))

    def expect(self, topic: str) -> None:
        """Believe no earlier word that a topic does not exist: it was created, or seen, since."""
        # Its brokers have said so, and long ago: the next one that has not heard of it would be believed at once.
        self._rumours = {name: one for name, one in self._rumours.items() if name.rpartition("-")[0] != topic != name}

    def forget(self, topic: str) -> None:
        """Drop what is known about a topic, after a broker said it is not the leader; the next call fetches it again."""
        self._topics.pop(topic, None)

    def leader(self, tp: TopicPartition) -> Leader:
        """Return a partition's leader, from the cache if known. Waits for a missing leader, except in a hurry.

        :raises BrokerError: no leader within ``timeout_s``.
        """
        leader = self._known_leader(tp)
        # As it was last heard of. One that is leader no more says so, or refuses the epoch; one that does not know it yet
        # can't acknowledge a write (acks=all), nor move its high watermark.
        if leader.node_id >= 0:  # fast path: a loop asks for each of its partitions in every turn
            return leader
        backoff = Backoff(self.timeout_s)
        while leader.node_id < 0:
            if backoff.expired or not self.patient:
                raise self._gave_up("finding the leader", tp, ErrorCode.LEADER_NOT_AVAILABLE)
            backoff.pause()
            self.refresh([tp.topic])
            leader = self._known_leader(tp)
        return leader

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return len(self._topic(topic).leaders)

    def topic_id(self, topic: str) -> str:
        """Return a topic's id as Kafka prints it; "" from brokers before 2.8."""
        # As last heard. Who rests an effect on it asks anew before (`opener.learn`, `TopicLog.topic_id`).
        return self._topic(topic).topic_id

    def broker_ids(self) -> list[int]:
        """Return the ids of the live brokers, sorted."""
        if not self._brokers:
            self.refresh()
        return sorted(self._brokers)

    def connection(self, node_id: int) -> Connection:
        """Return the cached connection to a broker, opening it if needed. All calls of this cluster share it."""
        if node_id not in self._brokers:
            self.refresh()  # which may bring the connection as well
        connection = self._cached(node_id)
        if connection is None:
            connection = self._open(node_id, self._request_timeout_s)
            self._connections[node_id] = connection
        return connection

    def _cached(self, node_id: int) -> Connection | None:
        connection = self._connections.get(node_id)
        if connection is None or not connection.gone:
            return connection
        # Whatever ended it: what it had in flight is unknown and was told as lost to those who had sent it. Brokers close
        # what is idle for ten minutes (connections.max.idle.ms). A request would be lost for each, and a caller in a
        # hurry asks once.
        connection.close()
        return None

    def dedicated(self, node_id: int, timeout_s: float | None = None) -> Connection:
        """Open a connection that the caller owns and closes. ``timeout_s`` defaults to ``socket.timeout.ms``."""
        return self._open(node_id, timeout_s)

    def reach(self, timeout_s: float) -> None:
        """Connect to any bootstrap server within ``timeout_s``, however many of them are silent.

        :raises ClusterUnreachable: none answered. Rejected credentials and certificates are raised at once.
        """
        backoff = Backoff(timeout_s)
        while True:
            try:
                self._from_bootstrap([], backoff)
                return
            except ClusterUnreachable:
                if backoff.expired:
                    raise
            backoff.pause()

    def connector(self, node_id: int) -> Callable[[], Connection]:
        """Return a function that opens a connection that the caller owns and closes; callable from any thread.

        :raises ConnectionLost: no live broker has this id.
        """
        # The address of now. Where the broker has moved since, connecting fails, and the partition's next opening asks.
        host, port = self._address(node_id)
        return partial(self._logins.connect, host, port)

    def any_connection(self, asked: Collection[int] = ()) -> Connection:
        """Return a connection to any broker that answers, for requests that every broker can serve.

        :param asked: brokers to try last, because they were asked already.
        :raises ClusterUnreachable: none answered.
        """
        # In random order, not the open one first: otherwise a broker that is cut off from its cluster is asked forever.
        causes: list[str] = []
        for node_id in sorted(random.sample(sorted(self._brokers), len(self._brokers)), key=lambda node: node in asked):
            try:
                return self.connection(node_id)
            except ConnectionLost as e:  # including a broker that is gone for good; bootstrap servers come next
                causes.append(str(e))
        return self._cached(_BOOTSTRAP) or self._from_bootstrap(causes)

    def _gave_up(self, what: str, tp: TopicPartition, failure: int | ConnectionLost) -> MirrorError:
        asked = f"{what} of {tp}, tried for {self.timeout_s:g} s" if self.patient else f"{what} of {tp}"
        if isinstance(failure, ConnectionLost):
            return ConnectionLost(self.role, failure.address, asked, failure.reason, failure.hint)
        return self._transient(asked, failure)

    def _transient(self, what: str, code: int) -> BrokerError:
        return BrokerError(f"{self.role} cluster, {what}", code, error_name(code), meaning(code))

    def _refusal(self, what: str, code: int, operation: str, name: str) -> MirrorError:
        return refusal(f"{self.role} cluster, {what}", code, operation, name, self.settings.principal)

    def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            self.refresh([name])
        return self._topics[name]

    def _known_leader(self, tp: TopicPartition) -> Leader:
        leader = self._topic(tp.topic).leaders.get(tp.partition)
        if leader is not None:
            return leader
        backoff, name = Backoff(self.timeout_s), str(tp)
        while True:
            self._read_metadata([tp.topic], Backoff(self.timeout_s), name)  # the topic may have grown
            leader = self._topic(tp.topic).leaders.get(tp.partition)
            if leader is not None:
                return leader
            self._heard(name)
            self._raise_if_believed(name)
            if not self.patient or backoff.expired:
                raise self._not_seen(name)
            backoff.pause()

    def _heard(self, name: str) -> None:
        """Record that the broker that was asked last does not know a topic or partition."""
        rumour = self._rumours.setdefault(name, Rumour(time.monotonic()))
        if self._asked_last is not None:
            rumour.brokers.add(self._asked_last)

    def _is_believed(self, name: str) -> bool:
        """Return whether there is a rumour that is old enough and has enough witnesses."""
        if (rumour := self._rumours.get(name)) is None:
            return False
        age_s, brokers = time.monotonic() - rumour.since, self._brokers.keys()
        several = len(rumour.brokers) > 1 or len(brokers) == 1
        unanimous = self.patient and rumour.brokers >= brokers and age_s >= _UNANIMOUS_S
        # A rumour that is believed too early stops a partition for good; one that is believed late costs half a minute.
        return unanimous or (several and age_s >= _BELIEVED_S)

    def _raise_if_believed(self, name: str) -> None:
        """Raise UnknownTopic if a topic or partition does not exist, as far as can be known."""
        if self._is_believed(name):
            self._topics.pop(name, None)
            raise self._refusal("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Describe", name)

    def _not_seen(self, name: str) -> TryAgain:
        rumour = self._rumours[name]
        seen, age_s = f"{len(rumour.brokers)} of {len(self._brokers)}", time.monotonic() - rumour.since
        return TryAgain(
            f"{self.role} cluster", f"{seen} broker(s) know no topic or partition {name!r}, for {age_s:.0f} s",
            "One that has just started, or has not heard of a new topic yet, says so too.",
        )  # fmt: skip

    def _refresh_if_possible(self, topics: set[str]) -> None:
        """Refresh within a retry loop. While no broker answers, the loop's own deadline decides."""
        with suppress(TryAgain):
            self._read_metadata(sorted(topics), Backoff(0))

    def _read_metadata(self, topics: list[str], backoff: Backoff, rumour: str = "") -> list[str]:
        """Fetch metadata from any broker, cache it, and return the topics that the broker does not know.

        :param rumour: prefer brokers that have not yet reported this name as unknown; default: the topics.
        """
        said = {n for name in ([rumour] if rumour else topics) if (r := self._rumours.get(name)) for n in r.brokers}
        connection, response = self._answered(topics, backoff, said)
        if response.brokers:
            # A broker that lists none has just started: what was known before is kept, old as it may be.
            self._brokers = {b.node_id: Address(b.host, b.port) for b in response.brokers}
        self._adopt_bootstrap()
        # Behind a load balancer the answering broker is unknown. One that lists no brokers has heard of nothing yet.
        whose = (node_id for node_id, known in self._connections.items() if known is connection)
        self._asked_last = next(whose, None) if response.brokers else None
        missing, failed = list[str](), list[str]()
        for topic in response.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._heard(topic.name)
                missing.append(topic.name)
            elif topic.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                failed.append(topic.name)
            elif topic.error_code and topic.error_code not in RETRIABLE:
                raise self._refusal(f"Metadata of {topic.name}", topic.error_code, "Describe", topic.name)
            else:  # LEADER_NOT_AVAILABLE comes with the partitions, some of them with leader -1
                # Replaced as a whole, id and leaders together: a topic that was created again is never seen with the
                # old one's leaders.
                known = self._topics[topic.name] = topic_of(topic)
                if self._rumours:
                    for name in (topic.name, *(f"{topic.name}-{p}" for p in known.leaders)):
                        # One broker that knows it is enough: a topic is never taken for gone while anybody has it.
                        self._rumours.pop(name, None)
        if not failed:
            return missing
        if not self.patient or backoff.expired:
            for name in failed:  # who needs it next asks anew: by now it may be another topic
                self._topics.pop(name, None)
            raise self._transient(f"Metadata of {failed[0]}", ErrorCode.UNKNOWN_SERVER_ERROR)
        backoff.pause()
        return missing + self._read_metadata(failed, backoff, rumour)

    def _answered(self, topics: list[str], backoff: Backoff, said: Collection[int]) -> tuple[Connection, Any]:
        while True:
            try:
                connection = self.any_connection(said)
                return connection, requests.metadata(connection, topics)
            except (ConnectionLost, ClusterUnreachable):
                if backoff.expired:
                    raise
                backoff.pause()

    def _open(self, node_id: int, timeout_s: float | None) -> Connection:
        host, port = self._address(node_id)
        return self._logins.connect(host, port, timeout_s)

    def _address(self, node_id: int) -> Address:
        if node_id not in self._brokers:
            self.refresh()
        if node_id not in self._brokers:
            raise ConnectionLost(self.role, f"id {node_id}", "connect", "no live broker has this id")
        return self._brokers[node_id]

    def _adopt_bootstrap(self) -> None:
        """Keep the bootstrap connection if its address is a broker's; behind a load balancer it is nobody's."""
        # Nothing is in flight on it: its one thread is here, and waits for no answer.
        connection = self._connections.pop(_BOOTSTRAP, None)
        if connection is None:
            return
        for node_id, address in self._brokers.items():
            if address == (connection.host, connection.port) and node_id not in self._connections:
                self._connections[node_id] = connection
                return
        connection.close()

    def _from_bootstrap(self, causes: list[str], backoff: Backoff | None = None) -> Connection:
        """Connect to the first bootstrap server that answers, in random order, as every Kafka client does.

        :param backoff: the servers share its remaining time; without it each gets the timeout of a request.
        """
        for tried, (host, port) in enumerate(random.sample(self._bootstrap, len(self._bootstrap))):
            timeout_s = self._request_timeout_s
            if backoff is not None:
                timeout_s = min(timeout_s, max(backoff.left_s / (len(self._bootstrap) - tried), 0.1))
            try:
                connection = self._logins.connect(host, port, timeout_s)
            except ConnectionLost as e:
                causes.append(f"{e.address} {e.reason}" if e.asked == "connect" else str(e))
                continue
            # Under no broker's id, until its metadata tell whose address this is.
            self._connections[_BOOTSTRAP] = connection
            return connection
        raise ClusterUnreachable(self.role, self.settings.bootstrap, "; ".join(dict.fromkeys(causes)).rstrip("."))
