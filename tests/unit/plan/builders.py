"""Inventories as a broker would describe them, for tests of decisions. Irregular on purpose."""

from __future__ import annotations

from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.model import ConfigEntry, GroupPosition, TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.inventory import Inventory, TopicState

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
}


def a_mirror(**fields: Any) -> Mirror:
    return Mirror(**{"name": "dc1-to-dc2", "source": "kafka_dc1", "target": "kafka_dc2", **fields})


def configs(static: dict[str, str] | None = None, **overrides: Any) -> dict[str, ConfigEntry]:
    """Effective configs; ``retention_ms="1"`` is an override of the topic, ``static`` come from the broker's file."""
    entries = {key: ConfigEntry(value=value, is_default=True, source="DEFAULT_CONFIG") for key, value in DEFAULTS.items()}
    for key, value in (static or {}).items():
        entries[key] = ConfigEntry(value=value, source="STATIC_BROKER_CONFIG")
    for key, value in overrides.items():
        entries[key.replace("_", ".")] = ConfigEntry(value=value, source="DYNAMIC_TOPIC_CONFIG")
    return entries


def a_topic(
    name: str = "orders",
    spans: Any = ((0, 100), (0, 0), (0, 7)),
    replicas: int = 3,
    stable: dict[int, int] | None = None,
    begins: dict[int, int] | None = None,
    static: dict[str, str] | None = None,
    **overrides: Any,
) -> TopicState:
    """A topic whose partitions hold ``spans``: (log start, high watermark) each."""
    starts, ends = ({p: span[i] for p, span in enumerate(spans)} for i in (0, 1))
    return TopicState(
        info=TopicInfo(name, f"id-of-{name}", len(spans), replicas),
        configs=configs(static, **overrides),
        starts=starts,
        ends=ends,
        stable_ends={**ends, **(stable or {})},
        begins=begins or starts,
    )


def a_cluster(
    *topics: Any, cluster_id: str = "c1", brokers: int = 3, groups: dict[str, Any] | None = None,
    auto_create: Any = "false", own_configs: dict[str, str] = DEFAULTS,
    sizes: Any = "none", usable_bytes: Any = None, quotas: Any = "none", kind: str | None = None,
    kind_by_address: str | None = None, **broker: Any,
) -> Inventory:  # fmt: skip
    """A cluster; ``socket_request_max_bytes="1"`` is a setting of its brokers, ``{2: "1"}`` of one of them."""
    limits = {"socket_request_max_bytes": "104857600", "transaction_max_timeout_ms": "900000"}
    every = {"auto_create_topics_enable": auto_create, **limits, **broker}
    return Inventory(
        cluster_id=cluster_id,
        brokers=brokers,
        topics={t.info.name: t for t in topics},
        names=tuple(t.info.name for t in topics),
        group_ids=tuple(groups or {}),
        broker_configs={
            number: {
                key.replace("_", "."): ConfigEntry(value=of_all, source="STATIC_BROKER_CONFIG")
                for key, value in every.items()
                if (of_all := value.get(number) if isinstance(value, dict) else value) is not None
            }
            for number in range(1, brokers + 1)
        },
        groups={g: positions(p) for g, p in (groups or {}).items()},
        own_configs=own_configs,
        sizes={} if sizes == "none" else sizes,
        usable_bytes=dict.fromkeys(range(1, brokers + 1), 10**12) if usable_bytes is None else usable_bytes,
        quotas={} if quotas == "none" else quotas,
        kind=kind,
        kind_by_address=kind_by_address,
    )


def positions(by_name: dict[str, int]) -> dict[TopicPartition, GroupPosition]:
    """{"orders-0": 5} as positions of a group."""
    found = {}
    for name, offset in by_name.items():
        topic, _, partition = name.rpartition("-")
        found[TopicPartition(topic, int(partition))] = GroupPosition(offset)
    return found
