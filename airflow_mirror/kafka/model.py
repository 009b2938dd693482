"""Values that describe a cluster, without a client.

Offsets are those of the next record to read. Names are Kafka's. Nothing here can hold a secret: a sensitive config has
no value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError

OF_GROUPS = "__consumer_offsets"  # the topic whose leaders are the coordinators of groups
COORDINATORS = "__transaction_state"  # the topic whose leaders are the coordinators of transactions


@dataclass(frozen=True)
class TopicInfo:
    """A topic as its cluster describes it.

    :param topic_id: Kafka's UUID, 22 characters; changes if a topic is deleted and re-created.
    :param replication_factor: number of replicas of partition 0.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int


def same_topic(planned: str | None, found: str) -> bool:
    """Return whether a topic may be the one that was seen before, by its id.

    Where it has none, then or now, only the log tells. Brokers before 2.8 have none, and each topic gets one when they
    are upgraded.

    :param planned: its id then; "" where it had none, None where it was not noted. :param found: its id now, likewise.
    """
    return not planned or not found or planned == found


# States of a group that nobody is in; an unknown one is Dead. In these Kafka lets a non-member set its offsets.
NO_MEMBERS = ("Empty", "Dead")


@dataclass(frozen=True)
class Replicas:
    """The replicas of one partition: how many there are, how many of them are in sync, whether one leads."""

    all: int
    in_sync: int
    led: bool = True


@dataclass(frozen=True, kw_only=True)
class ConfigEntry:
    """The effective value of one config key.

    :param value: None if sensitive or unset.
    :param is_default: not set anywhere; ``source`` is Kafka's own default.
    :param source: Kafka's name of where the value comes from, such as ``DYNAMIC_TOPIC_CONFIG`` or
        ``STATIC_BROKER_CONFIG``.
    """

    value: str | None
    is_default: bool = False
    is_sensitive: bool = False
    is_read_only: bool = False
    source: str = "UNKNOWN_CONFIG"

    @property
    def is_override(self) -> bool:
        """Whether the topic itself sets this value."""
        return self.source == "DYNAMIC_TOPIC_CONFIG"


@dataclass(frozen=True)
class NewTopicSpec:
    """A topic to create. ``configs`` are topic-level overrides."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NewConfigs:
    """Overrides of a topic to write, and keys of those to remove, so that the cluster's own default applies."""

    set: Mapping[str, str] = field(default_factory=dict)
    delete: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.set or self.delete)


# Kinds of applications that commit seldom: every 30 s, and every 60 s, by default.
STREAMS, CONNECT = "Kafka Streams", "Kafka Connect"


@dataclass(frozen=True)
class GroupInfo:
    """A consumer group, or one of another kind where these were asked for.

    :param state: Kafka's name of its state at one moment: ``Stable``, ``Empty``, ``PreparingRebalance``, ...
    :param protocol_type: ``consumer``, ``streams`` (KIP-1071), or ``""`` for a group that only ever committed offsets;
        others are ``connect``, ``share``.
    :param group_type: ``classic``, ``consumer`` (KIP-848), ``share`` or ``streams``; "" from brokers that don't tell.
    :param application: :data:`STREAMS` or :data:`CONNECT`, which commit every 30 and 60 s; ``""`` for any other. Told by
        its members, so only of a group that was described and has some.
    """

    group_id: str
    state: str
    protocol_type: str
    group_type: str = field(default="", kw_only=True)
    application: str = field(default="", kw_only=True)

    @property
    def has_members(self) -> bool:
        """Whether anybody is in it."""
        return self.state not in NO_MEMBERS


@dataclass(frozen=True)
class GroupPosition:
    """A group's position in one partition: the next offset to read, and the application's metadata.

    It deliberately has no leader epoch. An epoch belongs to one cluster; committed on another cluster it would make
    consumers loop on metadata requests (KIP-320).
    """

    offset: int
    metadata: str = ""


@dataclass(kw_only=True)
class GroupCommit:
    """What became of the positions of one group. Nobody knows it of those in neither set: an answer was lost.

    :param done: they are set.
    :param refused: they are not, and never will be.
    :param unsent: those of ``refused`` that no coordinator was asked to set.
    :param active: the coordinator refused because the group has members.
    :param error: the first one.
    """

    done: set[TopicPartition] = field(default_factory=set)
    refused: set[TopicPartition] = field(default_factory=set)
    unsent: set[TopicPartition] = field(default_factory=set)
    active: bool = False
    error: MirrorError | None = None

    def keep_unsent(self, partitions: Collection[TopicPartition]) -> None:
        """Note that positions were not sent."""
        self.refused.update(partitions)
        self.unsent.update(partitions)


@dataclass(frozen=True, order=True, kw_only=True)
class Acl:
    """One access rule, in Kafka's upper-case names (``TOPIC``, ``LITERAL``, ``WRITE``, ``DENY``)."""

    resource_type: str
    name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        where = f"{self.resource_type} {self.name!r} ({self.pattern_type})"
        return f"{self.permission} {self.operation} for {self.principal} from {self.host} on {where}"
