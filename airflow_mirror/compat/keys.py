"""A row for every key of MirrorMaker 2's flows and of the Connect worker that they run on, from Kafka 2.4 to 4.3.

A test holds the tables against the lists that the classes of 4.3.1 print. :data:`DEFAULTS` has what an absent key means:
a flow that came along behaves as before, also where a Mirror's own default is another one.
"""

from __future__ import annotations

from airflow_mirror.common.policy import TRACES
from airflow_mirror.compat.rows import Table, honoured, mapped, no_effect, refused

POLICIES = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": "prefix",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_FILTERS = "org.apache.kafka.connect.mirror.Default"

# What 4.3.1 does without the key; of connectors that run on Connect, ``enabled`` is true.
DEFAULTS = {
    "enabled": "false",
    "topics": ".*",
    "topics.exclude": r"mm2.*\.internal,.*\.replica,__.*",
    "groups": ".*",
    "groups.exclude": "console-consumer-.*,connect-.*,__.*",
    "config.properties.exclude": "follower.replication.throttled.replicas,leader.replication.throttled.replicas,"
    "message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,"
    "message.timestamp.type,unclean.leader.election.enable,min.insync.replicas",
    "use.defaults.from": "target",
    "replication.factor": "2",
    "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    "replication.policy.separator": ".",
    "refresh.topics.enabled": "true",
    "refresh.topics.interval.seconds": "600",
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "600",
    "sync.topic.acls.enabled": "true",
    "sync.topic.acls.interval.seconds": "600",
    "sync.group.offsets.enabled": "false",
    "sync.group.offsets.interval.seconds": "60",
    "consumer.isolation.level": "read_uncommitted",
    "consumer.auto.offset.reset": "earliest",
    **{f"emit.{kind}.enabled": "true" for kind in TRACES},
    "emit.heartbeats.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "60",
}

# What MirrorMaker and the Go mirror maker leave to the target's brokers, which delete by the topic's own retention. Here
# that is on hold, so that history survives its arrival; what replaces it must keep the target as small, so nothing is
# waited for that none of them waited for.
LIKE_RETENTION = {"sync_log_starts": True, "log_start_delay_s": 60.0}
RETENTION = (
    "on hold on target topics while the mirror runs; what the source's retention deletes is deleted there within "
    "minutes, and a compacted topic is compacted again once the copy is level"
)

_AN_HOUR = "an hour at most"
_EXACT = "positions are translated from the logs, exactly, at any lag"
_IF_TRUE = "true, as where it is absent: on the target, nothing on the source"
_TRACES = "topics of traces lie on the target, with 3 replicas as far as it has brokers (trace_replication_factor)"
_HERE = "the mirror writes the heartbeats of this flow itself, as <source alias>.heartbeats"
_ONE_LOG = "always exactly once: the target's log says how far the copy got"
_FIGURES = "figures are published for Prometheus and Airflow (docs/monitoring.md)"
_NO_CONNECT = "there is no Connect worker: what it keeps is in the target's log and ledger"
_NO_REST = "there is no REST server; the command airflow-mirror asks and tells through the target"
_SAME_BYTES = "records pass as bytes, so nothing can change or drop one of them. Remove it"

FLOW = Table(
    honoured("enabled", "", "only an enabled flow becomes a Mirror"),
    honoured("topics"),
    mapped("topics.exclude", "exclude_topics"),
    mapped("topics.blacklist", "exclude_topics", "the name before 3.0"),
    honoured("groups"),
    mapped("groups.exclude", "exclude_groups", "besides the mirror's own groups"),
    mapped("groups.blacklist", "exclude_groups", "the name before 3.0"),
    mapped("config.properties.exclude", "exclude_configs"),
    mapped("config.properties.blacklist", "exclude_configs", "the name before 3.0"),
    mapped("use.defaults.from", "use_defaults_from"),
    mapped("replication.factor", "replication_factor"),
    mapped("replication.policy.class", "policy", "DefaultReplicationPolicy becomes prefix, IdentityReplicationPolicy "
           "identity; another class is refused"),
    mapped("replication.policy.separator", "separator"),
    mapped("refresh.topics.enabled", "sync_topics"),
    mapped("refresh.topics.interval.seconds", "topic_interval_s", _AN_HOUR),
    mapped("sync.topic.configs.enabled", "sync_configs"),
    mapped("sync.topic.configs.interval.seconds", "config_interval_s", _AN_HOUR),
    mapped("sync.topic.acls.enabled", "sync_acls"),
    mapped("sync.topic.acls.interval.seconds", "acl_interval_s", f"at least 60; {_AN_HOUR}"),
    mapped("sync.group.offsets.enabled", "sync_groups"),
    mapped("sync.group.offsets.interval.seconds", "group_interval_s", _AN_HOUR),
    refused("topic.filter.class", "a filter is code of Java. Remove it; topics and topics.exclude are patterns",
            f"{_FILTERS}TopicFilter"),
    refused("group.filter.class", "a filter is code of Java. Remove it; groups and groups.exclude are patterns",
            f"{_FILTERS}GroupFilter"),
    refused("config.property.filter.class", "a filter is code of Java. Remove it; config.properties.exclude has patterns",
            f"{_FILTERS}ConfigPropertyFilter"),
    refused("forwarding.admin.class", "it is code of Java. Remove it; the mirror's principal creates topics itself",
            "org.apache.kafka.clients.admin.ForwardingAdmin"),
    refused("transforms", _SAME_BYTES, ""),
    refused("transforms.*", _SAME_BYTES),
    refused("predicates", _SAME_BYTES, ""),
    refused("predicates.*", _SAME_BYTES),
    refused("errors.tolerance", "nothing is skipped: what can't be copied stops its partition. Remove it", "none"),
    refused("refresh.groups.enabled", "groups that appear are found in each pass. Remove it, and name those that move in "
            "groups", "true"),
    *no_effect("only what is skipped would be logged, and nothing is", "errors.*"),
    *no_effect("groups are looked for in each pass", "refresh.groups.interval.seconds"),
    *no_effect(_EXACT, "offset.lag.max"),
    *(mapped(f"emit.{kind}.enabled", "traces", _IF_TRUE) for kind in TRACES),
    *no_effect("KIP-382 has it so, MirrorMaker does not know it, and goes by its default: the key ends in .enabled",
               "emit.heartbeats", "emit.checkpoints", "refresh.topics", "refresh.groups", "sync.topic.configs",
               "sync.topic.acls"),
    mapped("emit.heartbeats.interval.seconds", "heartbeat_interval_s", _AN_HOUR),
    mapped("emit.checkpoints.interval.seconds", "checkpoint_interval_s", _AN_HOUR),
    *no_effect(_TRACES, "offset-syncs.topic.location",
               "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor",
               "heartbeats.topic.replication.factor"),
    *no_effect(_HERE, "heartbeats.replication.enabled"),
    *no_effect("topics of traces have the separator", "replication.policy.internal.topic.separator.enabled"),
    *no_effect("the engine waits at the brokers, until data come", "consumer.poll.timeout.ms"),
    *no_effect("a call ends after 15 seconds, and is tried again", "admin.timeout.ms"),
    *no_effect("a setting follows by difference, always", "use.incremental.alter.configs"),
    *no_effect(_FIGURES, "metric.names.formats", "metric.reporters", "add.source.alias.to.metrics"),
    *no_effect("the cores of the host, or of the Spark cluster, say how many tasks copy", "tasks.max",
               "tasks.max.enforce"),
    *no_effect(_ONE_LOG, "exactly.once.support", "transaction.boundary", "transaction.boundary.interval.ms"),
    *no_effect("each is set by its file or flow", "name", "connector.class", "source.cluster.alias",
               "target.cluster.alias", "connector.plugin.version", "task.index", "task.assigned.partitions",
               "task.assigned.groups"),
    *no_effect("topics are created with the source's partitions and settings", "topic.creation.*"),
    *no_effect(_NO_CONNECT, "config.action.reload", "offsets.storage.topic"),
)  # fmt: skip

WORKER = Table(
    refused("key.converter", _SAME_BYTES, BYTES),
    refused("value.converter", _SAME_BYTES, BYTES),
    refused("header.converter", _SAME_BYTES, BYTES),
    *no_effect("records pass as bytes", "key.converter.*", "value.converter.*", "header.converter.*"),
    mapped("exactly.once.source.support", "delivery", "disabled, preparing and enabled all become idempotent, which is "
           "exactly once, whatever is killed. transactional is a choice of the Mirror's own"),
    *no_effect(_NO_CONNECT, "group.id", "offset.storage.*", "config.storage.*", "status.storage.*",
               "offset.flush.interval.ms", "offset.flush.timeout.ms", "scheduled.rebalance.max.delay.ms",
               "rebalance.timeout.ms", "session.timeout.ms", "heartbeat.interval.ms", "worker.sync.timeout.ms",
               "worker.unsync.backoff.ms", "connect.protocol", "inter.worker.*", "plugin.path", "plugin.discovery",
               "topic.creation.enable", "topic.tracking.*", "task.shutdown.graceful.timeout.ms",
               "connector.client.config.override.policy"),
    *no_effect(_NO_REST, "listeners", "listeners.*", "admin.listeners", "admin.listeners.*", "rest.*", "access.control.*",
               "response.http.headers.config", "ssl.client.auth", "dedicated.mode.enable.internal.rest"),
)  # fmt: skip

DRIVER = Table(
    honoured("clusters", "", "each alias becomes a connection"),
    mapped("config.providers", "", "file, directory and environment variable are read; another class is refused"),
    mapped("config.providers.*", "", "see config.providers"),
)  # fmt: skip
