"""The mirror in the other direction: what a cutover's target got since it was opened goes back to the old source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import (
    BrokersUnsupported,
    InvalidField,
    NothingMatches,
    NoWayBack,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.direction import reverse_name
from airflow_mirror.plan.model import Plan


def reverse_of(mirror: Mirror, exclude_topics: Collection[str] = ()) -> Mirror:
    """Return the mirror that copies back what applications write to the target, but for some topics.

    Topics keep their names, whatever the mirror's policy is: see :func:`not_reversible`.

    Groups don't follow: a position that moves on the old source tells that somebody still reads there. The rollback sets
    them. Rights don't follow either: those of the old source are as they were. It leaves no traces there: the aliases are
    those of the mirror.
    """
    left = sorted(map(re.escape, exclude_topics))
    own = {"source": "target", "target": "source"}
    return replace(
        mirror, name=reverse_name(mirror.name), source=mirror.target, target=mirror.source, offsets="identical",
        policy="identity", start="earliest", sync_groups=False, sync_acls=False, remove_acls=False, principals={},
        replication_factor=None, traces=(), target_alias=None, target_kind="auto",
        exclude_topics=(*mirror.exclude_topics, *left),
        source_registry=mirror.target_registry, target_registry=mirror.source_registry,
        own_principals={own[role]: name for role, name in mirror.own_principals.items()},
    )  # fmt: skip


def not_reversible(plan: Plan) -> list[str]:
    """Return why a plan's topics can't be copied back at the same offsets, as readable lines; nothing if they can."""
    mapped = [t.source_topic for t in plan.topics if t.mode != "identical"]
    renamed = [f"{t.source_topic} -> {t.target_topic}" for t in plan.topics if t.source_topic != t.target_topic]
    lines = [f"offsets differ between the clusters: {', '.join(mapped[:5])}"] if mapped else []
    lines += [f"topics have other names on the target: {', '.join(renamed[:5])}"] if renamed else []
    if plan.mirror.isolation != "read_committed":
        lines.append("aborted records were copied as if they were committed (isolation of the Mirror)")
    return lines


def own_on(plan: Plan, source: ClusterAdmin) -> str:
    """Return the mirror's principal on the source. :raises NoWayBack: nobody knows it."""
    try:
        return own_principal(source, plan.mirror.own_principals)
    except InvalidField as e:
        raise NoWayBack(plan.mirror.name, [str(e)]) from e


def reverse_plan(
    plan: Plan,
    source: ClusterAdmin,
    target: ClusterAdmin,
    exclude_topics: Collection[str] = (),
    *,
    probe: bool,
    but: str = "",
    planner: Callable[..., Plan] = build,
) -> tuple[Plan | None, list[str]]:
    """Return the plan of the reverse mirror, and what blocks it.

    :param exclude_topics: topics that it leaves out.
    :param probe: try out on a scratch topic what the old source allows. :param but: a check that does not count.
    :param planner: see :func:`.arm.arm`.
    """
    known = {t.source_topic: "identical" for t in plan.topics}
    try:
        found = planner(reverse_of(plan.mirror, exclude_topics), target, source, known, probe_target=probe)
    except (BrokersUnsupported, NothingMatches) as e:
        return None, [str(e)]
    new = [t.target_topic for t in found.topics if t.target_topic not in known]
    reasons = [f"{block}" for block in found.blocks if block.check != but]
    reasons += [f"the old source has no such topic, which the target has: {', '.join(new[:5])}"] if new else []
    reasons += [f"{t.target_topic} would not keep its offsets: {t.reason}" for t in found.topics if t.mode != "identical"]
    return found, reasons


def from_log_starts(reverse: Plan, source: ClusterAdmin) -> Plan:
    """Return the plan of the reverse mirror, whose partitions begin where the old source's logs do.

    The target's logs may begin below: log starts follow a day behind, or not at all. What the old source's retention has
    deleted by now is copied by nobody, and a comparison must not ask for it.
    """
    starts = source.wire.log_starts(reverse.routes.values())
    topics = [
        replace(t, starts={p: max(start, starts[TopicPartition(t.target_topic, p)]) for p, start in t.starts.items()})
        for t in reverse.topics
    ]
    return replace(reverse, topics=tuple(topics))
