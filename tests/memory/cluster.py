"""One cluster in memory, for many actors: topics, logs, ACLs, groups, leases, the ledger and state.

Logs and the transaction coordinator are those of the driven broker (`tests/driven`), which the conformance suite holds
against real ones; the rest is held against a real one by `tests/conformance/sides`. Nobody talks bytes here: an
actor has views (`admin`, `wire`, `ledger`), and each of their calls is one event.

It has the state alone, and no hook: what looks at it directly (an invariant) is seen by nobody.

Left out: replication, quotas, SCRAM users, brokers that die, retention, compaction; administrative requests are not
refused for a missing right (only writing is, and what is allowed can be asked); and clients don't repeat a request whose
answer is lost, as real ones do for a while.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.model import Acl, GroupInfo, GroupPosition
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import records
from tests.driven.clock import Clock as DrivenClock
from tests.driven.groups import Committed, Groups
from tests.driven.log import PartitionLog
from tests.driven.records import Row
from tests.driven.refused import Refused
from tests.driven.release import RELEASES
from tests.driven.sessions import Sessions
from tests.driven.transactions import Transactions
from tests.driven.validation import TopicConfig
from tests.memory.rules import Rules


class Clock(Protocol):
    """The brokers' time."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""


@dataclass
class Topic:
    """A topic. ``leaders`` has the broker of each partition."""

    name: str
    topic_id: str
    logs: list[PartitionLog]
    leaders: dict[int, int]
    configs: dict[str, str] = field(default_factory=dict)


@dataclass
class Group:
    """A group. ``members`` are names of consumers; ``ever_had`` any: it is one of consumers, and outlives them."""

    members: set[str] = field(default_factory=set)
    ever_had: bool = False


@dataclass
class Node:
    """A broker, as the handlers of the driven one know it."""

    cluster: MemoryCluster
    node_id: int
    running: bool = True
    port: int = 9092
    sessions: Sessions = field(default_factory=Sessions)
    heard: dict[str, Topic] | None = None  # it hears of everything

    @property
    def address(self) -> tuple[str, int]:
        """Where clients are sent."""
        return "127.0.0.1", self.port


class Appended(bytes):
    """A decision, with the time at which it was appended, in ms."""

    at_ms = 0


class MemoryCluster:
    """See the module.

    :param role: ``source``, ``target``.
    :param brokers: how many, with the ids 1, 2, ...
    :ivar written: what applications wrote: principal, partition, offset, value.
    """

    def __init__(
        self, role: str = "target", *, brokers: int = 1, clock: Clock | None = None, rules: Rules | None = None
    ) -> None:  # fmt: skip
        self.role, self.cluster_id = role, f"cluster-{role}"
        self.clock: Any = DrivenClock() if clock is None else clock
        self.rules = rules or Rules()
        self.release = RELEASES["4.4.0"]
        self.topics: dict[str, Topic] = {}
        self.groups = Groups()
        self.members: dict[str, Group] = {}
        self.transactions = Transactions(self.clock, self.groups, self.log, self.release)
        self.decisions: list[Appended] = []
        self._fold = Fold()
        self.state: dict[str, bytes] = {}
        self.written: list[tuple[str, TopicPartition, int, bytes]] = []
        self.brokers = {i: Node(self, i) for i in range(1, brokers + 1)}
        self.coordinators = {0: 1, 1: 1}
        self._created = 0

    @property
    def now_ms(self) -> int:
        """The brokers' time."""
        return int(self.clock.now_ms)

    # --- topics and logs ----------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic, or create it again: another id, empty logs.

        :raises Refused: of an invalid partition count.
        """
        if partitions < 1:
            raise Refused(ErrorCode.INVALID_PARTITIONS)
        self._created += 1
        topic_id = _short(uuid.UUID(int=self._created << 64 | 1))
        topic = self.topics[name] = Topic(name, topic_id, [], {}, dict(configs or {}))
        self.grow(name, partitions)
        return topic

    def grow(self, name: str, total: int) -> None:
        """Add partitions."""
        topic, brokers = self.topics[name], sorted(self.brokers)
        for p in range(len(topic.logs), total):
            topic.logs.append(PartitionLog(TopicPartition(name, p), _config(topic.configs), self.clock, self.release))
            topic.leaders[p] = brokers[p % len(brokers)]

    def has(self, tp: TopicPartition) -> bool:
        """Return whether there is a partition."""
        return tp.topic in self.topics and 0 <= tp.partition < len(self.topics[tp.topic].logs)

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return a partition's log.

        :raises Refused: there is none.
        """
        if not self.has(tp):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.topics[tp.topic].logs[tp.partition]

    def append(self, tp: TopicPartition, *values: bytes, producer_id: int = -1, epoch: int = -1) -> int:
        """Append records as one batch, inside of a transaction if a producer is named; return the first one's offset.

        Nobody is asked whether that is allowed.
        """
        log = self.log(tp)
        first = log.end
        rows = [Row(first + i, self.now_ms, b"%d" % (first + i), value) for i, value in enumerate(values)]
        named: dict[str, int] = {}
        if producer_id >= 0:
            known = log.producers.known.get(producer_id)
            sequence = 0 if known is None else known.last_sequence + 1
            named = {"producer_id": producer_id, "epoch": epoch, "attributes": 0x10, "sequence": sequence}
        log.lay(records.encode(rows, leader_epoch=log.epoch, **named))
        return first

    def values(self, tp: TopicPartition) -> list[bytes]:
        """Return the values that a consumer in read_committed sees."""
        return [row.value or b"" for row in self.log(tp).rows()]

    # --- ACLs ---------------------------------------------------------------------------------------------------------

    def create_acls(self, *rules: Acl) -> None:
        """Add rules."""
        self.rules.change(self.rules.now | set(rules), self.now_ms)

    def delete_acls(self, *rules: Acl) -> list[Acl]:
        """Remove rules; return those that were there."""
        there = sorted(self.rules.now & set(rules))
        if there:
            self.rules.change(self.rules.now - set(there), self.now_ms)
        return there

    def allows(self, principal: str, operation: str, tp: TopicPartition | str, kind: str = "TOPIC") -> bool:
        """Return whether a principal may do something with a partition, as its leader says, or with a resource."""
        if isinstance(tp, str):
            return self.rules.allows(principal, operation, kind, tp, 1, self.now_ms)
        leader = self.topics[tp.topic].leaders[tp.partition] if tp.topic in self.topics else 1
        return self.rules.allows(principal, operation, kind, tp.topic, leader, self.now_ms)

    def writable(self, principal: str, topics: list[str] | None = None) -> list[str]:
        """Return the topics to which a principal may write at any of their leaders."""
        return [
            name for name, topic in self.topics.items()
            if (topics is None or name in topics)
            and any(self.allows(principal, "WRITE", TopicPartition(name, p)) for p in topic.leaders)
        ]  # fmt: skip

    # --- groups -------------------------------------------------------------------------------------------------------

    def group(self, group: str) -> GroupInfo:
        """Return a group's state; ``Dead`` if there is none."""
        known = self.members.get(group)
        if known is not None and known.members:
            return GroupInfo(group, "Stable", "consumer")
        if known is not None and known.ever_had:
            return GroupInfo(group, "Empty", "consumer")
        return GroupInfo(group, "Empty" if group in self.groups.committed else "Dead", "")

    def positions(self, group: str) -> dict[TopicPartition, GroupPosition]:
        """Return the committed positions of a group."""
        found = self.groups.committed.get(group, {})
        return {tp: GroupPosition(one.offset, one.metadata) for tp, one in found.items()}

    def commit(self, group: str, positions: Mapping[TopicPartition, GroupPosition], member: str = "") -> ErrorCode:
        """Set positions; as a member, or as somebody who is none.

        :return: UNKNOWN_MEMBER_ID: the group has members, and this is none of them.
        """
        members = self.members[group].members if group in self.members else set()
        if (members or member) and member not in members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not all(map(self.has, positions)):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        there = self.groups.committed.setdefault(group, {})
        there.update({tp: Committed(one.offset, one.metadata, -1) for tp, one in positions.items()})
        return ErrorCode.NONE

    def join(self, group: str, member: str) -> None:
        """Let a consumer become a member."""
        known = self.members.setdefault(group, Group())
        known.members.add(member)
        known.ever_had = True

    def leave(self, group: str, member: str) -> None:
        """Let a consumer leave."""
        self.members[group].members.discard(member)

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def decide(self, value: bytes) -> int:
        """Append a decision; return its offset."""
        appended = Appended(value)
        appended.at_ms = self.now_ms
        self.decisions.append(appended)
        return len(self.decisions) - 1

    @property
    def decided(self) -> Mapping[str, Any]:
        """What the decisions amount to, by key: for invariants, which ask nobody and look after each effect."""
        for offset in range(self._fold.end, len(self.decisions)):
            self._fold.apply(offset, self.decisions[offset], self.decisions[offset].at_ms)
        return self._fold.values


def _short(one: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(one.bytes).decode().rstrip("=")


def _config(configs: Mapping[str, str]) -> TopicConfig:
    return TopicConfig(
        cleanup_policy=configs.get("cleanup.policy", "delete"),
        append_time=configs.get("message.timestamp.type") == "LogAppendTime",
    )
