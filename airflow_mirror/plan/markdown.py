"""A plan as Markdown: what blocks, what to know, what happens to each topic and group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.plan.model import PRIME_OFFSETS_PER_S
from airflow_mirror.plan.situation import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_mirror.plan.model import Finding, Plan, TopicPlan

_VERDICT = {
    "block": "**Blocked.** Nothing starts before the findings marked BLOCK are settled.",
    "warn": "**Ready, with warnings.** Read them; each says what happens.",
    "pass": "**Ready.**",
}
_LEVELS = ("block", "warn", "pass")


def render(plan: Plan) -> str:
    """Return the whole document."""
    worst = min((f.level for f in plan.findings), key=_LEVELS.index, default="pass")
    parts = [
        f"# Plan of mirror {plan.mirror.name}",
        _VERDICT[worst],
        _table(("", ""), _facts(plan)),
        "## Checks",
        _table(("", "check", "about", "found", "what to do"), (_finding(f) for f in plan.findings)),
        "## Topics",
        _table(
            ("topic", "on the target", "partitions", "replicas", "offsets to copy", "to fill first", "offsets", "why"),
            (_topic(t) for t in plan.topics),
        ),
        "## Settings",
        "During the copy `cleanup.policy=delete`, no retention, `compression.type=producer` and the records' own times "
        "are in force on every topic. These stay afterwards:",
        _table(("topic", "settings", "not carried over"), (_settings(t) for t in plan.topics)),
        "## Consumer groups",
        _groups(plan),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(plan: Plan) -> list[tuple[str, str]]:
    mirror = plan.mirror
    fill = f"; {plan.prime_offsets:,} to fill first (about {_seconds(plan.prime_offsets)})" if plan.prime_offsets else ""
    return [
        ("source", f"connection `{mirror.source}`, cluster `{plan.source_cluster_id}`"),
        ("target", f"connection `{mirror.target}`, cluster `{plan.target_cluster_id}`"),
        ("made", plan.created_at),
        ("hash", f"`{plan.hash}`"),
        ("topics", f"{len(plan.topics)}, with {count(sum(t.partitions for t in plan.topics), 'partition')}"),
        ("work", f"at most {plan.offsets:,} records{fill}; more arrive while the mirror runs"),
        ("groups", str(len(plan.positions))),
    ]


def _seconds(offsets: int) -> str:
    return f"{max(1, round(offsets / PRIME_OFFSETS_PER_S))} s"


def _finding(f: Finding) -> tuple[str, ...]:
    return f.level.upper() if f.level != "pass" else "ok", f.check, f.object, f.evidence, f.remedy


def _topic(t: TopicPlan) -> tuple[str, ...]:
    there = f"{t.target_topic}, exists" if t.target_exists else f"{t.target_topic}, new"
    prime = f"{sum(t.prime.values()):,}" if t.prime else ""
    name = f"{t.source_topic} (compacted)" if t.compacted else t.source_topic
    return name, there, str(t.partitions), str(t.replication_factor), f"{t.offsets:,}", prime, t.mode, t.reason


def _settings(t: TopicPlan) -> tuple[str, ...]:
    return t.source_topic, _pairs(t.configs) or "the target's defaults", _pairs(t.left_out)


def _pairs(configs: object) -> str:
    return ", ".join(f"`{k}={v}`" for k, v in sorted(dict(configs).items()))  # type: ignore[call-overload]


def _groups(plan: Plan) -> str:
    if not plan.positions:
        return "None of the selected groups has a position in these topics."
    rows = []
    for group, topics in sorted(plan.positions.items()):
        ends = {t.source_topic: t.ends for t in plan.topics}
        lag = sum(max(0, ends[t].get(p, o) - o) for t, partitions in topics.items() for p, o in partitions.items())
        rows.append((group, ", ".join(sorted(topics)), str(sum(map(len, topics.values()))), f"{lag:,}"))
    return _table(("group", "topics", "partitions", "lag when planned"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(head), _row(["---"] * len(head)), *(_row([cell.replace("|", "\\|") for cell in row]) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
