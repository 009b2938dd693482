"""A plan as Markdown: blocks, warnings, and what happens to each topic and group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.configs import BY_LAG, Rules
from airflow_mirror.plan.findings import LEVELS, PASS, Finding, passed
from airflow_mirror.plan.model import PRIME_OFFSETS_PER_S, Plan, TopicPlan
from airflow_mirror.wording import count, duration, plain, size

_VERDICT = {
    "block": "**Blocked.** Nothing starts before the findings marked BLOCK are resolved.",
    "warn": "**Ready, with warnings.** Read them; each says what happens.",
    "pass": "**Ready.**",
}
FINDING_HEAD = ("", "check", "about", "found", "what to do")
_TOPIC_HEAD = (
    "topic", "on the target", "partitions", "replicas", "offsets to copy", "to fill first", "holes", "offsets", "why",
)  # fmt: skip


def render(plan: Plan, *, every_check: bool = True) -> str:
    """Return the whole document. :param every_check: False: those that passed are one line."""
    shown = [f for f in plan.findings if every_check or f.level != PASS]
    worst = min((f.level for f in plan.findings), key=LEVELS.index, default="pass")
    parts = [
        f"# Plan of mirror {plan.mirror.name}",
        _VERDICT[worst],
        table(("", ""), _facts(plan)),
        "## Checks",
        *([table(FINDING_HEAD, map(finding_row, shown))] if shown else []),
        *([] if every_check else [f"{passed(plan.findings)}."]),
        "## Topics",
        table(
            _TOPIC_HEAD,
            (_topic(t) for t in plan.topics),
        ),
        *_holes(plan),
        "## Settings",
        f"During the copy every topic has {_held(plan.mirror)}, `compression.type=producer` and the records' own times. "
        "These settings apply afterwards:",
        table(("topic", "settings", "not carried over"), (_settings(t) for t in plan.topics)),
        "## Consumer groups",
        _groups(plan),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(plan: Plan) -> list[tuple[str, str]]:
    mirror = plan.mirror
    time = duration(plan.prime_offsets / PRIME_OFFSETS_PER_S)
    fill = f"; {plan.prime_offsets:,} to fill first (about {time})" if plan.prime_offsets else ""
    return [
        ("source", f"connection {mirror.source}, cluster {plan.source_cluster_id}"),
        ("target", f"connection {mirror.target}, cluster {plan.target_cluster_id}"),
        ("made", plan.created_at),
        ("hash", plan.hash),
        ("topics", f"{len(plan.topics)}, with {count(sum(t.partitions for t in plan.topics), 'partition')}"),
        ("work", f"at most {plan.offsets:,} records{fill}; more arrive while the mirror runs"),
        ("groups", str(len(plan.positions))),
        ("padding", f"{plan.capabilities.markers}{'' if plan.capabilities.markers == 'unknown' else ', tried out'}"),
    ]


def finding_row(f: Finding) -> tuple[str, ...]:
    """Return the cells of a finding's row, below :data:`FINDING_HEAD`."""
    return f.level.upper() if f.level != "pass" else "ok", f.check, f.object, f.evidence, f.remedy


def _topic(t: TopicPlan) -> tuple[str, ...]:
    there = f"{t.target_topic}, exists" if t.target_exists else f"{t.target_topic}, new"
    prime = f"{sum(t.prime.values()):,}" if t.prime else ""
    name = f"{t.source_topic} (compacted)" if t.compacted else t.source_topic
    holes = "not sampled" if t.holes is None else f"about {t.holes.count:,}" if t.holes.count else "none seen"
    size_of = str(t.partitions), str(t.replication_factor), f"{t.offsets:,}"
    return name, there, *size_of, prime, holes if t.offsets else "", t.mode, t.reason


def _holes(plan: Plan) -> list[str]:
    """Return the section on what padding costs and changes; empty if nothing is padded."""
    padded = [t for t in plan.topics if t.mode == "identical" and t.holes and t.holes.count]
    if not padded:
        return []
    head = ("topic", "offsets without a record", "share", "stretches", "filled with", "bytes on each replica", "time")
    return ["## Holes", _EFFECTS, table(head, (_padding(t, plan.capabilities.markers) for t in padded))]


_EFFECTS = (
    "Estimated from samples. Each of these offsets is filled, so that later records keep their offsets. No consumer "
    "sees a marker, but it carries the time of the copy. So on these topics a **search by timestamp** lands earlier than "
    "on the source (never later), and **time retention** counts from the copy. Tombstones carry the time of the record "
    "before them and change neither; consumers see them until the target's cleaner has removed them."
)


def _padding(t: TopicPlan, markers: str) -> tuple[str, ...]:
    assert t.holes is not None
    if t.filler == "tombstones":
        cost = "removed by the cleaner", duration(t.holes.count / PRIME_OFFSETS_PER_S)
    else:
        cost = size(t.holes.bytes), duration(t.holes.padding_s(markers, t.partitions))
    return t.source_topic, f"{t.holes.count:,}", f"{t.holes.share:.0%}", f"{t.holes.runs:,}", t.filler, *cost


def _held(mirror: Mirror) -> str:
    """Return by which policy and retention topics are on hold."""
    rules = Rules.of(mirror)
    policy = "`cleanup.policy=delete`"
    if rules.by_lag:
        policy += f" (a compacted one its own, and {' and '.join(f'`{key}={value}`' for key, value in BY_LAG.items())})"
    ends = mirror.hold_retention_ms is not None
    return f"{policy}, {f'`retention.ms={rules.retention_ms}`' if ends else 'no retention'}"


def _settings(t: TopicPlan) -> tuple[str, ...]:
    return t.source_topic, _pairs(t.configs) or "the target's defaults", _pairs(t.left_out)


def _pairs(configs: object) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(dict(configs).items()))  # type: ignore[call-overload]


def _groups(plan: Plan) -> str:
    if not plan.positions:
        return "None of the selected groups has a position in these topics."
    rows = []
    for group, topics in sorted(plan.positions.items()):
        ends = {t.source_topic: t.ends for t in plan.topics}
        lag = sum(max(0, ends[t].get(p, o) - o) for t, partitions in topics.items() for p, o in partitions.items())
        rows.append((group, ", ".join(sorted(topics)), str(sum(map(len, topics.values()))), f"{lag:,}"))
    return table(("group", "topics", "partitions", "lag when planned"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; whatever a cell holds is shown as it is."""
    lines = [_row(head), _row(["---"] * len(head)), *(_row(list(map(plain, row))) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
