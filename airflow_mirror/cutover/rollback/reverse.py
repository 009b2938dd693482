"""The mirror in the other direction: what a cutover's target got since it was opened goes back to the old source."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan

_SUFFIX = "-reverse"  # no dot: the names of a mirror's fences are told apart by one


def reverse_name(mirror: str) -> str:
    """Return the name of a mirror's reverse; that of a reverse is the mirror's own."""
    # Its own inverse: a rollback of a rollback finds the first mirror, its ledger keys and its lease again.
    return mirror.removesuffix(_SUFFIX) if mirror.endswith(_SUFFIX) else mirror + _SUFFIX


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
