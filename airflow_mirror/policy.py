"""What things are called on the other side: topics, and the groups and transactional ids of a mirror's own.

MirrorMaker 2 calls the rule for topics a replication policy. Pure functions of names; no cluster is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mirror.errors import InvalidField
from airflow_mirror.partition import TopicPartition

__all__ = ["Policy"]


@dataclass(frozen=True)
class Policy:
    """How names are mapped: ``identity`` keeps them, ``prefix`` puts ``<alias><separator>`` before them."""

    kind: str = "identity"
    source_alias: str = ""
    separator: str = "."

    def __post_init__(self) -> None:
        if self.kind not in ("identity", "prefix"):
            raise InvalidField("policy", self.kind, "no such naming policy", "Use 'identity' or 'prefix'.")
        if self.kind == "prefix" and not self.source_alias:
            raise InvalidField("source_alias", self.source_alias, "policy='prefix' needs it", "Name the source cluster.")

    def target_topic(self, source_topic: str) -> str:
        """Return the name of ``source_topic`` on the target."""
        return source_topic if self.kind == "identity" else f"{self.source_alias}{self.separator}{source_topic}"

    def source_topic(self, target_topic: str) -> str | None:
        """Return the source's name of ``target_topic``, or None if this policy can't have made it."""
        if self.kind == "identity":
            return target_topic
        prefix = self.source_alias + self.separator
        return target_topic.removeprefix(prefix) if target_topic.startswith(prefix) else None


def is_internal(topic: str) -> bool:
    """Say whether a topic belongs to Kafka or a mirror and is never copied as bytes.

    Rule: MirrorMaker 2 4.0+ ReplicationPolicy.isInternalTopic (KAFKA-17200).
    """
    mm2 = topic.startswith("mm2") and topic.endswith("internal")
    return topic.startswith(("__", ".")) or mm2 or topic.endswith("checkpoints.internal")


def lease_id(mirror: str) -> str:
    """Return the transactional id that is the writer lease of a Mirror."""
    return f"airflow-mirror.{mirror}"


def progress_group(mirror: str) -> str:
    """Return the consumer group at the target in which transactional delivery keeps its progress."""
    return f"airflow-mirror.{mirror}"


def marker_id(mirror: str, tp: TopicPartition) -> str:
    """Return the transactional id of one target partition: it guards padding, and delivers where that is asked for."""
    return f"airflow-mirror.{mirror}.{tp.topic}.{tp.partition}"
