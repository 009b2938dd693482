"""What a verification has found equal, kept so that the cutover need not compare it again behind the fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.jobs.runner.directory import read_json, write_json
from airflow_mirror.partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow_mirror.plan import Plan

_FILE = "verified.json"


def write_verified(mirror_home: Path, plan: Plan, ends: Mapping[TopicPartition, int], level: str) -> Path:
    """Keep up to which source offset (exclusive) each source partition was found equal; return the file."""
    path = mirror_home / _FILE
    rows = [[tp.topic, tp.partition, end] for tp, end in sorted(ends.items())]
    write_json(path, {"topics": _identity(plan), "level": level, "ends": rows})
    return path


def read_verified(mirror_home: Path, plan: Plan) -> dict[TopicPartition, int]:
    """Return what ``write_verified`` kept; nothing when it was for other topics, or only compared log ends."""
    kept = read_json(mirror_home / _FILE) or {}
    if kept.get("topics") != _identity(plan) or kept.get("level") == "offsets":
        return {}
    return {TopicPartition(str(topic), int(partition)): int(end) for topic, partition, end in kept["ends"]}


def _identity(plan: Plan) -> list[list[Any]]:
    # A topic that was deleted and created again has another id: what was proven says nothing about it.
    return [[t.source_topic, t.source_topic_id, t.target_topic, plan.target_cluster_id] for t in plan.topics]
