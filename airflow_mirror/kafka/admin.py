"""ClusterAdmin: everything that is asked of or told to a cluster from outside, over confluent-kafka.

Every answer is checked per object, no error is swallowed, and no call creates a topic by asking for it. Errors name the
cluster's role, the object and the cause (:mod:`airflow_mirror.kafka.session`). Records are not its business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection
from confluent_kafka import TopicPartition as WireTopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import ConfigEntry as WireConfigEntry

from airflow_mirror.errors import BrokerError
from airflow_mirror.kafka import acls, groups
from airflow_mirror.kafka.model import Acl, ConfigEntry, GroupInfo, GroupPosition, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.session import AdminSession, chunks
from airflow_mirror.partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_mirror.config import ClientConfig

__all__ = ["Acl", "ClusterAdmin", "ConfigEntry", "GroupInfo", "GroupPosition", "NewTopicSpec", "TopicInfo"]

_CHUNK = 500  # objects per request


class ClusterAdmin:
    """Admin calls to one cluster. Not shared between threads.

    :param config: how to reach it; ``config.role`` is what errors call it.
    :param timeout_s: for each call.
    :raises InputError: when librdkafka refuses a setting. Nothing is connected before the first call.

    Every method may raise :class:`ClusterUnreachable` (no broker answers, found within 8 s at the first call),
    :class:`AuthenticationFailed`, :class:`MissingRight`, :class:`RequestRefused` and :class:`BrokerError`.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 15.0) -> None:
        self.config = config
        self._session = AdminSession(config, timeout_s)

    @property
    def role(self) -> str:
        """What this cluster is to the user: ``source`` or ``target``."""
        return self.config.role

    # --- the cluster ---

    def cluster_id(self) -> str:
        """Return the id that the cluster was formatted with; equal ids mean the same cluster."""
        return str(self._describe().cluster_id)

    def broker_count(self) -> int:
        """Return how many brokers are registered and alive."""
        return len(self._describe().nodes)

    def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
        """Return the settings of each broker by its id. Needs DESCRIBE_CONFIGS on the cluster."""
        found = {}
        for node in self._describe().nodes:
            resource = ConfigResource(ResourceType.BROKER, str(node.id))  # Kafka answers for one broker a request
            found[int(node.id)] = self._configs([resource])[resource.name]
        return found

    def _describe(self) -> Any:
        return self._session.call("describe cluster", lambda c, t: c.describe_cluster(request_timeout=t))

    # --- topics ---

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        """Return topics by name; all that the principal may see when ``names`` is None. Absent ones are left out."""
        found: dict[str, TopicInfo] = {}
        for chunk in chunks(sorted(set(self.topic_names() if names is None else names)), _CHUNK):
            described = self._describe_topics(chunk)
            for name, d in described.items():
                found[name] = TopicInfo(name, _uuid(d.topic_id), len(d.partitions), len(d.partitions[0].replicas))
        return found

    def topic_names(self) -> list[str]:
        """Return the names of all topics that the principal may see, internal ones too, sorted."""
        return sorted(self._session.blocking("list topics", lambda c, t: c.list_topics(timeout=t)).topics)

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Return the effective configs of each topic; keys are Kafka's, defaults included."""
        found: dict[str, dict[str, ConfigEntry]] = {}
        for chunk in chunks(sorted(set(names)), _CHUNK):
            found |= self._configs([ConfigResource(ResourceType.TOPIC, name) for name in chunk])
        return found

    def create_topics(self, specs: Iterable[NewTopicSpec], *, validate_only: bool = False) -> None:
        """Create topics and wait until the controller has them.

        :param validate_only: create nothing, but say what would be refused.
        :raises BrokerError: with code 36 (TOPIC_ALREADY_EXISTS) if one exists; the others were created.
        """
        new = [
            NewTopic(
                s.name,
                num_partitions=s.partitions,
                replication_factor=s.replication_factor,
                config=dict(s.configs),
            )
            for s in specs
        ]
        for chunk in chunks(new, _CHUNK):
            self._each(
                "create topic",
                lambda c, t, chunk=chunk: c.create_topics(chunk, request_timeout=t, validate_only=validate_only),
            )

    def grow_partitions(self, topic: str, total: int) -> None:
        """Raise a topic's partition count to ``total``; Kafka can't lower it."""
        self._each(
            f"grow to {total} partitions topic",
            lambda c, t: c.create_partitions([NewPartitions(topic, total)], request_timeout=t),
        )

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete topics with all their records."""
        for chunk in chunks(sorted(set(names)), _CHUNK):
            self._each("delete topic", lambda c, t, chunk=chunk: c.delete_topics(chunk, request_timeout=t))

    def alter_topic_configs(self, topic: str, set: Mapping[str, str] | None = None, delete: Collection[str] = ()) -> None:
        """Set and remove topic-level overrides; keys not named stay as they are."""
        entries = [
            WireConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in sorted((set or {}).items())
        ]
        entries += [WireConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in sorted(delete)]
        if not entries:
            return
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._session.call_each(
            lambda r: f"alter configs of topic {r.name!r}",
            lambda c, t: c.incremental_alter_configs([resource], request_timeout=t),
        )

    # --- offsets ---

    def offsets(self, partitions: Iterable[TopicPartition], spec: str | int = "latest") -> dict[TopicPartition, int]:
        """Return one offset per partition.

        :param spec: ``earliest`` (log start), ``latest`` (high watermark), ``latest_committed`` (last stable offset,
            the end for a read_committed consumer), or a time in ms: the first record at or after it, -1 if none is.
        """
        isolation = IsolationLevel.READ_UNCOMMITTED
        if isinstance(spec, int):
            wanted = OffsetSpec.for_timestamp(spec)
        elif spec == "latest_committed":
            wanted, isolation = OffsetSpec.latest(), IsolationLevel.READ_COMMITTED
        else:
            wanted = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}[spec]()
        request = {WireTopicPartition(tp.topic, tp.partition): wanted for tp in partitions}
        if not request:
            return {}
        try:
            answer = self._session.call_each(
                lambda p: f"offset ({spec}) of {p.topic}-{p.partition}",
                lambda c, t: c.list_offsets(request, isolation_level=isolation, request_timeout=t),
            )
        except BrokerError as e:
            if e.code == KafkaError._NOENT:  # "no leaders found": the topics themselves say whether it is the right
                self.topics({p.topic for p in request})
            raise
        return {TopicPartition(p.topic, p.partition): int(info.offset) for p, info in answer.items()}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Move log starts: delete all records below the given offset. Return the log starts afterwards."""
        if not before:
            return {}
        request = [WireTopicPartition(tp.topic, tp.partition, offset) for tp, offset in sorted(before.items())]
        answer = self._session.call_each(
            lambda p: f"delete records of {p.topic}-{p.partition}",
            lambda c, t: c.delete_records(request, request_timeout=t),
        )
        return {TopicPartition(p.topic, p.partition): int(done.low_watermark) for p, done in answer.items()}

    # --- groups ---

    def groups(self) -> list[GroupInfo]:
        """Return all consumer groups that the principal may see, sorted by id."""
        return groups.list_groups(self._session)

    def group_states(self, ids: Collection[str]) -> dict[str, str]:
        """Return Kafka's state name of each group; ``Dead`` for one that does not exist."""
        return groups.group_states(self._session, ids)

    def group_offsets(self, group: str) -> dict[TopicPartition, GroupPosition]:
        """Return the committed positions of a group; partitions without one are absent."""
        return groups.group_offsets(self._session, group)

    def commit_group_offsets(self, group: str, positions: Mapping[TopicPartition, GroupPosition]) -> None:
        """Set a group's positions. No range check.

        :raises GroupActive: when the group has members.
        """
        groups.commit_group_offsets(self._session, group, positions)

    # --- ACLs ---

    def describe_acls(
        self,
        resource_type: str | None = None,
        name: str | None = None,
        pattern_type: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        operation: str | None = None,
        permission: str | None = None,
    ) -> list[Acl]:
        """Return the rules with these fields; None matches any, ``pattern_type="MATCH"`` all that apply to ``name``.

        :raises RequestRefused: with code 54 (SECURITY_DISABLED) when the cluster has no authorizer.
        """
        return acls.describe_acls(
            self._session,
            resource_type=resource_type,
            name=name,
            pattern_type=pattern_type,
            principal=principal,
            host=host,
            operation=operation,
            permission=permission,
        )

    def create_acls(self, rules: Collection[Acl]) -> None:
        """Add rules; one that exists stays as it is."""
        acls.create_acls(self._session, rules)

    def delete_acls(self, rules: Collection[Acl]) -> list[Acl]:
        """Remove exactly these rules; return those that existed."""
        return acls.delete_acls(self._session, rules)

    # --- inside ---

    def _each(self, verb: str, start: Any) -> None:
        self._session.call_each(lambda name: f"{verb} {name!r}", start)

    def _describe_topics(self, names: list[str]) -> dict[str, Any]:
        return self._session.call_each(
            lambda name: f"describe topic {name!r}",
            lambda c, t: c.describe_topics(TopicCollection(names), request_timeout=t),
            absent=KafkaError.UNKNOWN_TOPIC_OR_PART,
        )

    def _configs(self, resources: list[Any]) -> dict[str, dict[str, ConfigEntry]]:
        found = self._session.call_each(
            lambda r: f"read configs of {r.restype.name.lower()} {r.name!r}",
            lambda c, t: c.describe_configs(resources, request_timeout=t),
        )
        return {r.name: {key: _entry(e) for key, e in entries.items()} for r, entries in found.items()}


def _entry(e: Any) -> ConfigEntry:
    source = ConfigSource(e.source).name  # an int from the C layer
    return ConfigEntry(
        None if e.is_sensitive else e.value, source == "DEFAULT_CONFIG", e.is_sensitive, e.is_read_only, source
    )


def _uuid(value: object) -> str:
    """Return a topic id as Kafka itself writes it: librdkafka uses the other Base64 alphabet (+ and / for - and _)."""
    return str(value).replace("+", "-").replace("/", "_")
