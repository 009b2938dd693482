"""ClusterAdmin: every administrative request to a cluster, over our own connections.

One code path serves every broker from 0.11 on. Versions are negotiated for each request; a request that an old broker
lacks is replaced by the closest one that it has, or rejected by name. Every response is checked per object, no error is
swallowed, and no request auto-creates a topic. Errors name the cluster's role, the object and the cause, with the
broker's own message if there is one (:mod:`airflow_mirror.kafka.session`). It does not read or write records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MirrorError, MissingRight
from airflow_mirror.kafka import (
    acls,
    allowed,
    cluster,
    configs,
    groups,
    local_name,
    offsets,
    quotas,
    topics,
    transactions,
    tried,
    users,
)
from airflow_mirror.kafka.model import (
    Acl,
    ConfigEntry,
    GroupCommit,
    GroupInfo,
    GroupPosition,
    NewConfigs,
    NewTopicSpec,
    Replicas,
    TopicInfo,
)
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.kafka.session import AdminSession
from airflow_mirror.kafka.transactions import OpenTransaction
from airflow_mirror.kafka.users import ScramCredential
from airflow_mirror.wire.cluster import WireCluster

__all__ = ["Acl", "ClusterAdmin", "ConfigEntry", "GroupInfo", "GroupPosition", "NewTopicSpec", "TopicInfo"]


class ClusterAdmin:
    """Admin calls to one cluster. Not shared between threads. Close it, or use it as a context manager.

    :param config: how to reach the cluster; errors name it by ``config.role``.
    :param timeout_s: for each call.
    :raises InvalidField: a setting is unsupported. The first call connects, not the constructor.

    What changes something that others rely on takes a permit (:mod:`.permit`), called right before the bytes.

    Every method may raise :class:`ClusterUnreachable` (no broker answers, detected within 8 s at the first call),
    :class:`AuthenticationFailed`, :class:`MissingRight`, which names the ACL,
    :class:`RequestRefused`, :class:`BrokerError`, and :class:`ApiNotServed` if the brokers are too old.
    """

    def __init__(self, config: ClientConfig, timeout_s: float = 15.0) -> None:
        self.config = config
        self._session = AdminSession(config.for_admin(), timeout_s)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def role(self) -> str:
        """The cluster's role: ``source`` or ``target``."""
        return self.config.role

    @property
    def principal(self) -> str | None:
        """Our principal for the cluster's authorizer; None where only the brokers know it.

        With Kerberos they are asked for the rules by which they make it.
        """
        return local_name.principal(self._session)

    @property
    def wire(self) -> WireCluster:
        """The connections that its requests take, for reading and writing logs.

        :raises ClusterUnreachable: no broker answers.
        """
        return self._session.cluster

    # --- the cluster ---

    def cluster_id(self) -> str:
        """Return the id that the cluster was formatted with; equal ids mean the same cluster."""
        return cluster.describe_cluster(self._session).cluster_id

    def broker_count(self) -> int:
        """Return the number of brokers that are registered and alive."""
        return len(cluster.describe_cluster(self._session).brokers)

    def broker_configs(self, most: int | None = None) -> dict[int, dict[str, ConfigEntry]]:
        """Return the settings of each broker by its id, or of so many. Needs DESCRIBE_CONFIGS on the cluster."""
        return configs.broker_configs(self._session, most)

    def usable_bytes(self) -> dict[int, int | None]:
        """Return the free disk of each broker by its id; None if it does not tell (before 3.3).

        :raises MissingRight: the principal lacks DESCRIBE on the cluster.
        """
        return cluster.usable_bytes(self._session)

    # --- topics ---

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        """Return topics by name; all visible ones if ``names`` is None. Topics that do not exist are omitted."""
        return topics.describe_topics(self._session, names)

    def replicas(self, names: Collection[str]) -> dict[TopicPartition, Replicas]:
        """Return the replicas of each partition of topics. Topics that do not exist are omitted."""
        return topics.describe_replicas(self._session, names)

    def topic_names(self) -> list[str]:
        """Return the names of all visible topics, including internal ones, sorted."""
        return sorted(topics.describe_topics(self._session, None))

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Return the effective configs of each topic; keys are Kafka's, defaults included."""
        return configs.topic_configs(self._session, names)

    def create_topics(self, specs: Iterable[NewTopicSpec]) -> None:
        """Create topics and wait until the controller has them.

        :raises BrokerError: with code 36 (TOPIC_ALREADY_EXISTS) if one exists; the others were created.
        """
        topics.create_topics(self._session, specs)

    def refused_topics(self, specs: Iterable[NewTopicSpec], patience_s: float = 5.0) -> dict[str, MirrorError]:
        """Return why the controller would not create topics, by name. None is created.

        :param patience_s: after which a temporary error counts.
        """
        return topics.refused_topics(self._session, specs, patience_s)

    def grow_partitions(self, topic: str, total: int, permit: Permit) -> None:
        """Raise a topic's partition count to ``total``. Kafka can't lower it, and before 1.0 can't raise it."""
        topics.grow_partitions(self._session, topic, total, permit)

    def delete_topics(self, names: Collection[str], permit: Permit) -> None:
        """Delete topics with all their records."""
        topics.delete_topics(self._session, names, permit)

    def delete_topic(self, name: str, topic_id: str, permit: Permit) -> None:
        """Delete the topic of this id; nothing if there is none. Errors name it ``name``.

        :raises ApiNotServed: by brokers before 2.8.
        """
        topics.delete_topic(self._session, name, topic_id, permit)

    def alter_topic_configs(
        self, topic: str, permit: Permit, set: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> None:  # fmt: skip
        """Set and remove topic-level overrides; other keys stay as they are.

        Before 2.3 all overrides are written at once, so somebody else's concurrent change is lost.
        """
        configs.alter_topic_configs(self._session, topic, NewConfigs(set or {}, delete), permit)

    def refused_configs(self, changes: Mapping[str, NewConfigs], patience_s: float = 5.0) -> dict[str, MirrorError]:
        """Return why the brokers would not change overrides of topics that exist, by name. Nothing is changed.

        :param patience_s: after which a temporary error counts.
        """
        return configs.refused_configs(self._session, changes, patience_s)

    # --- offsets ---

    def offsets(self, partitions: Iterable[TopicPartition], spec: str | int = "latest") -> dict[TopicPartition, int]:
        """Return one offset per partition.

        :param spec: ``earliest`` (log start), ``latest`` (high watermark), ``latest_committed`` (last stable offset,
            the end for a read_committed consumer), or a timestamp in ms: the first record at or after it, -1 if none
            is.
        :raises UnknownTopic: there is no such topic or partition.
        """
        return offsets.offsets(self._session, partitions, spec)

    def delete_records(self, before: Mapping[TopicPartition, int], permit: Permit) -> dict[TopicPartition, int]:
        """Delete all records below the given offsets. Return the resulting log start offsets."""
        return offsets.delete_records(self._session, before, permit)

    # --- groups ---

    def groups(self, *, every: bool = False) -> list[GroupInfo]:
        """Return all visible consumer groups, sorted by id; ``every``: those of all kinds."""
        return groups.list_groups(self._session, every=every)

    def describe_groups(self, ids: Collection[str]) -> dict[str, GroupInfo]:
        """Return each group; ``Dead`` is the state of one that does not exist."""
        return groups.describe_groups(self._session, ids)

    def group_states(self, ids: Collection[str]) -> dict[str, str]:
        """Return Kafka's state name of each group; ``Dead`` for one that does not exist."""
        return {group: info.state for group, info in self.describe_groups(ids).items()}

    def group_offsets(self, group: str) -> dict[TopicPartition, GroupPosition]:
        """Return the committed positions of a group; partitions without one are omitted."""
        return self.groups_offsets([group])[group]

    def groups_offsets(
        self, ids: Collection[str], only: Mapping[str, Collection[TopicPartition]] | None = None
    ) -> dict[str, dict[TopicPartition, GroupPosition]]:
        """Return the committed positions of many groups, with one request per hundred groups where brokers allow it.

        :param only: the partitions that are asked for, by group; None: all in which a group has a position.
        """
        return groups.group_offsets(self._session, ids, only)

    def groups_offsets_apart(
        self, ids: Collection[str], patience_s: float = 2.0
    ) -> tuple[dict[str, dict[TopicPartition, GroupPosition]], dict[str, MirrorError]]:
        """Return the positions of those groups that can be read, and the error of each other one.

        :param patience_s: for temporary errors of a group.
        """
        return groups.group_offsets_apart(self._session, ids, patience_s)

    def commit_groups(
        self, wanted: Mapping[str, Mapping[TopicPartition, GroupPosition]], permit: Permit
    ) -> dict[str, GroupCommit]:
        """Set positions of many groups, without a range check; each group has an outcome of its own.

        :param permit: called right before each request is sent; once it raises a :class:`TryAgain`, nothing more is.
        """
        return groups.commit_groups(self._session, wanted, permit)

    def commit_group_offsets(
        self, group: str, positions: Mapping[TopicPartition, GroupPosition], permit: Permit
    ) -> None:  # fmt: skip
        """Set a group's positions, without a range check.

        :raises GroupActive: the group has members.
        """
        groups.commit_group_offsets(self._session, group, positions, permit)

    def forget_group_offsets(self, group: str, partitions: Collection[TopicPartition], permit: Permit) -> None:
        """Remove a group's positions in these partitions (from 2.4 on); missing ones are no error.

        :raises MissingRight: the principal lacks DELETE on the group or READ on the topics.
        """
        groups.forget_group_offsets(self._session, group, partitions, permit)

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

        :raises RequestRefused: with code 54 (SECURITY_DISABLED) if the cluster has no authorizer.
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

    def acls_by_broker(self, resource_type: str | None = None) -> dict[int, list[Acl]]:
        """Return the rules of a kind as each live broker knows them. Errors as for :meth:`describe_acls`."""
        return acls.describe_acls_each(self._session, resource_type=resource_type)

    def allowed_on_topics(self, names: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the operations that this principal may do with each topic that exists (brokers from 2.3 on)."""
        return allowed.on_topics(self._session, names)

    def allowed_on_groups(self, ids: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the operations that this principal may do with each group (brokers from 2.3 on)."""
        return allowed.on_groups(self._session, ids)

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        """Return the operations that this principal may do with the cluster, by its name in ACLs (from 2.3 on)."""
        return allowed.on_cluster(self._session)

    def lacking_on_topics(self, needed: Mapping[str, Collection[str]]) -> dict[str, list[MissingRight]]:
        """Return an error for each operation of ``needed`` that is not allowed on a topic, whether it exists or not.

        :param needed: by topic: ``WRITE``, ``READ``, ``DESCRIBE_CONFIGS``. Nothing is read or written.
        """
        return tried.lacking(self._session, needed)

    def create_acls(self, rules: Collection[Acl], permit: Permit) -> None:
        """Add rules; an existing rule stays as it is."""
        acls.create_acls(self._session, rules, permit)

    def delete_acls(self, rules: Collection[Acl], permit: Permit) -> list[Acl]:
        """Remove exactly these rules; return those that existed."""
        return acls.delete_acls(self._session, rules, permit)

    # --- transactions ---

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the transactions whose markers are not all written, if :meth:`transactions_hidden` is "".

        :raises BrokerError: a coordinator is missing or loading. :raises ApiNotServed: brokers before 3.0.
        """
        return transactions.open_transactions(self._session)

    def transactional_ids(self) -> dict[int, str]:
        """Return the transactional id of each producer id that has one. Errors and gaps as above."""
        return transactions.transactional_ids(self._session)

    def transactions_hidden(self) -> str:
        """Return why :meth:`open_transactions` may lack some; "" if it lacks none.

        Needs DESCRIBE on all transactional ids and on the topic ``__transaction_state``.
        """
        return transactions.hidden_from(self._session)

    # --- client quotas ---

    def quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return all client quotas, by entity and key. Needs DESCRIBE_CONFIGS on the cluster, and brokers from 2.6 on."""
        return quotas.describe_quotas(self._session)

    def alter_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], permit: Permit) -> None:
        """Set values by entity and key; None removes one. Needs ALTER_CONFIGS on the cluster."""
        quotas.alter_quotas(self._session, changes, permit)

    # --- SCRAM users ---

    def scram_users(self) -> dict[str, dict[str, int]]:
        """Return the iterations of each user's credentials by mechanism.

        Needs DESCRIBE on the cluster, and brokers from 2.7 on.
        """
        return users.describe_users(self._session)

    def create_scram_users(self, new: Mapping[str, Sequence[ScramCredential]], permit: Permit) -> None:
        """Set credentials of users. Needs ALTER on the cluster."""
        users.create_users(self._session, new, permit)
