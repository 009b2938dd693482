"""Names on the target: of mirrored topics, and of a Mirror's own group and transactional ids.

MirrorMaker 2 calls the rule for topics a replication policy. Pure functions of names; no cluster is queried.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mirror.errors import InvalidField
from airflow_mirror.partition import TopicPartition

__all__ = ["Policy"]


@dataclass(frozen=True)
class Policy:
    """How topic names are mapped: ``identity`` keeps them, ``prefix`` prepends ``<alias><separator>``."""

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
        """Return the source name of ``target_topic``, or None if this policy can't have produced it."""
        if self.kind == "identity":
            return target_topic
        prefix = self.source_alias + self.separator
        return target_topic.removeprefix(prefix) if target_topic.startswith(prefix) else None


# A target's own memory of its mirrors. Copied to the next cluster it would decide there what was decided here.
DECISIONS = "airflow-mirror.decisions"
STATE = "airflow-mirror.ledger"
MAPS = "airflow-mirror.maps"
LEDGER = frozenset({DECISIONS, STATE, MAPS})


def is_internal(topic: str) -> bool:
    """Return whether a topic belongs to Kafka or to a mirror and is never copied as bytes.

    Rule: MirrorMaker 2 4.0+ ReplicationPolicy.isInternalTopic (KAFKA-17200).
    """
    mm2 = topic.startswith("mm2") and topic.endswith("internal")
    return topic in LEDGER or topic.startswith(("__", ".")) or mm2 or topic.endswith("checkpoints.internal")


def lease_id(mirror: str) -> str:
    """Return the transactional id that serves as a Mirror's writer lease."""
    return f"airflow-mirror.{mirror}"


def progress_group(mirror: str) -> str:
    """Return the consumer group on the target in which transactional delivery stores its progress."""
    return f"airflow-mirror.{mirror}"


def marker_id(mirror: str, tp: TopicPartition) -> str:
    """Return the transactional id of one target partition, used to guard padding and for transactional delivery."""
    return f"airflow-mirror.{mirror}.{tp.topic}.{tp.partition}"
