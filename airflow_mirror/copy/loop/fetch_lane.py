"""A lane to a source leader: what it is for, what was asked on it, and its fetch session if it has one."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.failures import Asked
from airflow_mirror.copy.loop.lane import Lane
from airflow_mirror.copy.loop.leaders import Connect
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.wire import fetch
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.session import FetchSession


class Kind(Enum):
    """Which partitions a lane fetches for."""

    BACKLOG = "behind: answered at once"
    TAIL = "at the end: a long poll that names all of them"
    REST = "at the end, and nothing has come for a while: a longer poll, in a session that the broker keeps"


Key = tuple[int, Kind]  # a leader's node id, and what for


class Named(NamedTuple):
    """What a request named: a partition, with its generation and fetch offset at that time."""

    p: PartitionCopy
    generation: int
    offset: int

    @property
    def counts(self) -> bool:
        """Whether a response to it is of use: one that was asked before the partition failed, or got on, is not."""
        return self.generation == self.p.generation and self.offset == self.p.fetch_offset


class FetchLane(Lane):
    """A lane to a source leader.

    :ivar named: what the request in flight asks for; on a lane of kind REST, what the session holds.
    :ivar busy: a request is in flight.
    :ivar expected: bytes that the response may have.
    :ivar by_id: the request in flight names topics by their ids.
    :ivar connect: opens another connection to the leader.
    """

    def __init__(self, key: Key) -> None:
        super().__init__(key[0])
        self.key, self.kind = key, key[1]
        self.named: dict[TopicPartition, Named] = {}
        self.busy = self.by_id = False
        self.expected = 0
        self.connect: Connect | None = None
        self.session = FetchSession()
        self._session_on: Connection | None = None

    def name(self, p: PartitionCopy) -> None:
        """Note that a request names a partition as it stands."""
        self.named[p.range.source] = Named(p, p.generation, p.fetch_offset)

    def holds(self, p: PartitionCopy) -> bool:
        """Return whether the session has a partition where the partition is."""
        named = self.named.get(p.range.source)
        return named is not None and named.p is p and named.counts

    def let_go(self, p: PartitionCopy) -> None:
        """Have the session forget a partition."""
        named = self.named.get(p.range.source)
        if named is not None and named.p is p:
            del self.named[p.range.source]
            self.session.drop(p.range.source)

    def settle_session(self) -> None:
        """Begin the session anew on another connection: what became of the last one's requests is not asked."""
        if self._session_on is not self.connection:
            self._session_on = self.connection
            self.session.takes_ids = self.connection is not None and fetch.takes_ids(self.connection)
            self.session.begin_anew()

    def asked(self) -> Iterator[Asked]:
        """Yield the partitions of the request in flight, or of the session."""
        return ((named.p, named.generation) for named in self.named.values())
