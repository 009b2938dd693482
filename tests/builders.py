"""Values with many fields, of which a test names those that matter to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.request import JobRequest
from airflow_mirror.kafka.model import Acl, GroupCommit
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan, TopicPlan

if TYPE_CHECKING:
    from airflow_mirror.ledger.decisions import Decisions, Values


def rule(
    name: str, operation: str, permission: str = "ALLOW", principal: str = "User:*", *, kind: str = "TOPIC",
    pattern: str = "LITERAL",
) -> Acl:  # fmt: skip
    """Return an access rule for every host."""
    return Acl(
        resource_type=kind, name=name, pattern_type=pattern, principal=principal, host="*", operation=operation,
        permission=permission,
    )  # fmt: skip


def granted_freely() -> AbstractContextManager[Permit]:
    """Return what rules are written in where nobody else has a say."""
    return nullcontext(unfenced)


R = TypeVar("R", bound=JobRequest)


def request(kind: type[R], mirror: Mirror | None = None, **fields: Any) -> R:
    """Return what a job is asked to do, between clusters that nobody can reach."""
    return kind(mirror=mirror or Mirror(name="m", source="a", target="b"), **{"source": "a", "target": "b", **fields})


def topic_plan(name: str, starts: Mapping[int, int], **fields: Any) -> TopicPlan:
    """Return the plan of a topic that the target has already, with as many partitions as ``starts``, and no record."""
    planned = {
        "source_topic": name, "target_topic": name, "target_exists": True, "partitions": len(starts),
        "replication_factor": 1, "configs": {}, "held_configs": {}, "left_out": {}, "compacted": False,
        "mode": "identical", "reason": "", "starts": starts, "ends": starts,
    }  # fmt: skip
    return TopicPlan(**{**planned, **fields})


class CommitsMany:
    """A cluster's admin whose test says what becomes of one group's positions."""

    def commit_groups(self, wanted: Mapping[str, Any], permit: Any) -> dict[str, GroupCommit]:
        """Set those of many groups; the failure of one does not concern the others."""
        done = {}
        for group, positions in wanted.items():
            try:
                self.commit_group_offsets(group, positions, permit)  # type: ignore[attr-defined]
                done[group] = GroupCommit(done=set(positions))
            except MirrorError as e:
                done[group] = GroupCommit(error=e)
        return done


def plan_of(mirror: Mirror, *topics: TopicPlan, source_cluster_id: str = "s", target_cluster_id: str = "t") -> Plan:
    """Return a plan without groups and findings."""
    return Plan(
        mirror=mirror, created_at="2026-01-01T00:00:00+00:00", source_cluster_id=source_cluster_id,
        target_cluster_id=target_cluster_id, topics=topics, positions={}, findings=(),
    )  # fmt: skip


def shut_again(ledger: Decisions, *topics: str) -> None:
    """Let target topics that are in production be opened once more. Tests alone do that."""
    opened = {"opened_by", "opened_at"}

    def change(values: Values) -> Values | None:
        there = {key: one for t in topics if opened & (one := values.get(key := f"topic/{t}") or {}).keys()}
        return {key: {name: one[name] for name in one.keys() - opened} for key, one in there.items()} or None

    ledger.decide(change)
