"""ClusterAdmin: every administrative request to a cluster, over our own connections.

One code path serves every broker from 0.11 on. Versions are negotiated for each request; a request that an old broker
lacks is replaced by the closest one that it has, or rejected by name. Every response is checked per object, no error is
swallowed, and no request auto-creates a topic. Errors name the cluster's role, the object and the cause, with the
broker's own message if there is one (:mod:`airflow_mirror.kafka.session`). It does not read or write records.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_mirror.kafka import acls, allowed, cluster, configs, local_name, transactions, tried, users
from airflow_mirror.kafka import group_offsets as of_positions
from airflow_mirror.kafka import groups as of_groups
from airflow_mirror.kafka import offsets as of_offsets
from airflow_mirror.kafka import quotas as of_quotas
from airflow_mirror.kafka import topics as of_topics
from airflow_mirror.kafka.model import Acl, ConfigEntry, GroupInfo, GroupPosition, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.session import AdminSession

__all__ = ["Acl", "ClusterAdmin", "ConfigEntry", "GroupInfo", "GroupPosition", "NewTopicSpec", "TopicInfo"]


class ClusterAdmin(AdminSession):
    """Admin calls to one cluster: a session, with a method for each request. Not shared between threads. Close it, or use
    it as a context manager.

    What changes something that others rely on takes a permit (:mod:`.permit`), called right before the bytes.

    Every method may raise :class:`ClusterUnreachable` (no broker answers, detected within 8 s at the first call),
    :class:`AuthenticationFailed`, :class:`MissingRight`, which names the ACL,
    :class:`RequestRefused`, :class:`BrokerError`, and :class:`ApiNotServed` if the brokers are too old.
    """

    principal = property(local_name.principal)

    cluster_id = cluster.cluster_id
    broker_count = cluster.broker_count
    usable_bytes = cluster.usable_bytes
    broker_configs = configs.broker_configs

    topics = of_topics.describe_topics
    topic_names = of_topics.topic_names
    replicas = of_topics.describe_replicas
    create_topics = of_topics.create_topics
    refused_topics = of_topics.refused_topics
    grow_partitions = of_topics.grow_partitions
    delete_topics = of_topics.delete_topics
    delete_topic = of_topics.delete_topic
    topic_configs = configs.topic_configs
    alter_topic_configs = configs.alter_topic_configs
    refused_configs = configs.refused_configs

    offsets = of_offsets.offsets
    delete_records = of_offsets.delete_records

    groups = of_groups.list_groups
    sees_group_coordinators = of_groups.sees_coordinators
    describe_groups = of_groups.describe_groups
    unseen_groups = of_groups.unseen_groups
    groups_offsets = of_positions.groups_offsets
    groups_offsets_apart = of_positions.groups_offsets_apart
    commit_groups = of_positions.commit_groups
    commit_group_offsets = of_positions.commit_group_offsets
    forget_group_offsets = of_positions.forget_group_offsets

    describe_acls = acls.describe_acls
    acls_by_broker = acls.describe_acls_each
    create_acls = acls.create_acls
    delete_acls = acls.delete_acls

    allowed_on_topics = allowed.on_topics
    allowed_on_groups = allowed.on_groups
    allowed_on_cluster = allowed.on_cluster
    lacking_on_topics = tried.lacking

    open_transactions = transactions.open_transactions
    transactional_ids = transactions.transactional_ids
    transactions_hidden = transactions.hidden_from

    quotas = of_quotas.describe_quotas
    alter_quotas = of_quotas.alter_quotas

    scram_users = users.describe_users
    create_scram_users = users.create_users

    def group_states(self, ids: Collection[str]) -> dict[str, str]:
        """Return Kafka's state name of each group; ``Dead`` for one that does not exist."""
        return {group: info.state for group, info in self.describe_groups(ids).items()}

    def group_offsets(self, group: str) -> of_positions.Positions:
        """Return the committed positions of a group; partitions without one are omitted."""
        return self.groups_offsets([group])[group]
