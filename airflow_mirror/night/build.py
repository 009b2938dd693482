"""Make the plan for the night: look at both clusters, then decide. Nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_mirror.night.look import look
from airflow_mirror.night.model import NightPlan, Shape
from airflow_mirror.night.waves import waves
from airflow_mirror.plan.model import Finding
from airflow_mirror.plan.wording import count, some
from airflow_mirror.policy import is_internal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.night.look import Seen
    from airflow_mirror.plan import Plan


def night_plan(plan: Plan, source: ClusterAdmin) -> NightPlan:
    """Return the plan for the night of a plan's topics.

    :raises ClusterUnreachable: the source does not answer. What it may not tell is listed in the result.
    """
    return decide(plan, look(source))


def decide(plan: Plan, seen: Seen) -> NightPlan:
    """Return the plan for the night from what was seen, without asking a cluster."""
    topics = [t.source_topic for t in plan.topics]
    reads = {group: sorted({tp.topic for tp in positions}) for group, positions in seen.positions.items()}
    selected = {group: its for group, its in reads.items() if plan.mirror.selects_group(group)}
    findings = list(_readers(seen, reads))
    return NightPlan(
        mirror=plan.mirror.name,
        plan=plan.hash,
        at=datetime.fromtimestamp(seen.at_ms / 1000, UTC).isoformat(timespec="seconds"),
        topics={t.source_topic: Shape(topic_id=t.source_topic_id, partitions=t.partitions) for t in plan.topics},
        waves=waves(topics, selected),
        left_topics=[t for t in seen.topics if t not in topics and not is_internal(t)],
        left_groups=[g for g, its in reads.items() if g not in selected and set(its) & set(topics)],
        unseen=seen.unseen,
        findings=sorted(findings, key=lambda f: ("block", "warn", "pass").index(f.level)),
    )


def _readers(seen: Seen, reads: Mapping[str, list[str]]) -> Iterator[Finding]:
    silent = [one.group_id for one in seen.groups if one.alive and not reads.get(one.group_id)]
    if silent:
        yield Finding(
            "warn", "waves", count(len(silent), "group"),
            f"they have members and have committed nothing, so nobody knows what they read: {some(silent)}",
            "Ask their owners, and move them with the wave of their topics.",
        )  # fmt: skip
